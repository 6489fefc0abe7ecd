/** The one place that calls the server. Problem details (RFC 9457) become a typed {@link ApiError}. */

/**
 * What went wrong with a call.
 *
 * `code` is stable: the server's own, or `offline` (no answer at all), `timeout`, `bad_answer` (not the JSON expected).
 * `detail` is one sentence for people, already in their language when it comes from the server, else empty.
 */
export class ApiError extends Error {
  /** @param {{status: number, code: string, detail?: string, title?: string, body?: any}} problem */
  constructor(problem) {
    super(problem.detail || problem.title || problem.code);
    this.name = "ApiError";
    this.status = problem.status;
    this.code = problem.code;
    this.detail = problem.detail ?? "";
    this.title = problem.title ?? "";
    /** the whole problem object, e.g. `retry_after` */
    this.body = problem.body ?? {};
  }

  /** True when sending the same thing again may help: the server was not reached, or is in trouble of its own. */
  get retryable() {
    return this.status === 0 || this.status === 408 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** The session is gone, or the server started again and needs the password to open the person's data. */
const SIGNED_OUT = new Set(["not_signed_in", "locked"]);

/** Fires `signed-out` when a call is refused because the session ended, `reached` and `unreached` as the network goes. */
export const apiEvents = new EventTarget();

/**
 * @typedef {object} CallOptions
 * @property {Record<string, string | number | boolean | null | undefined>} [query]
 * @property {AbortSignal} [signal]
 * @property {number} [timeout]  milliseconds; 0 is none
 * @property {boolean} [keepalive]  may outlive the page
 * @property {unknown} [body]  for a DELETE that carries one
 * @property {boolean} [raw]  the body is text that is JSON already
 * @property {boolean} [quiet]  a 401 is the caller's business and opens no sign-in
 */

/**
 * @param {string} method
 * @param {string} path  same-origin path, usually `/api/…`
 * @param {unknown} [body]  sent as JSON
 * @param {CallOptions} [options]
 * @returns {Promise<any>} the parsed JSON, or null for an empty answer
 */
async function call(method, path, body, options = {}) {
  if (!path.startsWith("/") || path.startsWith("//")) throw new TypeError(`api path must be same-origin, got ${JSON.stringify(path)}`);
  const url = new URL(path, location.origin);
  for (const [key, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(key, String(value));
  }
  const timeout = options.timeout ?? 60_000;
  /** @type {AbortSignal[]} */
  const signals = [];
  if (options.signal) signals.push(options.signal);
  if (timeout) signals.push(AbortSignal.timeout(timeout));
  /** @type {Response} */
  let response;
  /** @type {string} */
  let text;
  try {
    response = await fetch(url, {
      method,
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? undefined : options.raw ? String(body) : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      keepalive: options.keepalive ?? false,
      signal: signals.length ? AbortSignal.any(signals) : undefined,
    });
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const timedOut = error instanceof DOMException && error.name === "TimeoutError";
    if (!timedOut) apiEvents.dispatchEvent(new Event("unreached"));
    throw new ApiError({ status: 0, code: timedOut ? "timeout" : "offline" });
  }
  apiEvents.dispatchEvent(new Event("reached"));
  /** @type {any} */
  let data = null;
  if (text) {
    try {
      data = JSON.parse(text);
    } catch {
      throw new ApiError({ status: response.status, code: response.ok ? "bad_answer" : `http_${response.status}` });
    }
  }
  if (!response.ok) {
    const problem = data && typeof data === "object" ? data : {};
    const error = new ApiError({
      status: response.status,
      code: typeof problem.code === "string" ? problem.code : `http_${response.status}`,
      detail: typeof problem.detail === "string" ? problem.detail : "",
      title: typeof problem.title === "string" ? problem.title : "",
      body: problem,
    });
    if (error.status === 401 && SIGNED_OUT.has(error.code) && !options.quiet) apiEvents.dispatchEvent(new Event("signed-out"));
    throw error;
  }
  return data;
}

/** Calls to the server: same origin, JSON in and out, errors as {@link ApiError}. */
export const api = {
  /** @param {string} path @param {CallOptions} [options] */
  get: (path, options) => call("GET", path, undefined, options),
  /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
  post: (path, body = {}, options = undefined) => call("POST", path, body, options),
  /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
  put: (path, body = {}, options = undefined) => call("PUT", path, body, options),
  /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
  patch: (path, body = {}, options = undefined) => call("PATCH", path, body, options),
  /** @param {string} path @param {CallOptions} [options] */
  delete: (path, options) => call("DELETE", path, options?.body, options),
};

/**
 * The same calls, below one plugin's own routes: `pluginApi("notes").get("items")` reads `/api/plugin/notes/items`.
 * @param {string} plugin  the plugin's id
 */
export function pluginApi(plugin) {
  /** @param {string} path */
  const full = (path) => `/api/plugin/${encodeURIComponent(plugin)}/${path.replace(/^\/+/, "")}`;
  return {
    /** @param {string} path @param {CallOptions} [options] */
    get: (path, options) => api.get(full(path), options),
    /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
    post: (path, body, options) => api.post(full(path), body, options),
    /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
    put: (path, body, options) => api.put(full(path), body, options),
    /** @param {string} path @param {unknown} [body] @param {CallOptions} [options] */
    patch: (path, body, options) => api.patch(full(path), body, options),
    /** @param {string} path @param {CallOptions} [options] */
    delete: (path, options) => api.delete(full(path), options),
  };
}
