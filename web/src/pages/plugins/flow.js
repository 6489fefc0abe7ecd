/**
 * `<sk-plugin-flow>`: install, upgrade, uninstall, purge. First a plan, which changes nothing; then consent with the
 * password; then the change with its steps and log. Which job is looked at is in the address (`?job=`), so a reload comes back
 * to it; closing the dialog stops nothing.
 */
import { css, html, nothing } from "lit";
import { ApiError } from "../../api/index.js";
import { t } from "../../i18n/index.js";
import { app } from "../../core/app-state.js";
import { navigate, router } from "../../core/router.js";
import { hasEnded } from "../../core/job-steps.js";
import { pluginJobs } from "../../core/plugin-jobs.js";
import { Watch } from "../../core/watch.js";
import { SkElement } from "../../ui/base.js";
import { describeError } from "../../ui/states.js";
import "../../ui/command-line.js";
import "../../ui/dialog.js";
import "../../ui/states.js";
import "./job-view.js";
import "./plan-view.js";

/** @typedef {import("../../api/types.js").Job} Job */
/** @typedef {import("../../api/types.js").JobAct} JobAct */
/** @typedef {{act: JobAct, requirement?: string, plugin?: string, title?: string}} Wish  `title` is for people */

export class SkPluginFlow extends SkElement {
  static properties = {
    _open: { state: true },
    _wish: { state: true },
    _jobId: { state: true },
    _error: { state: true },
    _stale: { state: true },
    _password: { state: true },
    _passwordError: { state: true },
    _typed: { state: true },
    _busy: { state: true },
  };

  constructor() {
    super();
    this._open = false;
    /** @type {Wish | null} */ this._wish = null;
    /** @type {string | null} */ this._jobId = null;
    /** @private the plan that was agreed to, for what the change says at its end @type {Job | null} */ this._planned = null;
    this._error = "";
    /** planning again may help */ this._stale = false;
    this._password = "";
    this._passwordError = "";
    this._typed = "";
    this._busy = false;
    new Watch(this, pluginJobs);
    new Watch(this, router, ["change"], () => this._followAddress());
  }

  connectedCallback() {
    super.connectedCallback();
    this._followAddress();
  }

  /**
   * Plan a change and show what it would do.
   * @param {Wish} wish
   */
  async begin(wish) {
    this._clear();
    this._wish = wish;
    this._open = true;
    const { title: _, ...body } = wish;
    try {
      const job = await pluginJobs.plan(body);
      if (this._wish !== wish || !this._open) return;
      this._jobId = job.id;
      this._toAddress();
    } catch (error) {
      if (this._wish !== wish) return;
      this._error = describeError(error);
      if (error instanceof ApiError && error.body.command) this._command = String(error.body.command);
    }
  }

  /** Look at a job that is known already. @param {Job} job */
  look(job) {
    this._clear();
    this._jobId = job.id;
    this._open = true;
    this._toAddress();
  }

  /** @private what to run by hand, when the refusal said so */
  _command = "";

  /** @private */
  _clear() {
    this._wish = null;
    this._jobId = null;
    this._planned = null;
    this._error = "";
    this._command = "";
    this._stale = false;
    this._password = "";
    this._passwordError = "";
    this._typed = "";
    this._busy = false;
  }

  /** @private */
  _toAddress() {
    const url = new URL(location.href);
    if (this._jobId) {
      url.searchParams.set("job", this._jobId);
    } else {
      url.searchParams.delete("job");
    }
    if (url.href !== location.href) void navigate(url.pathname + url.search, { replace: true });
  }

  /** @private */
  _followAddress() {
    const query = new URLSearchParams(location.search);
    const id = query.get("job");
    if (!id || id === this._jobId) return;
    this._clear();
    this._jobId = id;
    this._open = true;
    pluginJobs.fetch(id).catch((error) => {
      if (this._jobId !== id) return;
      this._error = error instanceof ApiError && error.status === 404 ? t("job.forgotten") : describeError(error);
    });
  }

  /** @private @returns {Job | null} */
  get _job() {
    return this._jobId ? pluginJobs.get(this._jobId) : null;
  }

  /** @private @returns {JobAct} */
  get _act() {
    const job = this._job;
    if (job && job.act !== "plan") return job.act;
    return job?.plan?.act ?? this._wish?.act ?? "install";
  }

  /** @private what is changed, for people */
  get _name() {
    return this._wish?.title || this._job?.plugin || this._job?.requirement || this._wish?.plugin || this._wish?.requirement || "";
  }

  /** @private the word to type before data is deleted */
  get _word() {
    return this._job?.plugin || this._wish?.plugin || this._name;
  }

  /** @private */
  _closed() {
    this._open = false;
    this._clear();
    this._toAddress();
  }

  /** @private */
  async _agree() {
    const plan = this._job;
    if (!plan || this._busy) return;
    if (!this._password) {
      this._passwordError = t("flow.password_missing");
      this._focusPassword();
      return;
    }
    this._busy = true;
    this._error = "";
    this._passwordError = "";
    try {
      const job = await pluginJobs.start(plan.id, this._password);
      this._planned = plan;
      this._wish = { ...this._wish, act: this._act };
      this._jobId = job.id;
      this._password = "";
      this._toAddress();
    } catch (error) {
      const code = error instanceof ApiError ? error.code : "";
      if (code === "bad_password" || code === "bad_credentials") {
        this._passwordError = describeError(error);
        this._focusPassword();
      } else {
        this._error = describeError(error);
        this._stale = code === "plan_stale";
        if (error instanceof ApiError && error.body.command) this._command = String(error.body.command);
      }
    }
    this._busy = false;
  }

  /** @private */
  _focusPassword() {
    void this.updateComplete.then(() => /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("#password"))?.focus());
  }

  /** @private */
  _again() {
    const job = this._job;
    const wish = { ...this._wish, act: this._act, ...(job?.requirement ? { requirement: job.requirement } : {}), ...(job?.plugin && !job.requirement ? { plugin: job.plugin } : {}) };
    void this.begin(wish);
  }

  /** @private @param {Job} job */
  _consent(job) {
    const act = this._act;
    const brings = act === "install" || act === "upgrade" || act === "restore";
    const ready = act !== "purge" || this._typed.trim() === this._word;
    return html`${brings ? html`<sk-notice icon="shield-exclamation">${t("flow.trust")}</sk-notice>` : nothing}
      <form
        id="consent"
        @submit=${(/** @type {Event} */ e) => {
          e.preventDefault();
          if (ready) void this._agree();
        }}
      >
        ${act === "purge"
          ? html`<div>
              <label for="typed">${t("flow.type", { word: this._word })}</label>
              <input
                class="field"
                id="typed"
                autocomplete="off"
                autocapitalize="off"
                spellcheck="false"
                .value=${this._typed}
                @input=${(/** @type {Event} */ e) => (this._typed = /** @type {HTMLInputElement} */ (e.target).value)}
              />
            </div>`
          : nothing}
        <div>
          <input class="sr" autocomplete="username" tabindex="-1" aria-hidden="true" .value=${app.me?.username ?? ""} readonly />
          <label for="password">${t("flow.password")}</label>
          <input
            class="field"
            id="password"
            type="password"
            autocomplete="current-password"
            aria-invalid=${this._passwordError ? "true" : nothing}
            aria-describedby=${this._passwordError ? "password-error" : nothing}
            .value=${this._password}
            @input=${(/** @type {Event} */ e) => (this._password = /** @type {HTMLInputElement} */ (e.target).value)}
          />
          ${this._passwordError ? html`<p class="error" id="password-error" role="alert">${this._passwordError}</p>` : nothing}
        </div>
        <button type="submit" hidden></button>
      </form>
      <sk-button slot="actions" @click=${() => this._closed()}>${t("action.cancel")}</sk-button>
      <sk-button
        slot="actions"
        .variant=${brings ? "primary" : "danger"}
        ?busy=${this._busy}
        ?disabled=${!ready || Boolean(job.command)}
        @click=${() => /** @type {HTMLFormElement} */ (this.renderRoot.querySelector("#consent")).requestSubmit()}
        >${t(`flow.do.${act}`)}</sk-button
      >`;
  }

  /** @private @param {string} command */
  _advice(command) {
    return html`<sk-notice tone="wait" icon="terminal">${t("flow.advice")}</sk-notice>
      <sk-command-line .text=${command}></sk-command-line>`;
  }

  /** @private what stands in the dialog now */
  _body() {
    const job = this._job;
    const close = html`<sk-button slot="actions" @click=${() => this._closed()}>${t("action.close")}</sk-button>`;
    if (this._command && !job?.command) return html`${this._advice(this._command)} ${close}`;
    if (this._error && (!job || this._stale)) {
      return html`<sk-error .text=${this._error}></sk-error>
        ${close} ${this._stale ? html`<sk-button slot="actions" variant="primary" @click=${() => this._again()}>${t("flow.plan_again")}</sk-button>` : nothing}`;
    }
    if (!job || (job.act === "plan" && !hasEnded(job))) {
      return html`<sk-progress .label=${t("flow.planning")}></sk-progress>
        ${job ? html`<sk-job .job=${job} .steps=${false}></sk-job>` : nothing}
        <sk-button slot="actions" @click=${() => this._closed()}>${t("action.cancel")}</sk-button>`;
    }
    if (job.act === "plan") {
      if (job.state !== "done" || !job.plan) {
        return html`<sk-job .job=${job} .steps=${false}></sk-job>
          ${job.command ? this._advice(job.command) : nothing} ${close}
          <sk-button slot="actions" @click=${() => this._again()}>${t("action.try_again")}</sk-button>`;
      }
      return html`${this._error ? html`<sk-error .text=${this._error}></sk-error>` : nothing}
        <sk-plan .plan=${job.plan} .act=${this._act}></sk-plan>
        ${job.command ? html`${this._advice(job.command)} ${close}` : this._consent(job)}`;
    }
    const restart = job.state === "done" && (job.plan ?? this._planned?.plan)?.restart_needed;
    const opens = job.state === "done" && job.plugin && (job.act === "install" || job.act === "upgrade" || job.act === "restore");
    return html`<sk-job .job=${job}></sk-job>
      ${job.state === "running" ? html`<p class="faint">${t("flow.goes_on")}</p>` : nothing}
      ${job.state === "done" ? html`<sk-notice tone="done">${t(`flow.done.${job.act}`, { plugin: this._name })}</sk-notice>` : nothing}
      ${restart ? html`<sk-notice tone="wait" icon="arrow-repeat">${t("plug.restart")}</sk-notice>` : nothing}
      ${close}
      ${opens && location.pathname !== `/plugins/${job.plugin}`
        ? html`<sk-button slot="actions" variant="primary" @click=${() => this._leaveTo(`/plugins/${job.plugin}`)}>${t("flow.open")}</sk-button>`
        : nothing}`;
  }

  /** @private where it stands, for those who do not see it */
  _said() {
    const job = this._open ? this._job : null;
    if (!job) return "";
    if (job.act === "plan") return hasEnded(job) ? t("flow.planned") : t("flow.planning");
    return job.state === "running" ? t(`job.step.${job.step}`) : job.state === "done" ? t("job.ended_well") : t("job.failed");
  }

  /** @private @param {string} path */
  _leaveTo(path) {
    this._closed();
    void navigate(path);
  }

  render() {
    return html`<sk-dialog
      size="wide"
      .heading=${t(`flow.title.${this._act}`, { plugin: this._name })}
      .open=${this._open}
      @sk-close=${() => this._open && this._closed()}
    >
      ${this._open ? this._body() : nothing}
    </sk-dialog>
    <div class="sr" role="status">${this._said()}</div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      sk-dialog > :not([slot]) + :not([slot]) {
        margin-block-start: var(--s4);
      }
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
        max-inline-size: 24rem;
      }
      label {
        display: block;
        font-size: var(--size-s);
        font-weight: 550;
        margin-block-end: var(--s1);
      }
      .error {
        margin-block-start: var(--s1);
        color: var(--fail);
        font-size: var(--size-s);
      }
    `,
  ];
}

customElements.define("sk-plugin-flow", SkPluginFlow);

/** Read the jobs once, so that a page opened in the middle of one knows. */
export function readJobs() {
  if (!pluginJobs.loaded && app.can("plugin.manage")) void pluginJobs.load();
}
