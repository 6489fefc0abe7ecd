/** Who a conversation is with: agents of type `chat`. One comes with the server; plugins may bring more. Draws nothing. */

/**
 * @typedef {import("../api/types.js").Agent} Agent
 *
 * @typedef {object} ChatAgents
 * @property {Agent[]} offered  those to talk with; empty until they are known
 * @property {Agent | null} main  the one that comes with the server
 * @property {Agent | null} current  the chosen one; null when it is not among them, or not known yet
 * @property {boolean} missing  the chosen one is not there any more
 */

/**
 * @param {Agent[] | null} all  as the server lists them; null: not known yet
 * @param {string | null | undefined} chosen  id of the conversation's agent; none is the main one
 * @returns {ChatAgents}
 */
export function chatAgents(all, chosen) {
  const offered = (all ?? []).filter((agent) => agent.type === "chat");
  const main = offered.find((agent) => agent.plugin === null) ?? null;
  const current = chosen ? (offered.find((agent) => agent.id === chosen) ?? null) : main;
  return { offered, main, current, missing: Boolean(chosen) && all !== null && current === null };
}
