/** `<sk-queue>`: messages that wait for the running turn; each can be changed or taken back. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { t } from "../i18n/index.js";
import { SkElement } from "../ui/base.js";
import "../ui/icon.js";

export class SkQueue extends SkElement {
  static properties = {
    queue: { attribute: false },
    sending: { attribute: false },
    _editing: { state: true },
    _text: { state: true },
  };

  constructor() {
    super();
    /** @type {import("../api/types.js").Queued[]} */ this.queue = [];
    /** on their way to the queue @type {import("./outbox.js").Entry[]} */ this.sending = [];
    /** @type {import("../api/types.js").Id | null} */ this._editing = null;
    this._text = "";
  }

  /** @private @param {import("../api/types.js").Queued} item */
  _edit(item) {
    this._editing = item.id;
    this._text = item.content;
    void this.updateComplete.then(() => /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("textarea"))?.focus());
  }

  /** @private */
  _save() {
    const content = this._text.trim();
    if (content) this.emit("sk-queue-edit", { id: this._editing, content });
    this._editing = null;
  }

  render() {
    if (!this.queue.length && !this.sending.length) return nothing;
    return html`<section aria-label=${t("queue.label")}>
      <h3>${t("queue.title", { count: this.queue.length + this.sending.length })}</h3>
      <ol>
        ${repeat(
          this.queue,
          (item) => item.id,
          (item) => html`<li>
            ${this._editing === item.id
              ? html`<textarea
                    class="field"
                    rows="2"
                    dir="auto"
                    aria-label=${t("queue.edit")}
                    .value=${this._text}
                    @input=${(/** @type {Event} */ e) => (this._text = /** @type {HTMLTextAreaElement} */ (e.target).value)}
                    @keydown=${(/** @type {KeyboardEvent} */ e) => {
                      if (e.isComposing) return;
                      if (e.key === "Escape") {
                        e.stopPropagation();
                        this._editing = null;
                      } else if (e.key === "Enter" && !e.shiftKey) {
                        e.preventDefault();
                        this._save();
                      }
                    }}
                  ></textarea>
                  <button class="btn small" @click=${this._save}>${t("action.save")}</button>`
              : html`<span class="text" dir="auto">${item.content}</span>
                  <button class="btn plain icon small" aria-label=${t("queue.edit")} title=${t("queue.edit")} @click=${() => this._edit(item)}><sk-icon name="pencil"></sk-icon></button>
                  <button
                    class="btn plain icon small"
                    aria-label=${t("queue.delete")}
                    title=${t("queue.delete")}
                    @click=${() => this.emit("sk-queue-delete", { id: item.id })}
                  >
                    <sk-icon name="trash"></sk-icon>
                  </button>`}
          </li>`,
        )}
        ${repeat(
          this.sending,
          (entry) => entry.client_id,
          (entry) => html`<li class="sending"><span class="text" dir="auto">${entry.content}</span><span class="faint">${t("queue.sending")}</span></li>`,
        )}
      </ol>
    </section>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      section {
        margin-block-end: var(--s2);
        padding: var(--s2) var(--s2) var(--s2) var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        font-size: var(--size-s);
      }
      h3 {
        font-size: var(--size-xs);
        font-weight: 550;
        color: var(--text-faint);
      }
      ol {
        list-style: none;
        margin: 0;
        padding: 0;
        max-block-size: 9rem;
        overflow-y: auto;
      }
      li {
        display: flex;
        align-items: center;
        gap: var(--s1);
        min-block-size: 1.875rem;
      }
      .text {
        flex: 1;
        min-inline-size: 0;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .sending {
        color: var(--text-soft);
        padding-inline-end: var(--s2);
      }
      sk-icon {
        --icon-size: 1rem;
      }
    `,
  ];
}

customElements.define("sk-queue", SkQueue);
