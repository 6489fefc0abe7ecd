/**
 * `@skald/api`: what the app and plugin pages use to talk to the server.
 *
 * @module @skald/api
 */
import { api } from "./http.js";
import { LiveSocket } from "./live-socket.js";

export { api, apiEvents, ApiError, pluginApi } from "./http.js";

/** The tab's one socket. The shell starts it after sign-in. */
export const socket = new LiveSocket({
  url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/ws`,
  probe: () => api.get("/api/auth/me"),
});

/** @type {Map<string, Set<(event: any) => void>>} */
const listeners = new Map();

socket.addEventListener("message", (event) => {
  const message = /** @type {CustomEvent} */ (event).detail;
  const type = String(message.type ?? "");
  for (const [pattern, callbacks] of listeners) {
    if (pattern !== type && !(pattern.endsWith(".*") && type.startsWith(pattern.slice(0, -1)))) continue;
    for (const callback of [...callbacks]) {
      try {
        callback(message);
      } catch (error) {
        console.error(`a listener for ${type} failed`, error);
      }
    }
  }
});

/**
 * Hear live events of one type, e.g. `models_changed` or `plugin.notes.saved`; `plugin.notes.*` hears all of a plugin's.
 *
 * @param {string} type
 * @param {(event: any) => void} callback
 * @returns {() => void} call it to stop
 */
export function onEvent(type, callback) {
  let callbacks = listeners.get(type);
  if (!callbacks) listeners.set(type, (callbacks = new Set()));
  callbacks.add(callback);
  return () => {
    callbacks.delete(callback);
    if (!callbacks.size) listeners.delete(type);
  };
}

/**
 * Called when the live connection (re)opens: events may have been missed, so read again what you show.
 * @param {() => void} callback
 * @returns {() => void} call it to stop
 */
export function onReconnect(callback) {
  socket.addEventListener("hello", callback);
  return () => socket.removeEventListener("hello", callback);
}
