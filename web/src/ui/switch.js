/** `<sk-switch label help ?checked ?disabled>`: on or off, at once. Fires `change`. */
import { css, html, nothing } from "lit";
import { SkElement } from "./base.js";

export class SkSwitch extends SkElement {
  static shadowRootOptions = { ...SkElement.shadowRootOptions, delegatesFocus: true };
  static properties = {
    checked: { type: Boolean, reflect: true },
    disabled: { type: Boolean, reflect: true },
    label: {},
    help: {},
    hideLabel: { type: Boolean, attribute: "hide-label" },
  };

  constructor() {
    super();
    this.checked = false;
    this.disabled = false;
    this.label = "";
    this.help = "";
    this.hideLabel = false;
  }

  /** @private @param {Event} event */
  _change(event) {
    event.stopPropagation();
    this.checked = /** @type {HTMLInputElement} */ (event.target).checked;
    this.emit("change", this.checked);
  }

  render() {
    return html`<label>
      <input
        type="checkbox"
        role="switch"
        .checked=${this.checked}
        ?disabled=${this.disabled}
        aria-label=${this.hideLabel ? this.label : nothing}
        aria-describedby=${this.help ? "help" : nothing}
        @change=${this._change}
      />
      ${this.hideLabel
        ? nothing
        : html`<span class="words"><span>${this.label}</span>${this.help ? html`<span class="faint" id="help">${this.help}</span>` : nothing}</span>`}
    </label>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: inline-block;
      }
      label {
        display: flex;
        gap: var(--s3);
        align-items: flex-start;
        cursor: pointer;
        min-block-size: 1.5rem;
      }
      @media (pointer: coarse) {
        label {
          padding-block: 0.625rem;
        }
      }
      .words {
        display: flex;
        flex-direction: column;
        font-size: var(--size-s);
        line-height: 1.5;
      }
      input {
        appearance: none;
        flex: none;
        position: relative;
        margin: 0;
        inline-size: 2.5rem;
        block-size: 1.5rem;
        border-radius: 999px;
        background: var(--line-strong);
        cursor: pointer;
        transition: background var(--quick) var(--ease);
      }
      input::after {
        content: "";
        position: absolute;
        inset-block-start: 3px;
        inset-inline-start: 3px;
        inline-size: 1.125rem;
        block-size: 1.125rem;
        border-radius: 50%;
        background: var(--ground);
        transition: translate var(--quick) var(--ease);
      }
      input:checked {
        background: var(--accent);
      }
      input:checked::after {
        translate: 1rem 0;
      }
      :host(:dir(rtl)) input:checked::after {
        translate: -1rem 0;
      }
      input:disabled {
        opacity: 0.5;
        cursor: default;
      }
      @media (forced-colors: active) {
        input {
          border: 1px solid CanvasText;
        }
        input::after {
          background: CanvasText;
        }
      }
    `,
  ];
}

customElements.define("sk-switch", SkSwitch);
