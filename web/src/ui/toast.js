/** Short words at the edge of the screen that go away by themselves, with at most one act, such as undo. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { t } from "../i18n/index.js";
import { describeError } from "./states.js";
import { SkElement } from "./base.js";
import "./icon.js";

/**
 * @typedef {object} Toast
 * @property {number} id
 * @property {string} text
 * @property {"info" | "done" | "fail"} tone
 * @property {{label: string, run: () => unknown} | null} action
 * @property {ReturnType<typeof setTimeout> | undefined} timer
 * @property {(() => unknown) | null} onClose
 */

export class SkToasts extends SkElement {
  static properties = { _items: { state: true } };

  constructor() {
    super();
    /** @type {Toast[]} */ this._items = [];
    this._next = 1;
  }

  /**
   * @param {string} text
   * @param {{tone?: Toast["tone"], action?: Toast["action"], ms?: number, onClose?: (() => unknown) | null}} [options]
   * @returns {() => void} takes it away
   */
  add(text, { tone = "info", action = null, ms = 5000, onClose = null } = {}) {
    const id = this._next++;
    const close = () => this._close(id);
    const timer = setTimeout(close, ms);
    this._items = [...this._items, { id, text, tone, action, timer, onClose }].slice(-4);
    return close;
  }

  /** @private @param {number} id */
  _close(id) {
    const item = this._items.find((i) => i.id === id);
    if (!item) return;
    clearTimeout(item.timer);
    this._items = this._items.filter((i) => i.id !== id);
    item.onClose?.();
  }

  render() {
    return html`<div role="status" aria-live="polite">
      ${repeat(
        this._items,
        (item) => item.id,
        (item) => html`<div class="toast ${item.tone}">
          ${item.tone === "info" ? nothing : html`<sk-icon name=${item.tone === "fail" ? "exclamation-circle" : "check-circle"}></sk-icon>`}
          <span>${item.text}</span>
          ${item.action
            ? html`<button
                class="btn plain small"
                @click=${() => {
                  const { run } = /** @type {NonNullable<Toast["action"]>} */ (item.action);
                  item.onClose = null;
                  this._close(item.id);
                  run();
                }}
              >
                ${item.action.label}
              </button>`
            : nothing}
          <button class="btn plain icon small" aria-label=${t("action.close")} @click=${() => this._close(item.id)}><sk-icon name="x-lg"></sk-icon></button>
        </div>`,
      )}
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        position: fixed;
        z-index: 60;
        inset-block-end: max(var(--s4), env(safe-area-inset-bottom));
        inset-inline: 0;
        display: flex;
        justify-content: center;
        pointer-events: none;
      }
      div[role] {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
        max-inline-size: min(30rem, calc(100vw - 2rem));
      }
      .toast {
        pointer-events: auto;
        display: flex;
        align-items: center;
        gap: var(--s2);
        padding: var(--s2) var(--s2) var(--s2) var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--float);
        box-shadow: var(--shadow);
        font-size: var(--size-s);
      }
      .toast span {
        flex: 1;
        overflow-wrap: anywhere;
      }
      .toast .btn:not(.icon) {
        color: var(--accent-text);
      }
      .fail sk-icon:first-child {
        color: var(--fail);
      }
      .done sk-icon:first-child {
        color: var(--done);
      }
    `,
  ];
}

customElements.define("sk-toasts", SkToasts);

/** @type {SkToasts | null} */
let host = null;

/**
 * @param {string} text
 * @param {Parameters<SkToasts["add"]>[1]} [options]
 * @returns {() => void} takes it away
 */
export function toast(text, options) {
  if (!host?.isConnected) {
    host = /** @type {SkToasts} */ (document.createElement("sk-toasts"));
    document.body.append(host);
  }
  return host.add(text, options);
}

/** Say what went wrong. @param {unknown} error */
export function toastError(error) {
  return toast(describeError(error), { tone: "fail", ms: 9000 });
}

/**
 * Do something that can be undone: it looks done at once, and is done when the toast goes away or the page closes.
 * @param {{text: string, commit: (closing: boolean) => unknown, undo: () => unknown}} act
 */
export function undoable({ text, commit, undo }) {
  let open = true;
  const leave = () => finish(true);
  /** @param {boolean} closing */
  const finish = (closing) => {
    if (!open) return;
    open = false;
    removeEventListener("pagehide", leave);
    commit(closing);
  };
  addEventListener("pagehide", leave);
  toast(text, {
    ms: 6000,
    onClose: () => finish(false),
    action: {
      label: t("action.undo"),
      run: () => {
        open = false;
        removeEventListener("pagehide", leave);
        undo();
      },
    },
  });
}
