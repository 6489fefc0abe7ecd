/**
 * What an agent that a call was delegated to is doing: the whole state, as the newest `tool_progress` of its call tells it
 * (docs/http-api.md). Draws nothing.
 */

/**
 * @typedef {object} AgentStep
 * @property {string | number} id
 * @property {string} tool
 * @property {string} title
 * @property {string} icon
 * @property {string} summary
 * @property {import("../api/types.js").Call["state"]} state
 * @property {string | null} agent  name of an agent below it that made the call
 *
 * @typedef {object} AgentWork
 * @property {string} agent
 * @property {string} name
 * @property {string} title
 * @property {string} text  what it is saying, its end
 * @property {string} step  its newest call in words
 * @property {AgentStep[]} steps  oldest first
 * @property {number} before  how many steps came earlier
 */

/**
 * @param {unknown} progress  of a call
 * @returns {AgentWork | null} null when it is a tool's own progress
 */
export function workOf(progress) {
  const data = /** @type {any} */ (progress);
  if (typeof data !== "object" || data === null || typeof data.agent !== "string") return null;
  return {
    agent: data.agent,
    name: typeof data.name === "string" ? data.name : "",
    title: typeof data.title === "string" ? data.title : "",
    text: typeof data.text === "string" ? data.text : "",
    step: typeof data.step === "string" ? data.step : "",
    steps: Array.isArray(data.steps) ? data.steps : [],
    before: Number(data.steps_before) || 0,
  };
}

/** What it is at now, in one line. @param {AgentWork} work */
export function workSummary(work) {
  return work.step || work.text.replace(/\s+/g, " ").trim().slice(-140) || work.title;
}
