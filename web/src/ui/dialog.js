/**
 * `<sk-dialog heading>`: a modal over everything, on the platform's own `<dialog>`: focus stays inside and returns, Esc
 * closes unless `locked`. Slot `actions` holds its buttons. `confirmDialog` asks one question.
 */
import { css, html, nothing, render } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";
import "./icon.js";

export class SkDialog extends SkElement {
  static properties = {
    heading: {},
    open: { type: Boolean, reflect: true },
    locked: { type: Boolean },
    size: { reflect: true },
  };

  constructor() {
    super();
    this.heading = "";
    this.open = false;
    /** true: only its own buttons close it */ this.locked = false;
    /** @type {"" | "wide"} */ this.size = "";
  }

  show() {
    this.open = true;
  }

  close() {
    this.open = false;
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (!changed.has("open")) return;
    const dialog = /** @type {HTMLDialogElement} */ (this.renderRoot.querySelector("dialog"));
    if (this.open && !dialog.open) {
      dialog.showModal();
      const first = /** @type {HTMLElement | null} */ (this.querySelector("[autofocus]"));
      first?.focus();
    } else if (!this.open && dialog.open) dialog.close();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.renderRoot.querySelector("dialog")?.close();
  }

  render() {
    return html`<dialog
      aria-labelledby="heading"
      @cancel=${(/** @type {Event} */ event) => {
        if (this.locked) event.preventDefault();
      }}
      @keydown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape" && this.locked) event.preventDefault();
        event.stopPropagation();
      }}
      @close=${() => {
        this.open = false;
        this.dispatchEvent(new CustomEvent("sk-close"));
      }}
      @click=${(/** @type {MouseEvent} */ event) => {
        if (!this.locked && event.target === event.currentTarget) this.close();
      }}
    >
      <div class="inner">
        <header>
          <h2 id="heading">${this.heading}</h2>
          ${this.locked
            ? nothing
            : html`<button class="btn plain icon small" aria-label=${t("action.close")} title=${t("action.close")} @click=${() => this.close()}>
                <sk-icon name="x-lg"></sk-icon>
              </button>`}
        </header>
        <div class="body"><slot></slot></div>
        <footer><slot name="actions"></slot></footer>
      </div>
    </dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: contents;
      }
      dialog {
        inline-size: min(28rem, calc(100vw - 2rem));
        max-block-size: calc(100dvh - 2rem);
        padding: 0;
        border: 1px solid var(--line);
        border-radius: var(--radius-l);
        background: var(--float);
        color: var(--text);
        box-shadow: var(--shadow);
        overflow: auto;
      }
      :host([size="wide"]) dialog {
        inline-size: min(44rem, calc(100vw - 2rem));
      }
      dialog::backdrop {
        background: var(--scrim);
      }
      .inner {
        padding: var(--s5);
      }
      header {
        display: flex;
        align-items: flex-start;
        justify-content: space-between;
        gap: var(--s3);
        margin-block-end: var(--s3);
      }
      h2 {
        font-size: var(--size-l);
        line-height: var(--leading-tight);
        font-weight: 650;
      }
      footer {
        display: flex;
        flex-wrap: wrap;
        justify-content: flex-end;
        gap: var(--s2);
      }
      footer ::slotted(*) {
        margin-block-start: var(--s5);
      }
      @media (max-width: 40rem) {
        dialog {
          margin-block-end: max(var(--s3), env(safe-area-inset-bottom));
        }
      }
    `,
  ];
}

customElements.define("sk-dialog", SkDialog);

/**
 * Ask one question. For what can be undone, do it and offer undo in a toast instead.
 * @param {{heading: string, text?: string, confirm: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export function confirmDialog({ heading, text = "", confirm, danger = false }) {
  return new Promise((resolve) => {
    const holder = document.createElement("div");
    document.body.append(holder);
    let answer = false;
    /** @param {Event} event */
    const close = (event) => /** @type {any} */ (/** @type {HTMLElement} */ (event.currentTarget).closest("sk-dialog")).close();
    render(
      html`<sk-dialog
        .heading=${heading}
        .open=${true}
        @sk-close=${() => {
          holder.remove();
          resolve(answer);
        }}
      >
        ${text ? html`<p>${text}</p>` : nothing}
        <sk-button slot="actions" @click=${close}>${t("action.cancel")}</sk-button>
        <sk-button
          slot="actions"
          autofocus
          .variant=${danger ? "danger" : "primary"}
          @click=${(/** @type {Event} */ event) => {
            answer = true;
            close(event);
          }}
          >${confirm}</sk-button
        >
      </sk-dialog>`,
      holder,
    );
  });
}
