/**
 * `@skald/ui`: the controls of the app, for its own pages and for plugins'. See web/README.md for the list.
 *
 * @module @skald/ui
 */
export { controls, SkElement } from "./base.js";
export { SkButton } from "./button.js";
export { confirmDialog, SkDialog } from "./dialog.js";
export { SkForm } from "./form.js";
export { SkIcon } from "./icon.js";
export { SkMenu } from "./menu.js";
export { SkCard, SkPage } from "./page.js";
export { describeError, SkEmpty, SkError, SkNotice, SkProgress, SkSkeleton } from "./states.js";
export { SkSwitch } from "./switch.js";
export { SkTable } from "./table.js";
export { toast, toastError, undoable } from "./toast.js";
export { navigate } from "../core/router.js";
