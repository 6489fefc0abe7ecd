/** `<sk-markdown>`: Markdown as it arrives. The only component that puts HTML made from text on the page. */
import { css } from "lit";
import { i18n, t } from "../i18n/index.js";
import { SkElement } from "../ui/base.js";
import { BlockSplitter } from "./blocks.js";
import { renderBlock } from "./render.js";
import { createSanitiser } from "./sanitise.js";

/** @type {((html: string) => DocumentFragment) | null} */
let sanitise = null;
/** @type {Promise<typeof import("./highlight.js")> | null} */
let highlighter = null;

const SLOW_FRAME_MS = 6;

export class SkMarkdown extends SkElement {
  static properties = {
    text: { attribute: false, noAccessor: true },
    streaming: { type: Boolean, reflect: true },
  };

  constructor() {
    super();
    this.streaming = false;
    /** @private */ this._text = "";
    /** @private */ this._splitter = new BlockSplitter();
    /** @private how many finished blocks are on the page */ this._drawn = 0;
    /** @private first node of the tail @type {Node | null} */ this._tail = null;
    /** @private */ this._frame = 0;
    /** @private */ this._rest = 0;
    /** @private */ this._locale = i18n.locale;
    /** @private */ this._seen = false;
  }

  get text() {
    return this._text;
  }

  set text(value) {
    if (value === this._text) return;
    this._text = value;
    this._schedule();
  }

  connectedCallback() {
    super.connectedCallback();
    this._schedule();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    cancelAnimationFrame(this._frame);
    this._frame = 0;
  }

  firstUpdated() {
    this.renderRoot.addEventListener("click", (event) => this._click(/** @type {MouseEvent} */ (event)));
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (this._locale !== i18n.locale) {
      this._locale = i18n.locale;
      this._drawn = 0;
      this._splitter = new BlockSplitter();
    }
    if (!this._seen || changed.has("streaming")) this._draw();
  }

  /** @private */
  _schedule() {
    if (!this.hasUpdated) return;
    if (!this.streaming) {
      this._draw();
      return;
    }
    if (this._frame) return;
    const step = () => {
      // A tail that is slow to draw (a long table) is drawn less often, so that typing and scrolling stay smooth.
      if (this._rest > 0) {
        this._rest -= 1;
        this._frame = requestAnimationFrame(step);
        return;
      }
      this._frame = 0;
      const before = performance.now();
      this._draw();
      const spent = performance.now() - before;
      this._rest = spent > SLOW_FRAME_MS ? Math.min(30, Math.round(spent / 3)) : 0;
    };
    this._frame = requestAnimationFrame(step);
  }

  /** @private */
  _draw() {
    this._seen = true;
    const root = this._body();
    if (!this._splitter.update(this._text) || this._drawn === 0) {
      this._drawn = 0;
      this._tail = null;
      root.replaceChildren();
    }
    const { done, open } = this._splitter;
    while (this._tail) {
      /** @type {Node | null} */
      const next = this._tail.nextSibling;
      this._tail.parentNode?.removeChild(this._tail);
      this._tail = next;
    }
    for (; this._drawn < done.length; this._drawn++) root.append(this._block(done[this._drawn], true));
    const tail = document.createDocumentFragment();
    open.forEach((block) => tail.append(this._block(block, !this.streaming)));
    this._tail = tail.firstChild;
    root.append(tail);
  }

  /** @private @returns {HTMLElement} */
  _body() {
    let body = /** @type {HTMLElement | null} */ (this.renderRoot.querySelector(".prose"));
    if (!body) {
      body = document.createElement("div");
      body.className = "prose";
      body.dir = "auto";
      this.renderRoot.append(body);
    }
    return body;
  }

  /** @private @param {import("./blocks.js").Block} block @param {boolean} finished */
  _block(block, finished) {
    sanitise ??= createSanitiser(window);
    const labels = { image: (/** @type {string} */ host) => t("markdown.image", { host }), copy: t("action.copy") };
    const fragment = sanitise(renderBlock(block, labels));
    if (finished) {
      for (const code of fragment.querySelectorAll("code[data-lang]")) void this._colour(/** @type {HTMLElement} */ (code));
    }
    return fragment;
  }

  /** @private @param {HTMLElement} code */
  async _colour(code) {
    const language = code.dataset.lang ?? "";
    if (!language) return;
    highlighter ??= import("./highlight.js");
    try {
      const coloured = (await highlighter).highlight(code.textContent ?? "", language);
      if (coloured) code.replaceChildren(coloured);
    } catch {
      highlighter = null; // offline: plain code is fine, the next block tries again
    }
  }

  /** @private @param {MouseEvent} event */
  async _click(event) {
    const target = /** @type {Element} */ (event.target);
    const button = /** @type {HTMLButtonElement | null} */ (target.closest?.('button[data-act="copy-code"]'));
    if (!button) return;
    const code = button.closest(".code")?.querySelector("code");
    await navigator.clipboard.writeText(code?.textContent ?? "");
    button.textContent = t("action.copied");
    setTimeout(() => (button.textContent = t("action.copy")), 1600);
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        overflow-wrap: anywhere;
      }
      .prose > :first-child {
        margin-block-start: 0;
      }
      .prose > :last-child {
        margin-block-end: 0;
      }
      p,
      ul,
      ol,
      blockquote,
      .code,
      .table {
        margin-block: 0 var(--s4);
      }
      h1,
      h2,
      h3,
      h4,
      h5,
      h6 {
        margin-block: var(--s6) var(--s2);
        line-height: var(--leading-tight);
        font-size: var(--size-m);
        font-weight: 650;
      }
      h1 {
        font-size: var(--size-l);
      }
      h2 {
        font-size: 1.125rem;
      }
      ul,
      ol {
        padding-inline-start: 1.5rem;
      }
      li {
        margin-block: var(--s1);
      }
      li > p {
        margin-block: var(--s2);
      }
      li::marker {
        color: var(--text-faint);
      }
      li > ul,
      li > ol {
        margin-block: var(--s1);
      }
      blockquote {
        margin-inline: 0;
        padding-inline-start: var(--s4);
        border-inline-start: 3px solid var(--line);
        color: var(--text-soft);
      }
      hr {
        border: 0;
        border-block-start: 1px solid var(--line);
        margin-block: var(--s6);
      }
      a {
        color: var(--accent-text);
        text-decoration-thickness: 1px;
        text-underline-offset: 3px;
      }
      a:hover {
        text-decoration-thickness: 2px;
      }
      code {
        font-family: var(--mono);
        font-size: 0.875em;
        background: var(--tint);
        padding: 0.1em 0.35em;
        border-radius: 5px;
      }
      .code {
        background: var(--sunken);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        overflow: hidden;
      }
      .code-head {
        display: flex;
        justify-content: space-between;
        align-items: center;
        padding: 0 var(--s1) 0 var(--s4);
        min-block-size: 2rem;
        font-size: var(--size-xs);
        color: var(--text-faint);
      }
      .code-head button {
        border: 0;
        background: none;
        color: var(--text-soft);
        font-size: var(--size-xs);
        padding: var(--s1) var(--s2);
        border-radius: var(--radius-s);
        cursor: pointer;
      }
      @media (pointer: coarse) {
        .code-head button {
          min-block-size: 2.75rem;
          min-inline-size: 2.75rem;
        }
      }
      .code-head button:hover {
        background: var(--tint);
        color: var(--text);
      }
      pre {
        margin: 0;
        padding: 0 var(--s4) var(--s3);
        overflow-x: auto;
        line-height: 1.55;
        tab-size: 4;
      }
      pre code {
        background: none;
        padding: 0;
        font-size: 0.84375rem;
        white-space: pre;
        overflow-wrap: normal;
      }
      .table {
        overflow-x: auto;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
      }
      table {
        border-collapse: collapse;
        inline-size: 100%;
        font-size: var(--size-s);
        font-variant-numeric: tabular-nums;
      }
      th,
      td {
        padding: var(--s2) var(--s3);
        text-align: start;
        vertical-align: top;
        border-block-end: 1px solid var(--line);
        overflow-wrap: normal;
      }
      th[align="center"],
      td[align="center"] {
        text-align: center;
      }
      th[align="right"],
      td[align="right"] {
        text-align: end;
      }
      thead th {
        background: var(--sunken);
        font-weight: 600;
        white-space: nowrap;
      }
      tbody tr:last-child td {
        border-block-end: 0;
      }
      .image-link span {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      :host([streaming]) .prose > :last-child::after {
        content: "";
        display: inline-block;
        inline-size: 0.5em;
        block-size: 1.05em;
        margin-inline-start: 2px;
        vertical-align: text-bottom;
        border-radius: 2px;
        background: var(--accent);
        animation: breathe 1.1s ease-in-out infinite;
      }
      :host([streaming]) .prose > :is(ul, ol, .code, .table):last-child::after {
        display: block;
        margin-block-start: var(--s1);
        margin-inline-start: var(--s4);
      }
      @keyframes breathe {
        50% {
          opacity: 0.25;
        }
      }
      @media (prefers-reduced-motion: reduce) {
        :host([streaming]) .prose > :last-child::after {
          animation: none;
        }
      }
      .hl-keyword,
      .hl-selector-tag,
      .hl-tag,
      .hl-deletion {
        color: var(--code-keyword);
      }
      .hl-string,
      .hl-regexp,
      .hl-addition,
      .hl-selector-attr {
        color: var(--code-string);
      }
      .hl-number,
      .hl-literal,
      .hl-symbol,
      .hl-bullet,
      .hl-variable,
      .hl-template-variable {
        color: var(--code-number);
      }
      .hl-title,
      .hl-section,
      .hl-name,
      .hl-selector-id,
      .hl-selector-class {
        color: var(--code-title);
      }
      .hl-type,
      .hl-built_in,
      .hl-attr,
      .hl-attribute,
      .hl-meta,
      .hl-property {
        color: var(--code-type);
      }
      .hl-comment,
      .hl-quote {
        color: var(--code-comment);
        font-style: italic;
      }
      .hl-emphasis {
        font-style: italic;
      }
      .hl-strong {
        font-weight: 650;
      }
    `,
  ];
}

customElements.define("sk-markdown", SkMarkdown);
