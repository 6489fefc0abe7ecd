/** `<sk-help>`: the keys, on `?`. */
import { css, html } from "lit";
import { t } from "../i18n/index.js";
import { prefs } from "../core/prefs.js";
import { allShortcuts, showKeys } from "../core/shortcuts.js";
import { SkElement } from "../ui/base.js";
import "../ui/dialog.js";

export class SkHelp extends SkElement {
  static properties = { _open: { state: true } };

  constructor() {
    super();
    this._open = false;
  }

  show() {
    this._open = true;
  }

  render() {
    const enter = prefs.get("sendKey") === "enter";
    /** @type {[string, string][]} */
    const local = [
      [enter ? showKeys("enter") : showKeys("mod+enter"), t("keys.send")],
      [enter ? showKeys("shift+enter") : showKeys("enter"), t("keys.newline")],
      ["A / D", t("keys.answer")],
      ["J / K", t("keys.inbox_move")],
    ];
    return html`<sk-dialog .heading=${t("keys.title")} .open=${this._open} @sk-close=${() => (this._open = false)}>
      <dl>
        ${allShortcuts().map((s) => html`<div><dt>${t(s.label)}</dt><dd><kbd>${showKeys(s.keys)}</kbd></dd></div>`)}
        ${local.map(([keys, label]) => html`<div><dt>${label}</dt><dd><kbd>${keys}</kbd></dd></div>`)}
      </dl>
    </sk-dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      dl {
        margin: 0;
      }
      dl div {
        display: flex;
        align-items: center;
        justify-content: space-between;
        gap: var(--s4);
        padding-block: var(--s1);
        font-size: var(--size-s);
      }
      dd {
        margin: 0;
        white-space: nowrap;
      }
    `,
  ];
}

customElements.define("sk-help", SkHelp);
