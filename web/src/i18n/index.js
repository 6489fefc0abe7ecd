/**
 * `@skald/i18n`: texts in the person's language.
 *
 * @module @skald/i18n
 */
import { I18n } from "./core.js";
import en from "./en.json" with { type: "json" };

/** @typedef {import("./core.js").Bundle} Bundle */
/** @typedef {import("lit").ReactiveController} ReactiveController */

export const LOCALES = /** @type {const} */ (["en", "it", "fr"]);
export const LOCALE_NAMES = { en: "English", it: "Italiano", fr: "Français" };

/** @type {Record<string, () => Promise<{default: any}>>} */
const loaders = {
  en: async () => ({ default: en }),
  it: () => import("./it.json", { with: { type: "json" } }),
  fr: () => import("./fr.json", { with: { type: "json" } }),
};

const RTL = new Set(["ar", "fa", "he", "ur"]);

/** Fires `change` when the language or its texts change. */
export const i18n = new I18n(/** @type {Bundle} */ (en));

/** @type {typeof i18n.t} */
export const t = (key, params) => i18n.t(key, params);
/** @type {typeof i18n.tt} */
export const tt = (text) => i18n.tt(text);

/**
 * The language of the first visit, before anyone is known.
 * @returns {string}
 */
export function browserLocale() {
  for (const wanted of navigator.languages ?? [navigator.language]) {
    const base = wanted.toLowerCase().split("-")[0];
    if (LOCALES.some((locale) => locale === base)) return base;
  }
  return "en";
}

/**
 * Switch the whole app to a language; nothing reloads.
 * @param {string} locale  an unknown one becomes English
 */
export async function setLocale(locale) {
  const known = loaders[locale] ? locale : "en";
  const bundle = (await loaders[known]()).default;
  document.documentElement.lang = known;
  document.documentElement.dir = RTL.has(known) ? "rtl" : "ltr";
  if (known === i18n.locale && known === "en") i18n.use("en", bundle);
  else if (known !== i18n.locale) i18n.use(known, bundle);
}

/**
 * Redraws a Lit element when the language changes.
 * @implements {ReactiveController}
 */
export class LocaleController {
  /** @param {import("lit").ReactiveControllerHost} host */
  constructor(host) {
    /** @private */ this._redraw = () => host.requestUpdate();
    host.addController(this);
  }
  hostConnected() {
    i18n.addEventListener("change", this._redraw);
  }
  hostDisconnected() {
    i18n.removeEventListener("change", this._redraw);
  }
}
