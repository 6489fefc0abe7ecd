/** `<sk-button variant="primary|danger|plain" icon="…" ?busy ?disabled>`: a button that says what it does. */
import { css, html, nothing } from "lit";
import { SkElement } from "./base.js";
import "./icon.js";

export class SkButton extends SkElement {
  static formAssociated = true;
  static shadowRootOptions = { ...SkElement.shadowRootOptions, delegatesFocus: true };
  static properties = {
    variant: {},
    icon: {},
    label: {},
    type: {},
    size: {},
    busy: { type: Boolean, reflect: true },
    disabled: { type: Boolean, reflect: true },
  };

  constructor() {
    super();
    /** @type {"" | "primary" | "danger" | "plain"} */ this.variant = "";
    this.icon = "";
    /** names the button when it shows only an icon */ this.label = "";
    /** @type {"button" | "submit"} */ this.type = "button";
    /** @type {"" | "small"} */ this.size = "";
    this.busy = false;
    this.disabled = false;
    /** @private */ this._internals = this.attachInternals();
  }

  /** @private */
  _click() {
    if (this.type === "submit") this._internals.form?.requestSubmit();
  }

  render() {
    const only = this.icon && this.label && !this.textContent?.trim();
    return html`<button
      type="button"
      class="btn ${this.variant} ${this.size} ${only ? "icon" : ""}"
      ?disabled=${this.disabled || this.busy}
      aria-busy=${this.busy ? "true" : nothing}
      aria-label=${this.label || nothing}
      title=${only ? this.label : nothing}
      @click=${this._click}
    >
      ${this.busy ? html`<span class="spin" aria-hidden="true"></span>` : this.icon ? html`<sk-icon name=${this.icon}></sk-icon>` : nothing}
      <slot></slot>
    </button>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: inline-block;
      }
      .btn {
        inline-size: 100%;
      }
      .spin {
        inline-size: 1em;
        block-size: 1em;
        border: 2px solid currentColor;
        border-inline-end-color: transparent;
        border-radius: 50%;
        animation: spin 0.8s linear infinite;
      }
      @keyframes spin {
        to {
          rotate: 360deg;
        }
      }
    `,
  ];
}

customElements.define("sk-button", SkButton);
