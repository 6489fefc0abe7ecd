/**
 * Changes of what is installed, as the server runs them: one store per tab, fed by `plugin_job` events and read again after a
 * reload or a lost connection. Fires `change`, and `ended` (detail: the job) when one that was running here has ended.
 */
import { api, onEvent, onReconnect } from "../api/index.js";
import { t } from "../i18n/index.js";
import { hasEnded, isNewer } from "./job-steps.js";

/** @typedef {import("../api/types.js").Job} Job */
/** @typedef {import("../api/types.js").JobAct} JobAct */

class PluginJobs extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, Job>} */ this._jobs = new Map();
    this.loaded = false;
    onEvent("plugin_job", (event) => this._take(event.job));
    onReconnect(() => this.loaded && void this.load());
  }

  /** The change under way, if there is one; plans change nothing. @returns {Job | null} */
  get running() {
    return [...this._jobs.values()].find((job) => job.state === "running" && job.act !== "plan") ?? null;
  }

  /** @param {string} id */
  get(id) {
    return this._jobs.get(id) ?? null;
  }

  /** Read what the server knows; errors are left to the next try, since the page works without. */
  async load() {
    try {
      const jobs = /** @type {Job[]} */ (await api.get("/api/plugins/jobs"));
      this.loaded = true;
      for (const job of jobs) this._take(job);
      const known = new Set(jobs.map((job) => job.id));
      // A server that started anew has forgotten what it was doing.
      for (const job of this._jobs.values()) if (!known.has(job.id) && !hasEnded(job)) this._take({ ...job, state: "failed", error: { message: t("job.lost") } });
    } catch {
      // the next event or reconnect tells
    }
  }

  /**
   * One job, asked for by its id.
   * @param {string} id @returns {Promise<Job>} rejects with ApiError, e.g. when the server forgot it
   */
  async fetch(id) {
    const job = /** @type {Job} */ (await api.get(`/api/plugins/jobs/${encodeURIComponent(id)}`));
    this._take(job);
    return job;
  }

  /** @param {{act: JobAct, requirement?: string, plugin?: string}} wish @returns {Promise<Job>} */
  async plan(wish) {
    const job = await api.post("/api/plugins/plans", wish);
    this._take(job);
    return job;
  }

  /** @param {string} plan  id of the plan @param {string} password @returns {Promise<Job>} */
  async start(plan, password) {
    const job = await api.post("/api/plugins/jobs", { plan, password }, { timeout: 120_000 });
    this._take(job);
    return job;
  }

  /** @private @param {Job} job */
  _take(job) {
    const known = this._jobs.get(job.id);
    if (!isNewer(known ?? null, job)) return;
    this._jobs.set(job.id, job);
    if (known?.state === "running" && hasEnded(job)) this.dispatchEvent(new CustomEvent("ended", { detail: job }));
    this.dispatchEvent(new Event("change"));
  }
}

export const pluginJobs = new PluginJobs();
