/** Addresses of the app. Everything that can be looked at has one; Back works and a reload keeps the place. */

/**
 * @typedef {object} Route
 * @property {"chat" | "inbox" | "models" | "plugins" | "plugin" | "users" | "profile" | "my-plugins" | "page" | "setup" | "login" | "unknown"} name
 * @property {Record<string, string>} params
 * @property {string} path
 */

/** Fires `change` after `route` changed. */
export const router = new EventTarget();

/**
 * @param {string} path  a path without query or fragment
 * @returns {Route}
 */
export function parseRoute(path) {
  /** @type {string[]} */
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return { name: "unknown", params: {}, path };
  }
  const [first, second, third] = parts;
  /** @param {Route["name"]} name @param {Record<string, string>} [params] @returns {Route} */
  const route = (name, params = {}) => ({ name, params, path });
  if (parts.length === 0) return route("chat");
  if (first === "c" && parts.length === 2) return route("chat", { id: second });
  if (first === "plugins" && parts.length === 2) return route("plugin", { id: second });
  if (first === "profile" && second === "plugins" && parts.length <= 3) return route("my-plugins", third ? { id: third } : {});
  if (first === "page" && parts.length === 3) return route("page", { plugin: second, page: third });
  if (parts.length === 1 && ["inbox", "models", "plugins", "users", "profile", "setup", "login"].includes(first)) return route(/** @type {Route["name"]} */ (first));
  return route("unknown");
}

/** @type {Route} */
let current = parseRoute(location.pathname);

export function currentRoute() {
  return current;
}

/** @type {Set<() => boolean>} */
const guards = new Set();
/** @type {() => Promise<boolean>} */
let askToLeave = async () => true;

/**
 * Ask before leaving while something is unsaved.
 * @param {() => boolean} dirty
 * @returns {() => void} call it to stop guarding
 */
export function guardLeaving(dirty) {
  guards.add(dirty);
  return () => guards.delete(dirty);
}

/** The question itself; the shell sets it. @param {() => Promise<boolean>} ask */
export function setLeaveQuestion(ask) {
  askToLeave = ask;
}

function unsaved() {
  return [...guards].some((dirty) => dirty());
}

/** @returns {Promise<boolean>} */
async function mayLeave() {
  return !unsaved() || (await askToLeave());
}

let position = Number(history.state?.at ?? 0);
if (typeof history.state?.at !== "number") history.replaceState({ ...history.state, at: position }, "");

function moved() {
  current = parseRoute(location.pathname);
  router.dispatchEvent(new Event("change"));
}

/**
 * Go to a path of the app.
 * @param {string} path @param {{replace?: boolean}} [options]
 */
export async function navigate(path, { replace = false } = {}) {
  const url = new URL(path, location.origin);
  if (url.origin !== location.origin) throw new TypeError(`not a path of the app: ${JSON.stringify(path)}`);
  if (url.pathname !== location.pathname && !replace && !(await mayLeave())) return;
  if (url.href === location.href) return moved();
  if (replace) history.replaceState({ at: position }, "", url);
  else history.pushState({ at: (position += 1) }, "", url);
  moved();
}

let undoing = false;
addEventListener("popstate", async () => {
  if (undoing) {
    undoing = false;
    return;
  }
  const to = Number(history.state?.at ?? 0);
  if (unsaved() && !(await mayLeave())) {
    undoing = true;
    history.go(position - to || 1);
    return;
  }
  position = to;
  moved();
});

addEventListener("beforeunload", (event) => {
  if (unsaved()) event.preventDefault();
});

/** Links of the app change the address without loading a page. Listens on the document for clicks from any shadow root. */
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = /** @type {HTMLAnchorElement | undefined} */ (event.composedPath().find((node) => node instanceof HTMLAnchorElement));
  if (!link?.href || link.target === "_blank" || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || /^\/(?:api|assets|healthz)(?:\/|$)/.test(url.pathname)) return;
  if (url.pathname === location.pathname && url.hash) return;
  event.preventDefault();
  void navigate(url.pathname + url.search + url.hash);
});
