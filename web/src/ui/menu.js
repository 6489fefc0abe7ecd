/**
 * `<sk-menu label>`: a button (slot `trigger`, else an icon) that opens a list of acts. Arrow keys, Home, End, first letter
 * and Esc work; focus returns to the button. Uses the platform's popover, so nothing clips it.
 */
import { css, html, nothing } from "lit";
import { SkElement } from "./base.js";
import "./icon.js";

/**
 * @typedef {object} MenuItem
 * @property {string} label
 * @property {string} [icon]
 * @property {string} [help]  a second line
 * @property {string} [hint]  e.g. a shortcut
 * @property {boolean} [checked]  shows a mark; makes it a choice
 * @property {boolean} [danger]
 * @property {boolean} [disabled]
 * @property {boolean} [divider]  a line above
 * @property {() => unknown} run
 */

export class SkMenu extends SkElement {
  static properties = {
    label: {},
    icon: {},
    items: { attribute: false },
    align: {},
    small: { type: Boolean },
    _open: { state: true },
  };

  constructor() {
    super();
    this.label = "";
    this.icon = "three-dots";
    /** @type {MenuItem[]} */ this.items = [];
    /** @type {"start" | "end"} */ this.align = "start";
    this.small = false;
    this._open = false;
  }

  /** @private @returns {HTMLElement} */
  get _list() {
    return /** @type {HTMLElement} */ (this.renderRoot.querySelector("[popover]"));
  }

  /** @private @returns {HTMLButtonElement} */
  get _button() {
    return /** @type {HTMLButtonElement} */ (this.renderRoot.querySelector(".trigger"));
  }

  /** @private */
  _buttons() {
    return /** @type {HTMLButtonElement[]} */ ([...this.renderRoot.querySelectorAll('[role^="menuitem"]:not(:disabled)')]);
  }

  /** @private */
  _toggle() {
    if (this._open) this._list.hidePopover();
    else this._list.showPopover();
  }

  /** @private @param {any} event */
  async _toggled(event) {
    this._open = event.newState === "open";
    this.emit("sk-menu-toggle", this._open);
    if (this._open) {
      await this.updateComplete; // the items decide the size
      this._place();
      const checked = this._buttons().find((b) => b.getAttribute("aria-checked") === "true");
      (checked ?? this._buttons()[0])?.focus();
    }
  }

  /** @private */
  _place() {
    const list = this._list;
    const anchor = this._button.getBoundingClientRect();
    const size = list.getBoundingClientRect();
    const rtl = getComputedStyle(this).direction === "rtl";
    const fromStart = (this.align === "start") !== rtl;
    const left = fromStart ? anchor.left : anchor.right - size.width;
    const below = anchor.bottom + 4;
    const above = anchor.top - 4 - size.height;
    const top = below + size.height > innerHeight - 8 && above > 8 ? above : Math.max(8, Math.min(below, innerHeight - 8 - size.height));
    list.style.left = `${Math.max(8, Math.min(left, innerWidth - size.width - 8))}px`;
    list.style.top = `${top}px`;
  }

  /** @private @param {KeyboardEvent} event */
  _keys(event) {
    const buttons = this._buttons();
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (/** @type {ShadowRoot} */ (this.renderRoot).activeElement));
    /** @type {number | null} */
    let to = null;
    if (event.key === "ArrowDown") to = (at + 1) % buttons.length;
    else if (event.key === "ArrowUp") to = (at - 1 + buttons.length) % buttons.length;
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = buttons.length - 1;
    else if (event.key === "Tab") this._list.hidePopover();
    else if (event.key === "Escape") {
      event.preventDefault();
      this._list.hidePopover();
      this._button.focus();
    } else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) {
      const letter = event.key.toLowerCase();
      const order = [...buttons.slice(at + 1), ...buttons.slice(0, at + 1)];
      const match = order.find((b) => b.querySelector(".name")?.textContent?.trim().toLowerCase().startsWith(letter));
      if (match) to = buttons.indexOf(match);
    }
    if (to !== null) {
      event.preventDefault();
      buttons[to]?.focus();
    }
    event.stopPropagation();
  }

  /** @private @param {MenuItem} item */
  _run(item) {
    this._list.hidePopover();
    this._button.focus();
    item.run();
  }

  render() {
    const choices = this.items.some((item) => item.checked !== undefined);
    return html`<button
        class="trigger"
        aria-haspopup="menu"
        aria-expanded=${this._open ? "true" : "false"}
        aria-label=${this.label || nothing}
        title=${this.label || nothing}
        @click=${this._toggle}
        @keydown=${(/** @type {KeyboardEvent} */ event) => {
          if (event.key === "ArrowDown" && !this._open) {
            event.preventDefault();
            this._toggle();
          }
        }}
      >
        <slot name="trigger"><span class="btn plain icon ${this.small ? "small" : ""}"><sk-icon name=${this.icon}></sk-icon></span></slot>
      </button>
      <div popover role="menu" aria-label=${this.label || nothing} @toggle=${this._toggled} @keydown=${this._keys}>
        ${this._open
          ? this.items.map(
              (item) => html`${item.divider ? html`<hr />` : nothing}
                <button
                  role=${choices && item.checked !== undefined ? "menuitemradio" : "menuitem"}
                  aria-checked=${item.checked === undefined ? nothing : item.checked ? "true" : "false"}
                  class=${item.danger ? "danger" : ""}
                  ?disabled=${item.disabled ?? false}
                  @click=${() => this._run(item)}
                >
                  ${item.icon ? html`<sk-icon name=${item.icon}></sk-icon>` : nothing}
                  <span class="words"
                    ><span class="name" dir="auto">${item.label}</span>${item.help ? html`<span class="help">${item.help}</span>` : nothing}</span
                  >
                  ${item.hint ? html`<span class="hint">${item.hint}</span>` : nothing}
                  ${item.checked ? html`<sk-icon name="check-lg"></sk-icon>` : nothing}
                </button>`,
            )
          : nothing}
      </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: inline-block;
      }
      .trigger {
        display: block;
        padding: 0;
        border: 0;
        background: none;
        border-radius: var(--radius-s);
        cursor: pointer;
        max-inline-size: 100%;
      }
      [popover] {
        position: fixed;
        inset: auto;
        margin: 0;
        min-inline-size: 12rem;
        max-inline-size: min(22rem, calc(100vw - 1rem));
        max-block-size: min(24rem, calc(100dvh - 1rem));
        overflow-y: auto;
        padding: var(--s1);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--float);
        color: var(--text);
        box-shadow: var(--shadow);
      }
      [popover] button {
        display: flex;
        align-items: center;
        gap: var(--s2);
        inline-size: 100%;
        min-block-size: var(--control);
        padding: var(--s1) var(--s3);
        border: 0;
        border-radius: var(--radius-s);
        background: none;
        text-align: start;
        font-size: var(--size-s);
        cursor: pointer;
      }
      [popover] button:hover,
      [popover] button:focus-visible {
        background: var(--tint);
      }
      [popover] button:focus-visible {
        outline-offset: -2px;
      }
      [popover] button:disabled {
        color: var(--text-faint);
        cursor: default;
        background: none;
      }
      .words {
        flex: 1;
        min-inline-size: 0;
        display: flex;
        flex-direction: column;
        line-height: 1.35;
      }
      .name {
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .help {
        display: -webkit-box;
        -webkit-box-orient: vertical;
        -webkit-line-clamp: 3;
        line-clamp: 3;
        overflow: hidden;
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      .hint {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      .danger {
        color: var(--fail);
      }
      hr {
        border: 0;
        border-block-start: 1px solid var(--line);
        margin: var(--s1) 0;
      }
    `,
  ];
}

customElements.define("sk-menu", SkMenu);
