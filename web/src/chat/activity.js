/**
 * `<sk-activity .steps>`: all reasoning and tool steps of a turn, folded into one line with a live verb, a count and a
 * clock. Opened, each step shows what it did, its input, its output and its time.
 */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { i18n, t, tt } from "../i18n/index.js";
import { prefs } from "../core/prefs.js";
import { SkElement } from "../ui/base.js";
import { toolIcon } from "./tool-icon.js";
import { workOf, workSummary } from "./agent-work.js";
import { reasoningSummary } from "./turns.js";
import "../markdown/markdown.js";
import "../ui/icon.js";
import "./diff-view.js";

/**
 * @typedef {import("./turns.js").Step} Step
 * @typedef {import("../api/types.js").Call} Call
 */

const LONG = 4000;

const STATE_ICONS = { running: "arrow-repeat", awaiting: "hourglass-split", done: "check-lg", failed: "exclamation-circle", cancelled: "slash-circle", rejected: "x-circle" };

/** What a running tool says of itself, such as the step a helper is at; else its summary. @param {Call} call */
function doing(call) {
  const work = call.state === "running" || call.state === "awaiting" ? workOf(call.progress) : null;
  if (work) return workSummary(work);
  const progress = /** @type {any} */ (call.progress);
  const said = call.state === "running" && progress && typeof progress === "object" ? (progress.step ?? progress.message ?? progress.text) : "";
  return (typeof said === "string" && said.trim()) || call.summary || call.path || "";
}

/** @param {string} raw */
function pretty(raw) {
  try {
    return JSON.stringify(JSON.parse(raw), null, 2);
  } catch {
    return raw;
  }
}

export class SkActivity extends SkElement {
  static properties = {
    steps: { attribute: false },
    live: { type: Boolean },
    startedAt: { attribute: false },
    _open: { state: true },
    _openSteps: { state: true },
    _whole: { state: true },
    _now: { state: true },
  };

  constructor() {
    super();
    /** @type {Step[]} */ this.steps = [];
    /** the turn goes on */ this.live = false;
    /** seconds since the epoch, when the running turn began @type {number | null} */ this.startedAt = null;
    /** null: as the preference says @type {boolean | null} */ this._open = null;
    /** @type {Set<string>} */ this._openSteps = new Set();
    /** steps shown without a cut @type {Set<string>} */ this._whole = new Set();
    this._now = Date.now();
    /** @private @type {ReturnType<typeof setInterval> | undefined} */ this._clock = undefined;
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (changed.has("live")) this._tick();
  }

  connectedCallback() {
    super.connectedCallback();
    this._tick();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this._clock);
  }

  /** @private */
  _tick() {
    clearInterval(this._clock);
    if (!this.live) return;
    this._now = Date.now();
    this._clock = setInterval(() => (this._now = Date.now()), 1000);
  }

  /** @private @returns {Step | null} the step under way */
  _current() {
    if (!this.live) return null;
    const running = this.steps.filter((s) => s.kind === "call" && s.call.state === "running");
    if (running.length) return running[running.length - 1];
    const last = this.steps.at(-1);
    return last?.kind === "reasoning" && last.live ? last : null;
  }

  /** @private */
  _waiting() {
    return this.steps.some((s) => s.kind === "call" && s.call.state === "awaiting");
  }

  /** @private milliseconds spent in these steps */
  _spent() {
    let ms = 0;
    /** @type {Set<unknown>} */
    const counted = new Set();
    for (const step of this.steps) {
      if (step.kind === "call") {
        ms += step.call.duration_ms ?? 0;
        if (!counted.has(step.message.id)) {
          counted.add(step.message.id);
          ms += step.message.duration_ms ?? 0;
        }
      } else if (step.ms) ms += step.ms;
    }
    return ms;
  }

  /** @private @param {Call} call */
  _name(call) {
    return tt(call.title) || call.name;
  }

  /** @private */
  _line() {
    const calls = this.steps.filter((s) => s.kind === "call");
    const current = this._current();
    if (this._waiting()) return { icon: "hourglass-split", tone: "wait", words: t("activity.waiting"), more: "" };
    if (current?.kind === "call") return { icon: "", tone: "run", words: this._name(current.call), more: doing(current.call) };
    if (current?.kind === "reasoning") return { icon: "", tone: "run", words: t("activity.thinking"), more: reasoningSummary(current.text) };
    const failed = calls.filter((s) => s.kind === "call" && s.call.state === "failed").length;
    const refused = calls.filter((s) => s.kind === "call" && s.call.state === "rejected").length;
    const stopped = calls.filter((s) => s.kind === "call" && s.call.state === "cancelled").length;
    const notes = [
      failed ? t("activity.failed", { count: failed }) : "",
      refused ? t("activity.rejected", { count: refused }) : "",
      stopped ? t("activity.cancelled", { count: stopped }) : "",
    ].filter(Boolean);
    if (!calls.length) {
      const reasoning = this.steps[0];
      const ms = this._spent();
      return { icon: "lightbulb", tone: "", words: ms ? t("activity.thought_for", { time: i18n.duration(ms) }) : t("activity.thought"), more: reasoning?.kind === "reasoning" ? reasoningSummary(reasoning.text) : "" };
    }
    const only = calls.length === 1 && calls[0].kind === "call" ? calls[0].call : null;
    return {
      icon: failed ? "exclamation-circle" : refused ? "x-circle" : stopped ? "slash-circle" : "check-lg",
      tone: failed || refused ? "fail" : stopped ? "" : "done",
      words: only ? this._name(only) : t("activity.steps", { count: calls.length }),
      more: [only ? only.summary || only.path || "" : "", ...notes].filter(Boolean).join(" · "),
    };
  }

  /** @private @param {string} key */
  _toggleStep(key) {
    const next = new Set(this._openSteps);
    if (!next.delete(key)) next.add(key);
    this._openSteps = next;
  }

  /** @private @param {string} key @param {string} label @param {string} text */
  _raw(key, label, text) {
    const cut = text.length > LONG && !this._whole.has(key);
    return html`<div class="io">
      <div class="io-head">
        <span>${label}</span>
        <button class="btn plain small" @click=${() => navigator.clipboard.writeText(text)}><sk-icon name="copy"></sk-icon>${t("action.copy")}</button>
      </div>
      <pre class="raw" tabindex="0">${cut ? text.slice(0, LONG) : text}</pre>
      ${cut
        ? html`<button class="btn plain small" @click=${() => (this._whole = new Set(this._whole).add(key))}>${t("action.show_all", { size: i18n.bytes(text.length) })}</button>`
        : nothing}
    </div>`;
  }

  /** @private what an agent did, or does, for this call @param {Call} call */
  _work(call) {
    const work = workOf(call.progress);
    if (!work || !(work.steps.length || work.text)) return nothing;
    return html`<div class="work" role="group" aria-label=${t("activity.agent", { agent: tt(work.name) || work.agent })}>
      <p class="io-head"><span><sk-icon name="robot"></sk-icon> ${t("activity.agent", { agent: tt(work.name) || work.agent })}</span></p>
      ${work.before ? html`<p class="faint">${t("activity.agent_earlier", { count: work.before })}</p>` : nothing}
      <ol class="inner">
        ${repeat(
          work.steps,
          (step) => step.id,
          (step) =>
            html`<li>
              <sk-icon name=${toolIcon(step.icon)}></sk-icon>
              <span class="inner-tool" dir="auto">${tt(step.title) || step.tool}</span>
              <span class="faint inner-what" dir="auto">${step.agent ? `${step.agent}: ` : ""}${step.summary}</span>
              <sk-icon class="state ${step.state}" name=${STATE_ICONS[step.state] ?? "wrench"} .label=${t(`call.${step.state}`)}></sk-icon>
            </li>`,
        )}
      </ol>
      ${work.text ? html`<sk-markdown class="wrote" .text=${work.text}></sk-markdown>` : nothing}
    </div>`;
  }

  /** @private @param {Step} step */
  _step(step) {
    const open = this._openSteps.has(step.key);
    if (step.kind === "reasoning") {
      return html`<li>
        <button class="step" aria-expanded=${open ? "true" : "false"} @click=${() => this._toggleStep(step.key)}>
          <sk-icon name="lightbulb"></sk-icon>
          <span class="name">${step.live ? t("activity.thinking") : t("activity.thought")}</span>
          <span class="what" dir="auto">${reasoningSummary(step.text)}</span>
          <span class="time">${step.ms ? i18n.duration(step.ms) : nothing}</span>
          <sk-icon class="chevron" name="chevron-down"></sk-icon>
        </button>
        ${open ? html`<sk-markdown class="reasoning" .text=${step.text} ?streaming=${step.live}></sk-markdown>` : nothing}
      </li>`;
    }
    const { call } = step;
    const running = call.state === "running" || call.state === "awaiting";
    const ms = call.duration_ms ?? (running && call.started_at ? this._now - call.started_at : 0);
    const changes = /** @type {any} */ (call.display)?.changes;
    const diff = Array.isArray(changes) ? changes : /** @type {any} */ (call.display)?.diff ? [call.display] : [];
    return html`<li>
      <button class="step ${call.state}" aria-expanded=${open ? "true" : "false"} @click=${() => this._toggleStep(step.key)}>
        <sk-icon name=${toolIcon(call.icon)}></sk-icon>
        <span class="name" dir="auto">${this._name(call)}</span>
        <span class="what" dir="auto">${doing(call)}</span>
        <span class="time">${ms ? i18n.duration(ms) : nothing}</span>
        <sk-icon class="state" name=${STATE_ICONS[call.state] ?? "wrench"} .label=${t(`call.${call.state}`)}></sk-icon>
        <sk-icon class="chevron" name="chevron-down"></sk-icon>
      </button>
      ${open
        ? html`<div class="inside">
            ${this._work(call)} ${diff.map((/** @type {any} */ c) => html`<sk-diff .diff=${String(c.diff ?? "")} .path=${String(c.path ?? call.path ?? "")}></sk-diff>`)}
            ${this._raw(`${step.key}i`, t("activity.input", { tool: call.name }), pretty(call.arguments))}
            ${call.result !== null && call.result !== undefined && call.result !== ""
              ? this._raw(`${step.key}o`, t(`activity.output_${call.state === "failed" ? "error" : "ok"}`), call.result_kind === "json" ? pretty(call.result) : call.result)
              : html`<p class="faint">${running ? t(`call.${call.state}`) : t("activity.no_output")}</p>`}
          </div>`
        : nothing}
    </li>`;
  }

  render() {
    if (!this.steps.length) return nothing;
    const open = this._open ?? prefs.get("steps") === "open";
    const line = this._line();
    const calls = this.steps.filter((s) => s.kind === "call").length;
    const ms = this.live && this.startedAt ? this._now - this.startedAt * 1000 : this._spent();
    const showCount = this.live && calls > 1;
    return html`<div class="box ${open ? "open" : ""}">
      <button class="line ${line.tone}" aria-expanded=${open ? "true" : "false"} @click=${() => (this._open = !open)}>
        ${line.icon ? html`<sk-icon name=${line.icon}></sk-icon>` : html`<span class="pulse" aria-hidden="true"></span>`}
        <span class="name" dir="auto">${line.words}</span>
        ${line.more ? html`<span class="what" dir="auto">${line.more}</span>` : nothing}
        <span class="time">
          ${showCount ? html`<span>${t("activity.steps", { count: calls })}</span>` : nothing}
          ${ms > 0 && (calls || this.live) ? html`<span>${i18n.duration(ms)}</span>` : nothing}
        </span>
        <sk-icon class="chevron" name="chevron-down"></sk-icon>
      </button>
      ${open
        ? html`<ol>
            ${repeat(
              this.steps,
              (step) => step.key,
              (step) => this._step(step),
            )}
          </ol>`
        : nothing}
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        font-size: var(--size-s);
      }
      .box.open {
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
      }
      button.line,
      button.step {
        display: flex;
        align-items: center;
        gap: var(--s2);
        inline-size: 100%;
        min-block-size: 2rem;
        padding: var(--s1) var(--s2);
        border: 0;
        border-radius: var(--radius-s);
        background: none;
        color: var(--text-soft);
        text-align: start;
        cursor: pointer;
      }
      @media (pointer: coarse) {
        button.line,
        button.step {
          min-block-size: 2.75rem;
        }
      }
      button.line {
        margin-inline: calc(-1 * var(--s2));
        inline-size: calc(100% + 2 * var(--s2));
      }
      .open > button.line {
        margin-inline: 0;
        inline-size: 100%;
        padding-inline: var(--s3);
      }
      button.line:hover,
      button.step:hover {
        background: var(--tint);
      }
      .line > sk-icon:first-child,
      .step > sk-icon:first-child {
        --icon-size: 1.125rem;
        color: var(--text-faint);
      }
      .name {
        flex: none;
        max-inline-size: 60%;
        font-weight: 550;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .what {
        flex: 0 1 auto;
        min-inline-size: 0;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
        color: var(--text-faint);
      }
      .time {
        flex: none;
        display: inline-flex;
        gap: var(--s3);
        margin-inline-start: auto;
        padding-inline-start: var(--s2);
        color: var(--text-faint);
        font-size: var(--size-xs);
        font-variant-numeric: tabular-nums;
        white-space: nowrap;
      }
      .chevron {
        --icon-size: 0.9rem;
        color: var(--text-faint);
        transition: rotate var(--quick) var(--ease);
      }
      [aria-expanded="true"] > .chevron {
        rotate: 180deg;
      }
      .line.wait > sk-icon:first-child,
      .step.awaiting .state {
        color: var(--wait);
      }
      .line.done > sk-icon:first-child,
      .step.done .state {
        color: var(--done);
      }
      .line.fail > sk-icon:first-child,
      .step.failed .state,
      .step.rejected .state {
        color: var(--fail);
      }
      .step.running .state {
        color: var(--run);
      }
      .state {
        --icon-size: 1rem;
      }
      .pulse {
        flex: none;
        inline-size: 0.5rem;
        block-size: 0.5rem;
        margin-inline: 0.3rem;
        border-radius: 50%;
        background: var(--run);
        animation: pulse 1.3s ease-in-out infinite;
      }
      @keyframes pulse {
        50% {
          opacity: 0.3;
          scale: 0.8;
        }
      }
      ol {
        list-style: none;
        margin: 0;
        padding: var(--s1);
        border-block-start: 1px solid var(--line);
      }
      .inside {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
        padding: var(--s1) var(--s2) var(--s3) 2.1rem;
      }
      .work {
        padding: var(--s2) var(--s3);
        border-inline-start: 2px solid var(--line);
      }
      .work .io-head span {
        display: inline-flex;
        align-items: center;
        gap: var(--s1);
      }
      ol.inner {
        display: flex;
        flex-direction: column;
        gap: var(--s1);
        max-block-size: 20rem;
        overflow-y: auto;
        padding: 0;
        border: 0;
      }
      .inner li {
        display: flex;
        align-items: center;
        gap: var(--s2);
        min-inline-size: 0;
      }
      .inner li > sk-icon:first-child {
        --icon-size: 1rem;
        color: var(--text-faint);
      }
      .inner-tool {
        flex: none;
        font-weight: 550;
      }
      .inner-what {
        flex: 1;
        min-inline-size: 0;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .inner .done {
        color: var(--done);
      }
      .inner .failed,
      .inner .rejected {
        color: var(--fail);
      }
      .inner .running {
        color: var(--run);
      }
      .inner .awaiting {
        color: var(--wait);
      }
      .wrote {
        display: block;
        margin-block-start: var(--s2);
        max-block-size: 12rem;
        overflow-y: auto;
        color: var(--text-soft);
      }
      .reasoning {
        display: block;
        padding: var(--s1) var(--s3) var(--s3) 2.1rem;
        color: var(--text-soft);
        max-block-size: 24rem;
        overflow-y: auto;
      }
      .io-head {
        display: flex;
        justify-content: space-between;
        align-items: center;
        font-size: var(--size-xs);
        color: var(--text-faint);
      }
      .io-head .btn {
        font-size: var(--size-xs);
        font-weight: 400;
        color: var(--text-soft);
      }
      .io-head sk-icon {
        --icon-size: 1rem;
      }
    `,
  ];
}

customElements.define("sk-activity", SkActivity);
