/**
 * What an agent that a call was delegated to is doing, put together from `tool_progress` events: `{agent, title, step?, tool?,
 * text?}`. A `step` is a tool it used, a `text` a piece of what it wrote.
 */

/**
 * @typedef {{kind: "tool", tool: string, text: string} | {kind: "text", text: string}} AgentStep
 * @typedef {object} AgentWork
 * @property {string} agent
 * @property {string} title
 * @property {AgentStep[]} steps  oldest first
 * @property {number} dropped  steps that are not kept any more
 */

/** A helper may take hundreds of steps; what scrolled away long ago helps nobody. */
const KEEP = 200;
const KEEP_TEXT = 20_000;

/** @param {unknown} data @returns {boolean} whether a progress message is of this kind */
export function isAgentProgress(data) {
  return typeof data === "object" && data !== null && typeof (/** @type {any} */ (data).agent) === "string";
}

/**
 * The work with one more event in it; the old one is not changed.
 * @param {AgentWork | undefined} work @param {any} data
 * @returns {AgentWork}
 */
export function addProgress(work, data) {
  /** @type {AgentWork} */
  const before = work ?? { agent: data.agent, title: data.title ?? "", steps: [], dropped: 0 };
  let { steps, dropped } = before;
  const last = steps.at(-1);
  if (typeof data.tool === "string") steps = [...steps, { kind: "tool", tool: data.tool, text: String(data.step ?? "") }];
  else if (typeof data.text === "string" && data.text) {
    if (last?.kind === "text") steps = steps.with(-1, { kind: "text", text: (last.text + data.text).slice(-KEEP_TEXT) });
    else steps = [...steps, { kind: "text", text: data.text }];
  }
  if (steps.length > KEEP) {
    dropped += steps.length - KEEP;
    steps = steps.slice(-KEEP);
  }
  return { ...before, title: data.title || before.title, steps, dropped };
}

/** What it is at now, in one line. @param {AgentWork | undefined} work */
export function workSummary(work) {
  const last = work?.steps.at(-1);
  if (!last) return "";
  if (last.kind === "tool") return last.text || last.tool;
  return last.text.replace(/\s+/g, " ").trim().slice(-140);
}
