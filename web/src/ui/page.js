/**
 * `<sk-page title purpose>`: the frame of every page beside the chat: title, one line of purpose, the primary act at the
 * right (slot `action`), content in cards or a table below. `<sk-card>` is a calm box with an optional heading.
 */
import { css, html, nothing } from "lit";
import { SkElement } from "./base.js";

export class SkPage extends SkElement {
  static properties = { title: {}, purpose: {}, back: {}, backLabel: { attribute: "back-label" } };

  constructor() {
    super();
    this.title = "";
    this.purpose = "";
    /** a path of the app that leads up */ this.back = "";
    this.backLabel = "";
    /** @private */ this._heading = "";
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("title") && this.title) {
      // A title attribute would be a tooltip over the whole page.
      this._heading = this.title;
      this.removeAttribute("title");
      this.emit("sk-page-title", this._heading);
    }
  }

  connectedCallback() {
    super.connectedCallback();
    if (this._heading) this.emit("sk-page-title", this._heading);
  }

  /** @param {string} name @param {string | null} old @param {string | null} value */
  attributeChangedCallback(name, old, value) {
    if (name === "title" && value === null) return;
    super.attributeChangedCallback(name, old, value);
  }

  render() {
    return html`<div class="frame">
      ${this.back ? html`<a class="back" href=${this.back}><span aria-hidden="true" class="arrow">←</span> ${this.backLabel}</a>` : nothing}
      <header>
        <div class="words">
          <h1 tabindex="-1">${this._heading}</h1>
          ${this.purpose ? html`<p class="soft">${this.purpose}</p>` : nothing}
        </div>
        <slot name="action"></slot>
      </header>
      <slot></slot>
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .frame {
        max-inline-size: 56rem;
        margin-inline: auto;
        padding: var(--s10) clamp(var(--s4), 4vw, var(--s10)) var(--s16);
        display: flex;
        flex-direction: column;
        gap: var(--s6);
      }
      header {
        display: flex;
        flex-wrap: wrap;
        align-items: flex-end;
        justify-content: space-between;
        gap: var(--s4);
      }
      .words {
        flex: 1 1 18rem;
        min-inline-size: 0;
      }
      h1 {
        font-size: var(--size-xl);
        line-height: var(--leading-tight);
        font-weight: 650;
        letter-spacing: -0.01em;
        outline-offset: 4px;
        overflow-wrap: anywhere;
      }
      h1:focus {
        outline: none;
      }
      .words p {
        margin-block-start: var(--s1);
      }
      /* A button of its own, as plugins' pages have, is as wide as its words. */
      slot:not([name])::slotted(sk-button) {
        align-self: flex-start;
      }
      .back {
        align-self: flex-start;
        margin-block-end: calc(-1 * var(--s3));
        font-size: var(--size-s);
        color: var(--text-soft);
        text-decoration: none;
        padding-block: var(--s1);
      }
      .back:hover {
        color: var(--text);
        text-decoration: underline;
      }
      :host(:dir(rtl)) .arrow {
        display: inline-block;
        scale: -1 1;
      }
      @media (max-width: 40rem) {
        .frame {
          padding-block-start: var(--s5);
        }
      }
    `,
  ];
}

customElements.define("sk-page", SkPage);

export class SkCard extends SkElement {
  static properties = { heading: {}, tone: { reflect: true } };

  constructor() {
    super();
    this.heading = "";
    /** @type {"" | "wait" | "fail" | "run" | "accent"} */ this.tone = "";
  }

  render() {
    return html`<section aria-label=${this.heading || nothing}>
      ${this.heading ? html`<h2>${this.heading}</h2>` : nothing}
      <slot></slot>
      <slot name="actions"></slot>
    </section>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      section {
        background: var(--surface);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        padding: var(--s5);
      }
      h2 {
        font-size: var(--size-m);
        font-weight: 650;
        margin-block-end: var(--s3);
      }
      slot[name="actions"] {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      slot[name="actions"]::slotted(*) {
        margin-block-start: var(--s4);
      }
      :host([tone="wait"]) section {
        background: var(--wait-soft);
        border-color: transparent;
      }
      :host([tone="fail"]) section {
        background: var(--fail-soft);
        border-color: transparent;
      }
      :host([tone="run"]) section {
        background: var(--run-soft);
        border-color: transparent;
      }
      :host([tone="accent"]) section {
        background: var(--accent-soft);
        border-color: transparent;
      }
      @media (max-width: 40rem) {
        section {
          padding: var(--s4);
        }
      }
    `,
  ];
}

customElements.define("sk-card", SkCard);
