/** Keys of the whole app. Elements handle their own; these work anywhere. */

/** @typedef {{id: string, keys: string, label: string, run: () => unknown, always?: boolean}} Shortcut
 *  `keys` like `mod+shift+o`; `always`: also while typing */

const mac = /mac|iphone|ipad/i.test(navigator.platform);

/** @type {Map<string, Shortcut>} */
const shortcuts = new Map();

/** @param {Shortcut} shortcut @returns {() => void} */
export function addShortcut(shortcut) {
  for (const other of shortcuts.values()) {
    if (other.keys === shortcut.keys && other.id !== shortcut.id) throw new Error(`shortcut ${shortcut.keys} belongs to ${other.id}`);
  }
  shortcuts.set(shortcut.id, shortcut);
  return () => {
    if (shortcuts.get(shortcut.id) === shortcut) shortcuts.delete(shortcut.id);
  };
}

export function allShortcuts() {
  return [...shortcuts.values()];
}

/** How to write keys for people. @param {string} keys */
export function showKeys(keys) {
  const names = mac
    ? /** @type {Record<string, string>} */ ({ mod: "⌘", shift: "⇧", alt: "⌥", escape: "Esc", enter: "↵", backspace: "⌫" })
    : /** @type {Record<string, string>} */ ({ mod: "Ctrl", shift: "Shift", alt: "Alt", escape: "Esc", enter: "Enter", backspace: "Backspace" });
  return keys
    .split("+")
    .map((part) => names[part] ?? part.toUpperCase())
    .join(mac ? "" : "+");
}

/** @param {KeyboardEvent} event */
function keysOf(event) {
  const parts = [];
  if (mac ? event.metaKey : event.ctrlKey) parts.push("mod");
  if (event.altKey) parts.push("alt");
  const key = event.key.toLowerCase();
  // "?" is Shift on many layouts and not on others: the character counts.
  if (event.shiftKey && (key.length > 1 || /[a-z0-9]/.test(key) || parts.length)) parts.push("shift");
  parts.push(key === " " ? "space" : key === "<" && event.code === "Comma" ? "," : key);
  return parts.join("+");
}

/** @param {() => boolean} editing  whether a text field has the focus */
export function listen(editing) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const keys = keysOf(event);
    for (const shortcut of shortcuts.values()) {
      if (shortcut.keys !== keys) continue;
      if (!shortcut.always && editing()) return;
      if (shortcut.run() !== false) event.preventDefault();
      return;
    }
  });
}
