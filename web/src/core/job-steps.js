/** How a change of what is installed stands, from what the server tells of it. Draws nothing and calls no server. */

/** @typedef {import("../api/types.js").Job} Job */

/** The steps of a job in order; `rollback` takes the place of what follows when something failed. */
const STEPS = /** @type {const} */ (["resolve", "download", "check", "switch", "start"]);

/** @param {Job | null | undefined} job */
export function hasEnded(job) {
  return job !== null && job !== undefined && job.state !== "running";
}

/**
 * How each step of a job stands.
 * @param {Job} job
 * @returns {{step: string, state: "done" | "now" | "next" | "failed"}[]}
 */
export function stepsOf(job) {
  const failed = job.state === "failed" || job.state === "rolled_back";
  const at = STEPS.indexOf(/** @type {any} */ (job.step));
  // A rollback began somewhere before its end: what was reached is in the log, not in the step.
  if (job.step === "rollback" || (failed && at < 0)) {
    return [{ step: "rollback", state: job.state === "running" ? "now" : job.state === "rolled_back" ? "done" : "failed" }];
  }
  return STEPS.map((step, i) => ({ step, state: job.state === "done" || i < at ? "done" : i === at ? (failed ? "failed" : "now") : "next" }));
}

/**
 * Whether news of a job are newer than what is known: an answer over HTTP may be older than the event that overtook it.
 * @param {Job | null} known @param {Job} fresh
 */
export function isNewer(known, fresh) {
  if (!known) return true;
  if (hasEnded(known) !== hasEnded(fresh)) return hasEnded(fresh);
  return hasEnded(fresh) || fresh.log.length >= known.log.length;
}
