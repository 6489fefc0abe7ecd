/** `<sk-job .job>`: a change under way: its steps, its log as it grows, and how it ended. */
import { css, html, nothing } from "lit";
import { t } from "../../i18n/index.js";
import { stepsOf } from "../../core/job-steps.js";
import { SkElement } from "../../ui/base.js";
import "../../ui/icon.js";
import "../../ui/states.js";

/** @typedef {import("../../api/types.js").Job} Job */

const ICONS = { done: "check-circle", now: "arrow-repeat", next: "circle", failed: "x-circle" };

export class SkJob extends SkElement {
  static properties = { job: { attribute: false }, steps: { type: Boolean }, _log: { state: true } };

  constructor() {
    super();
    /** @type {Job} */ this.job = /** @type {any} */ (null);
    /** whether the steps are listed; a plan has none worth telling */ this.steps = true;
    /** the log is open: by itself when it failed @type {boolean | null} */ this._log = null;
  }

  updated() {
    const log = this.renderRoot.querySelector("pre");
    if (log && this.job.state === "running") log.scrollTop = log.scrollHeight;
  }

  render() {
    const { job } = this;
    if (!job) return nothing;
    const failed = job.state === "failed" || job.state === "rolled_back";
    return html`${this.steps
        ? html`<ol aria-label=${t("job.steps")}>
            ${stepsOf(job).map(
              ({ step, state }) =>
                html`<li class=${state} aria-current=${state === "now" ? "step" : nothing}>
                  <sk-icon class=${state === "now" ? "turning" : ""} name=${ICONS[state]}></sk-icon>${t(`job.step.${step}`)}<span class="sr">: ${t(`job.step_${state}`)}</span>
                </li>`,
            )}
          </ol>`
        : nothing}
      ${failed ? html`<sk-error .text=${job.error?.message || t("job.failed")}></sk-error>` : nothing}
      ${job.state === "rolled_back" ? html`<p class="faint">${t("job.rolled_back")}</p>` : nothing}
      ${job.log.length
        ? html`<details ?open=${this._log ?? failed} @toggle=${(/** @type {Event} */ e) => (this._log = /** @type {HTMLDetailsElement} */ (e.target).open)}>
            <summary>${t("job.log", { count: job.log.length })}</summary>
            <pre class="raw" tabindex="0" role="log" aria-live="off" aria-label=${t("job.log_label")}>${job.log.join("\n")}</pre>
            <button type="button" class="btn small" @click=${() => navigator.clipboard.writeText(job.log.join("\n"))}><sk-icon name="copy"></sk-icon>${t("job.copy_log")}</button>
          </details>`
        : nothing}`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
        font-size: var(--size-s);
      }
      ol {
        list-style: none;
        margin: 0;
        padding: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s1);
      }
      li {
        display: flex;
        align-items: center;
        gap: var(--s2);
        min-block-size: 1.75rem;
      }
      li sk-icon {
        --icon-size: 1.1rem;
      }
      .next {
        color: var(--text-faint);
      }
      .done sk-icon {
        color: var(--done);
      }
      .now {
        font-weight: 600;
      }
      .now sk-icon {
        color: var(--run);
      }
      .failed {
        color: var(--fail);
      }
      .turning {
        animation: turn 1.4s linear infinite;
      }
      @keyframes turn {
        to {
          rotate: 360deg;
        }
      }
      summary {
        cursor: pointer;
        color: var(--text-soft);
        padding-block: var(--s1);
      }
      pre.raw {
        max-block-size: 16rem;
      }
      details .btn {
        margin-block-start: var(--s2);
      }
      details .btn sk-icon {
        --icon-size: 0.9rem;
      }
    `,
  ];
}

customElements.define("sk-job", SkJob);
