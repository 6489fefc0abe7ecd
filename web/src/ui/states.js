/**
 * What a view shows when it has nothing to show: `<sk-empty>` (one sentence, one act), `<sk-error>` (cause, retry, details
 * to copy), `<sk-skeleton>` (the shape of what is loading), `<sk-progress>` and `<sk-notice>`.
 */
import { css, html, nothing } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";
import "./icon.js";

export class SkEmpty extends SkElement {
  static properties = { icon: {}, text: {} };

  constructor() {
    super();
    this.icon = "";
    this.text = "";
  }

  render() {
    return html`${this.icon ? html`<sk-icon name=${this.icon}></sk-icon>` : nothing}
      <p>${this.text}</p>
      <slot></slot>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        align-items: center;
        gap: var(--s3);
        padding: var(--s12) var(--s4);
        text-align: center;
        color: var(--text-soft);
      }
      sk-icon {
        --icon-size: 2rem;
        color: var(--text-faint);
      }
      p {
        max-inline-size: 28rem;
      }
    `,
  ];
}

customElements.define("sk-empty", SkEmpty);

/** The sentence to show for an error of any kind. @param {unknown} error */
export function describeError(error) {
  const e = /** @type {any} */ (error);
  if (e?.name === "ApiError") {
    if (e.detail) return String(e.detail);
    const key = `error.${e.code}`;
    const known = t(key);
    if (known !== key) return known;
    return e.status >= 500 ? t("error.server", { code: e.code }) : t("error.unknown", { code: e.code });
  }
  return t("error.app", { message: String(e?.message ?? e) });
}

export class SkError extends SkElement {
  static properties = { text: {}, details: {}, retry: { attribute: false }, compact: { type: Boolean } };

  constructor() {
    super();
    /** the cause, and what to do */ this.text = "";
    /** for copying, e.g. a traceback */ this.details = "";
    /** @type {(() => unknown) | null} */ this.retry = null;
    this.compact = false;
  }

  /** Fill from an error. @param {unknown} error */
  set error(error) {
    this.text = describeError(error);
    const e = /** @type {any} */ (error);
    this.details = e?.name === "ApiError" ? "" : String(e?.stack ?? "");
  }

  render() {
    return html`<div class="box" role="alert">
      <sk-icon name="exclamation-circle"></sk-icon>
      <div class="words">
        <p>${this.text}</p>
        ${this.details
          ? html`<details>
              <summary>${t("action.details")}</summary>
              <pre class="raw" tabindex="0">${this.details}</pre>
              <button class="btn small" @click=${() => navigator.clipboard.writeText(this.details)}>${t("action.copy_details")}</button>
            </details>`
          : nothing}
        <div class="acts">
          ${this.retry ? html`<button class="btn small" @click=${() => this.retry?.()}>${t("action.try_again")}</button>` : nothing}
          <slot></slot>
        </div>
      </div>
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .box {
        display: flex;
        gap: var(--s3);
        padding: var(--s3) var(--s4);
        border-radius: var(--radius-m);
        background: var(--fail-soft);
        font-size: var(--size-s);
      }
      sk-icon {
        color: var(--fail);
        margin-block-start: 0.1rem;
      }
      .words {
        flex: 1;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      summary {
        cursor: pointer;
        padding-block: var(--s2);
        color: var(--text-soft);
      }
      details .btn {
        margin-block-start: var(--s2);
      }
      .acts {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      .acts > .btn,
      .acts ::slotted(*) {
        margin-block-start: var(--s2);
      }
    `,
  ];
}

customElements.define("sk-error", SkError);

export class SkSkeleton extends SkElement {
  static properties = { lines: { type: Number }, shape: { reflect: true } };

  constructor() {
    super();
    this.lines = 3;
    /** @type {"lines" | "rows" | "cards"} */ this.shape = "lines";
  }

  render() {
    return html`<div aria-busy="true" role="status"><span class="sr">${t("state.loading")}</span>
      ${Array.from({ length: this.lines }, () => html`<div class="bit"></div>`)}</div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .bit {
        block-size: 0.9rem;
        margin-block: var(--s3);
        border-radius: 6px;
        background: var(--tint);
        animation: fade 1.4s ease-in-out infinite;
      }
      .bit:nth-child(3n) {
        inline-size: 72%;
      }
      .bit:nth-child(3n + 1) {
        inline-size: 94%;
      }
      :host([shape="rows"]) .bit {
        block-size: 2.25rem;
        inline-size: 100%;
        margin-block: var(--s2);
      }
      :host([shape="cards"]) .bit {
        block-size: 5.5rem;
        inline-size: 100%;
        margin-block: 0 var(--s3);
        border-radius: var(--radius-m);
      }
      @keyframes fade {
        50% {
          opacity: 0.5;
        }
      }
    `,
  ];
}

customElements.define("sk-skeleton", SkSkeleton);

export class SkProgress extends SkElement {
  static properties = { value: { type: Number }, max: { type: Number }, label: {}, detail: {} };

  constructor() {
    super();
    /** @type {number | null} null when it is not known */ this.value = null;
    this.max = 100;
    this.label = "";
    /** e.g. bytes so far, a rate */ this.detail = "";
  }

  render() {
    const known = this.value !== null && Number.isFinite(this.value);
    return html`${this.label || this.detail
        ? html`<div class="words"><span>${this.label}</span><span class="faint">${this.detail}</span></div>`
        : nothing}
      <progress max=${this.max} .value=${known ? /** @type {number} */ (this.value) : nothing} aria-label=${this.label || t("state.progress")}></progress>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .words {
        display: flex;
        justify-content: space-between;
        flex-wrap: wrap;
        gap: var(--s1) var(--s4);
        font-size: var(--size-s);
        font-variant-numeric: tabular-nums;
        margin-block-end: var(--s1);
      }
      progress {
        appearance: none;
        display: block;
        inline-size: 100%;
        block-size: 0.5rem;
        border: 0;
        border-radius: 999px;
        background: var(--tint-strong);
        overflow: hidden;
      }
      progress::-webkit-progress-bar {
        background: var(--tint-strong);
      }
      progress::-webkit-progress-value {
        background: var(--accent);
        border-radius: 999px;
        transition: inline-size var(--quick) linear;
      }
      progress::-moz-progress-bar {
        background: var(--accent);
        border-radius: 999px;
      }
      progress:indeterminate {
        animation: fade 1.2s ease-in-out infinite;
      }
      @keyframes fade {
        50% {
          opacity: 0.4;
        }
      }
    `,
  ];
}

customElements.define("sk-progress", SkProgress);

const NOTICE_ICONS = { info: "info-circle", wait: "exclamation-triangle", fail: "exclamation-circle", done: "check-circle" };

export class SkNotice extends SkElement {
  static properties = { tone: { reflect: true }, icon: {} };

  constructor() {
    super();
    /** @type {"info" | "wait" | "fail" | "done"} */ this.tone = "info";
    this.icon = "";
  }

  render() {
    return html`<sk-icon name=${this.icon || NOTICE_ICONS[this.tone]}></sk-icon>
      <div class="words"><slot></slot></div>
      <slot name="action"></slot>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2) var(--s3);
        padding: var(--s3) var(--s4);
        border-radius: var(--radius-m);
        background: var(--tint);
        font-size: var(--size-s);
        line-height: 1.5;
      }
      .words {
        flex: 1 1 14rem;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      :host([tone="wait"]) {
        background: var(--wait-soft);
      }
      :host([tone="wait"]) sk-icon {
        color: var(--wait);
      }
      :host([tone="fail"]) {
        background: var(--fail-soft);
      }
      :host([tone="fail"]) sk-icon {
        color: var(--fail);
      }
      :host([tone="done"]) {
        background: var(--done-soft);
      }
      :host([tone="done"]) sk-icon {
        color: var(--done);
      }
    `,
  ];
}

customElements.define("sk-notice", SkNotice);
