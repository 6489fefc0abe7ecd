/**
 * `<sk-secret-field>`: a secret in a form. A stored one is never shown: it is *set*, and may be replaced or removed. Fires
 * `sk-secret` with what the form should send: a text, `null` to remove, `undefined` to leave it as it is.
 */
import { css, html, nothing } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";
import "./icon.js";

export class SkSecretField extends SkElement {
  static shadowRootOptions = { ...SkElement.shadowRootOptions, delegatesFocus: true };
  static properties = {
    label: {},
    help: {},
    error: {},
    stored: { type: Boolean },
    removable: { type: Boolean },
    required: { type: Boolean },
    value: { attribute: false },
    _replacing: { state: true },
  };

  constructor() {
    super();
    this.label = "";
    this.help = "";
    this.error = "";
    /** the server holds one */ this.stored = false;
    /** a stored one may be taken away */ this.removable = false;
    this.required = false;
    /** what was chosen so far @type {string | null | undefined} */ this.value = undefined;
    this._replacing = false;
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("value") && this.value === undefined) this._replacing = false;
  }

  /** @private @param {string | null | undefined} value */
  _choose(value) {
    this.value = value;
    this.emit("sk-secret", value);
  }

  /** @private */
  async _replace() {
    this._replacing = true;
    await this.updateComplete;
    this.renderRoot.querySelector("input")?.focus();
  }

  /** @private */
  async _back() {
    this._replacing = false;
    this._choose(undefined);
    await this.updateComplete;
    /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("button"))?.focus();
  }

  /** @private */
  _notes() {
    return html`${this.help ? html`<p class="faint" id="help">${this.help}</p>` : nothing}
      ${this.error ? html`<p class="error" id="error" role="alert">${this.error}</p>` : nothing}`;
  }

  render() {
    const described = [this.help ? "help" : "", this.error ? "error" : ""].filter(Boolean).join(" ") || nothing;
    if (this.stored && !this._replacing) {
      const gone = this.value === null;
      return html`<div role="group" aria-labelledby="label" aria-describedby=${described}>
          <span id="label" class="label">${this.label}</span>
          <div class="line">
            <span class="chip ${gone ? "wait" : "done"}"><sk-icon name=${gone ? "trash" : "check-circle"}></sk-icon>${gone ? t("form.secret_going") : t("form.secret_set")}</span>
            ${gone
              ? html`<button type="button" class="btn small" @click=${this._back}>${t("action.undo")}</button>`
              : html`<button type="button" class="btn small" @click=${this._replace}>${t("form.secret_replace")}</button>
                  ${this.removable ? html`<button type="button" class="btn small danger" @click=${() => this._choose(null)}>${t("form.secret_remove")}</button>` : nothing}`}
          </div>
        </div>
        ${this._notes()}`;
    }
    return html`<label class="label" for="value">${this.label}${this.required || this.stored ? nothing : html` <span class="optional">${t("form.optional")}</span>`}</label>
      <div class="line">
        <input
          class="field"
          id="value"
          type="password"
          autocomplete="off"
          spellcheck="false"
          aria-required=${this.required && !this.stored ? "true" : nothing}
          aria-describedby=${described}
          aria-invalid=${this.error ? "true" : nothing}
          .value=${this.value ?? ""}
          @input=${(/** @type {Event} */ e) => this._choose(/** @type {HTMLInputElement} */ (e.target).value || undefined)}
        />
        ${this.stored ? html`<button type="button" class="btn" @click=${this._back}>${t("form.secret_keep")}</button>` : nothing}
      </div>
      ${this._notes()}`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .label {
        display: block;
        font-size: var(--size-s);
        font-weight: 550;
        margin-block-end: var(--s1);
      }
      .optional {
        font-weight: 400;
        color: var(--text-faint);
      }
      .line {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
      }
      .line .field {
        flex: 1 1 12rem;
      }
      .chip sk-icon {
        --icon-size: 0.9rem;
      }
      p {
        margin-block-start: var(--s1);
        line-height: 1.45;
      }
      .error {
        color: var(--fail);
        font-size: var(--size-s);
      }
    `,
  ];
}

customElements.define("sk-secret-field", SkSecretField);
