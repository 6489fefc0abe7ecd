/** Look-up, plurals and `Intl` formats. No texts here: see `index.js` and the JSON files. */

/** @typedef {string | Record<string, string>} Text  plain, or one string per plural category */
/** @typedef {Record<string, Text>} Bundle */

export class I18n extends EventTarget {
  /** @param {Bundle} fallback  the English texts, used for any key another language lacks */
  constructor(fallback) {
    super();
    this.locale = "en";
    /** @private */ this._fallback = fallback;
    /** @private @type {Bundle} */ this._own = fallback;
    /** @private @type {Record<string, Bundle>} */ this._extra = {};
    /** @private */ this._plurals = new Intl.PluralRules("en");
    /** @private @type {Map<string, any>} */ this._formats = new Map();
  }

  /** @param {string} locale @param {Bundle} bundle */
  use(locale, bundle) {
    this.locale = locale;
    this._own = bundle;
    this._plurals = new Intl.PluralRules(locale);
    this._formats.clear();
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Add texts, such as those of plugins.
   * @param {string} locale @param {Bundle} bundle
   */
  add(locale, bundle) {
    this._extra[locale] = { ...this._extra[locale], ...bundle };
    this.dispatchEvent(new Event("change"));
  }

  /**
   * @param {string} key
   * @returns {Text | undefined}
   */
  find(key) {
    return this._own[key] ?? this._extra[this.locale]?.[key] ?? this._fallback[key] ?? this._extra.en?.[key];
  }

  /**
   * The text of a key. `{name}` is replaced by `params.name`; a number in `params.count` chooses the plural form and is
   * formatted. An unknown key is returned as it is, so that it is seen.
   *
   * @param {string} key
   * @param {Record<string, string | number>} [params]
   * @returns {string}
   */
  t(key, params) {
    let text = this.find(key);
    if (text === undefined) return key;
    if (typeof text !== "string") {
      const count = Number(params?.count ?? 0);
      text = (count === 0 ? text.zero : undefined) ?? text[this._plurals.select(count)] ?? text.other ?? key;
    }
    if (!params) return text;
    return text.replace(/\{(\w+)\}/g, (whole, name) => {
      const value = params[name];
      if (value === undefined) return whole;
      return typeof value === "number" ? this.number(value) : value;
    });
  }

  /**
   * Text from a plugin: a key of its bundle, or plain text.
   * @param {string | null | undefined} text
   */
  tt(text) {
    return text ? (this.find(text) !== undefined ? this.t(text) : text) : "";
  }

  /**
   * @private
   * @template T
   * @param {string} name @param {() => T} make
   * @returns {T}
   */
  _format(name, make) {
    let format = this._formats.get(name);
    if (!format) this._formats.set(name, (format = make()));
    return format;
  }

  /** @param {number} value @param {Intl.NumberFormatOptions} [options] */
  number(value, options) {
    return this._format(`n${JSON.stringify(options ?? {})}`, () => new Intl.NumberFormat(this.locale, options)).format(value);
  }

  /** @param {number} bytes */
  bytes(bytes) {
    const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
    const step = bytes > 0 ? Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3)) : 0;
    return this.number(bytes / 1000 ** step, { style: "unit", unit: units[step], unitDisplay: step ? "short" : "long", maximumFractionDigits: 1 });
  }

  /** @param {number} seconds  since the epoch */
  dateTime(seconds) {
    return this._format("dt", () => new Intl.DateTimeFormat(this.locale, { dateStyle: "medium", timeStyle: "short" })).format(seconds * 1000);
  }

  /** @param {number} seconds  since the epoch */
  time(seconds) {
    return this._format("t", () => new Intl.DateTimeFormat(this.locale, { timeStyle: "short" })).format(seconds * 1000);
  }

  /** @param {number} seconds  since the epoch */
  date(seconds) {
    return this._format("d", () => new Intl.DateTimeFormat(this.locale, { dateStyle: "medium" })).format(seconds * 1000);
  }

  /**
   * "3 minutes ago", "tomorrow".
   * @param {number} seconds  since the epoch @param {number} [now]  milliseconds since the epoch
   */
  relative(seconds, now = Date.now()) {
    const delta = seconds - now / 1000;
    const size = Math.abs(delta);
    /** @type {[Intl.RelativeTimeFormatUnit, number]} */
    const [unit, length] =
      size < 45 ? ["second", 1] : size < 2700 ? ["minute", 60] : size < 79_200 ? ["hour", 3600] : size < 2_592_000 ? ["day", 86_400] : size < 31_536_000 ? ["month", 2_592_000] : ["year", 31_536_000];
    const value = size < 45 ? 0 : Math.round(delta / length);
    return this._format("r", () => new Intl.RelativeTimeFormat(this.locale, { numeric: "auto" })).format(value, unit);
  }

  /**
   * A length of time: "0.4 s", "12 s", "3 min 5 s".
   * @param {number} ms
   */
  duration(ms) {
    /** @param {number} value @param {string} unit @param {number} [digits] */
    const part = (value, unit, digits = 0) =>
      this.number(value, { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: digits });
    const seconds = Math.max(0, ms) / 1000;
    if (seconds < 0.95) return part(Math.max(0.1, Math.round(seconds * 10) / 10), "second", 1);
    if (seconds < 59.5) return part(Math.round(seconds), "second");
    const whole = Math.round(seconds);
    if (whole < 3600) return `${part(Math.floor(whole / 60), "minute")} ${part(whole % 60, "second")}`;
    return `${part(Math.floor(whole / 3600), "hour")} ${part(Math.floor((whole % 3600) / 60), "minute")}`;
  }
}
