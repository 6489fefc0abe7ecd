/** Choices of this browser: theme, keys, widths. Kept in local storage, shared by all tabs. */

const PREFIX = "skald.";

const DEFAULTS = {
  theme: /** @type {"auto" | "light" | "dark"} */ ("auto"),
  sendKey: /** @type {"enter" | "mod-enter"} */ ("enter"),
  steps: /** @type {"folded" | "open"} */ ("folded"),
  sideWidth: 264,
  sideOpen: true,
  dockWidth: 400,
  dockOpen: true,
};

/** @typedef {typeof DEFAULTS} Prefs */

/** Fires `change`. */
export const prefs = new (class extends EventTarget {
  constructor() {
    super();
    /** @type {Prefs} */
    this.values = { ...DEFAULTS };
    for (const key of /** @type {(keyof Prefs)[]} */ (Object.keys(DEFAULTS))) this._read(key);
    addEventListener("storage", (event) => {
      if (!event.key?.startsWith(PREFIX)) return;
      const key = /** @type {keyof Prefs} */ (event.key.slice(PREFIX.length));
      if (!(key in DEFAULTS)) return;
      this._read(key);
      this.dispatchEvent(new Event("change"));
    });
  }

  /** @private @param {keyof Prefs} key */
  _read(key) {
    try {
      const raw = localStorage.getItem(PREFIX + key);
      const value = raw === null ? DEFAULTS[key] : JSON.parse(raw);
      if (typeof value === typeof DEFAULTS[key]) /** @type {any} */ (this.values)[key] = value;
    } catch {
      // unreadable or forbidden: the default stands
    }
  }

  /** @template {keyof Prefs} K @param {K} key @returns {Prefs[K]} */
  get(key) {
    return this.values[key];
  }

  /** @template {keyof Prefs} K @param {K} key @param {Prefs[K]} value */
  set(key, value) {
    if (this.values[key] === value) return;
    this.values[key] = value;
    try {
      localStorage.setItem(PREFIX + key, JSON.stringify(value));
    } catch {
      // forbidden: it holds for this tab
    }
    this.dispatchEvent(new Event("change"));
  }
})();

/** Apply the theme now and whenever it changes. */
export function watchTheme() {
  const apply = () => {
    const theme = prefs.get("theme");
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  apply();
  prefs.addEventListener("change", apply);
}
