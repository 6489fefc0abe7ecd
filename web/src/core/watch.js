/** Ties elements to things that change. */

/** @typedef {import("lit").ReactiveController} ReactiveController */

/**
 * Redraws a host when a target fires one of the events; follows the host's life.
 * @implements {ReactiveController}
 */
export class Watch {
  /**
   * @param {import("lit").ReactiveControllerHost} host
   * @param {EventTarget | null} target
   * @param {string[]} [types]
   * @param {((event: Event) => void) | null} [also]  runs before the redraw
   */
  constructor(host, target, types = ["change"], also = null) {
    /** @private */ this._host = host;
    /** @private */ this._types = types;
    /** @private */ this._also = also;
    /** @private */ this._on = false;
    /** @private @type {EventTarget | null} */ this._target = target;
    /** @private @param {Event} event */
    this._heard = (event) => {
      this._also?.(event);
      this._host.requestUpdate();
    };
    host.addController(this);
  }

  /** @param {EventTarget | null} target */
  set target(target) {
    if (target === this._target) return;
    this._listen(false);
    this._target = target;
    if (this._on) this._listen(true);
  }

  hostConnected() {
    this._on = true;
    this._listen(true);
  }

  hostDisconnected() {
    this._listen(false);
    this._on = false;
  }

  /** @private @param {boolean} on */
  _listen(on) {
    for (const type of this._types) {
      if (on) this._target?.addEventListener(type, this._heard);
      else this._target?.removeEventListener(type, this._heard);
    }
  }
}

/**
 * Runs `load` and keeps what came: the data, or the error. The newest call wins. Fires `change`.
 * @template T
 */
export class Resource extends EventTarget {
  /** @param {() => Promise<T>} load */
  constructor(load) {
    super();
    /** @private */ this._load = load;
    /** @private */ this._run = 0;
    /** @type {T | null} */ this.data = null;
    /** @type {unknown} */ this.error = null;
    this.loading = false;
  }

  /** @returns {Promise<void>} settles when this call's answer is in; never rejects */
  async load() {
    const run = ++this._run;
    this.loading = true;
    this.dispatchEvent(new Event("change"));
    try {
      const data = await this._load();
      if (run !== this._run) return;
      this.data = data;
      this.error = null;
    } catch (error) {
      if (run !== this._run) return;
      this.error = error;
    }
    this.loading = false;
    this.dispatchEvent(new Event("change"));
  }

  /** Change the data at hand, e.g. before the server confirms. @param {T} data */
  set(data) {
    this.data = data;
    this.dispatchEvent(new Event("change"));
  }

  clear() {
    this._run += 1;
    this.data = null;
    this.error = null;
    this.loading = false;
    this.dispatchEvent(new Event("change"));
  }
}
