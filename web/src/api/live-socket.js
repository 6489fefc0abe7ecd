/**
 * One WebSocket per tab that is always on its way back.
 *
 * Reconnects with exponential delay and jitter; at once when the tab returns from the background, the network comes
 * back, or a timer shows that the machine slept: after such a pause an open socket may be a dead one, and asking again
 * costs only what was missed. What a conversation missed is the business of {@link ./../chat/sync.js}.
 */

const PING_GRACE_MS = 40_000;
const HELLO_MS = 8_000;
const AWAY_MS = 4_000;
const TICK_MS = 1_000;

/**
 * @param {number} attempt  0 for the first
 * @param {() => number} random  in [0, 1)
 * @returns {number} milliseconds until the next try: half fixed, half random, at most 4 s
 */
export function reconnectDelay(attempt, random = Math.random) {
  const base = Math.min(4_000, 400 * 2 ** Math.min(attempt, 10));
  return Math.round(base / 2 + (base / 2) * random());
}

/**
 * Events: `hello` (detail: the message), `message` (detail: any other parsed message), `state` (after `state` changed).
 */
export class LiveSocket extends EventTarget {
  /**
   * @param {{url: string, create?: (url: string) => WebSocket, now?: () => number, random?: () => number,
   *   probe?: () => Promise<unknown>}} options
   *   `probe` runs after a refused connection, to find out whether the session ended
   */
  constructor({ url, create = (u) => new WebSocket(u), now = () => Date.now(), random = Math.random, probe }) {
    super();
    this.url = url;
    /** @private */ this._create = create;
    /** @private */ this._now = now;
    /** @private */ this._random = random;
    /** @private */ this._probe = probe;
    /** @type {"off" | "connecting" | "open" | "waiting"} */
    this.state = "off";
    /** @type {string | null} the server's epoch */
    this.epoch = null;
    /** @private @type {WebSocket | null} */ this._socket = null;
    /** @private */ this._attempt = 0;
    /** @private */ this._heard = 0;
    /** @private */ this._since = 0;
    /** @private */ this._retryAt = 0;
    /** @private */ this._ticked = 0;
    /** @private */ this._hiddenAt = 0;
    /** @private @type {ReturnType<typeof setInterval> | undefined} */ this._timer = undefined;
    /** @private @type {AbortController | null} */ this._listeners = null;
  }

  /** Connect and stay connected until {@link stop}. */
  start() {
    if (this.state !== "off") return;
    this._ticked = this._now();
    this._timer = setInterval(() => this.tick(), TICK_MS);
    if (typeof window !== "undefined") {
      const listeners = new AbortController();
      this._listeners = listeners;
      const options = { signal: listeners.signal };
      window.addEventListener("online", () => this.refresh(), options);
      window.addEventListener("pageshow", (event) => event.persisted && this.refresh(), options);
      document.addEventListener("resume", () => this.refresh(), options);
      document.addEventListener("visibilitychange", () => {
        if (document.visibilityState === "hidden") this._hiddenAt = this._now();
        else if (this.state !== "open" || this._now() - this._hiddenAt > AWAY_MS) this.refresh();
      }, options);
    }
    this._connect();
  }

  stop() {
    clearInterval(this._timer);
    this._listeners?.abort();
    this._drop();
    this._attempt = 0;
    this._setState("off");
  }

  /** Forget the present socket and connect now. */
  refresh() {
    if (this.state === "off") return;
    if (this.state === "connecting" && this._now() - this._since < 1_500) return;
    this._attempt = 0;
    this._connect();
  }

  /**
   * @param {object} message
   * @returns {boolean} false when there is no open socket; the caller sends again after the next `hello`
   */
  send(message) {
    if (this.state !== "open" || !this._socket) return false;
    this._socket.send(JSON.stringify(message));
    return true;
  }

  /** The clockwork; public so that tests can drive it. */
  tick() {
    const now = this._now();
    const slept = now - this._ticked > TICK_MS + AWAY_MS;
    this._ticked = now;
    if (slept) return this.refresh();
    if (this.state === "open" && now - this._heard > PING_GRACE_MS) return this._lost();
    if (this.state === "connecting" && now - this._since > HELLO_MS) return this._lost();
    if (this.state === "waiting" && now >= this._retryAt) this._connect();
  }

  /** @private */
  _connect() {
    this._drop();
    this._since = this._now();
    this._setState("connecting");
    /** @type {WebSocket} */
    let socket;
    try {
      socket = this._create(this.url);
    } catch {
      return this._lost();
    }
    this._socket = socket;
    socket.onmessage = (event) => {
      if (socket !== this._socket) return;
      this._heard = this._now();
      /** @type {any} */
      let message;
      try {
        message = JSON.parse(event.data);
      } catch {
        return;
      }
      if (message?.type === "ping") {
        socket.send('{"type":"pong"}');
      } else if (message?.type === "hello") {
        this._attempt = 0;
        this.epoch = message.epoch ?? null;
        this._setState("open");
        this.dispatchEvent(new CustomEvent("hello", { detail: message }));
      } else if (message && typeof message === "object") {
        this.dispatchEvent(new CustomEvent("message", { detail: message }));
      }
    };
    socket.onclose = () => {
      if (socket === this._socket) this._lost();
    };
    socket.onerror = () => undefined;
  }

  /** @private */
  _lost() {
    const refused = this.state === "connecting";
    this._drop();
    this._retryAt = this._now() + reconnectDelay(this._attempt, this._random);
    this._attempt += 1;
    this._setState("waiting");
    if (refused && this._probe) this._probe().catch(() => undefined);
  }

  /** @private */
  _drop() {
    const socket = this._socket;
    this._socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = socket.onerror = null;
    try {
      socket.close();
    } catch {
      // a socket that never opened may refuse to close; it is unreachable now either way
    }
  }

  /** @private @param {LiveSocket["state"]} state */
  _setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
