/**
 * `<sk-list-field>`: a list of texts or numbers in a form, one per line. Enter in a line opens the next one, Backspace in an
 * empty line takes it away. Fires `sk-list` with the whole list.
 */
import { css, html, nothing } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";
import { typeOf } from "./form-schema.js";
import "./icon.js";

export class SkListField extends SkElement {
  static shadowRootOptions = { ...SkElement.shadowRootOptions, delegatesFocus: true };
  static properties = {
    label: {},
    help: {},
    error: {},
    optional: { type: Boolean },
    items: { attribute: false },
    value: { attribute: false },
  };

  constructor() {
    super();
    this.label = "";
    this.help = "";
    this.error = "";
    this.optional = false;
    /** the schema of one entry @type {import("./form-schema.js").Property} */ this.items = {};
    /** @type {(string | number | null)[]} */ this.value = [];
  }

  /** @private */
  get _numeric() {
    return ["integer", "number"].includes(typeOf(this.items));
  }

  /** @private @param {(string | number | null)[]} value */
  _set(value) {
    this.value = value;
    this.emit("sk-list", value);
  }

  /** @private @param {number} at */
  async _focus(at) {
    await this.updateComplete;
    const fields = /** @type {HTMLElement[]} */ ([...this.renderRoot.querySelectorAll(".entry")]);
    (fields[Math.min(at, fields.length - 1)] ?? /** @type {HTMLElement | null} */ (this.renderRoot.querySelector(".add")))?.focus();
  }

  /** @private @param {number} at */
  _insert(at) {
    this._set(this.value.toSpliced(at, 0, this.items.enum?.[0] ?? (this._numeric ? null : "")));
    void this._focus(at);
  }

  /** @private @param {number} at */
  _remove(at) {
    this._set(this.value.toSpliced(at, 1));
    void this._focus(Math.max(0, at - 1));
  }

  /** @private @param {number} at @param {string} text */
  _write(at, text) {
    this._set(this.value.with(at, this._numeric ? (text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text)) : text));
  }

  /** @private @param {KeyboardEvent} event @param {number} at */
  _keys(event, at) {
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      this._insert(at + 1);
    } else if (event.key === "Backspace" && (this.value[at] === "" || this.value[at] === null)) {
      event.preventDefault();
      this._remove(at);
    }
  }

  /** @private @param {string | number | null} entry @param {number} at */
  _entry(entry, at) {
    const name = t("form.entry", { label: this.label, number: at + 1 });
    return html`<li>
      ${this.items.enum?.length
        ? html`<select class="field entry" aria-label=${name} @change=${(/** @type {Event} */ e) => this._set(this.value.with(at, this.items.enum?.[/** @type {HTMLSelectElement} */ (e.target).selectedIndex]))}>
            ${this.items.enum.map((option) => html`<option .selected=${option === entry}>${String(option)}</option>`)}
          </select>`
        : html`<input
            class="field entry"
            type=${this._numeric ? "number" : "text"}
            step=${typeOf(this.items) === "integer" ? "1" : this._numeric ? "any" : nothing}
            spellcheck="false"
            aria-label=${name}
            aria-invalid=${this.error ? "true" : nothing}
            .value=${entry === null ? "" : String(entry)}
            @input=${(/** @type {Event} */ e) => this._write(at, /** @type {HTMLInputElement} */ (e.target).value)}
            @keydown=${(/** @type {KeyboardEvent} */ e) => this._keys(e, at)}
          />`}
      <button type="button" class="btn plain icon" aria-label=${t("form.entry_remove", { label: this.label, number: at + 1 })} title=${t("form.remove")} @click=${() => this._remove(at)}>
        <sk-icon name="x-lg"></sk-icon>
      </button>
    </li>`;
  }

  render() {
    const described = [this.help ? "help" : "", this.error ? "error" : ""].filter(Boolean).join(" ") || nothing;
    return html`<div role="group" aria-labelledby="label" aria-describedby=${described}>
      <span class="label" id="label">${this.label}${this.optional ? html` <span class="optional">${t("form.optional")}</span>` : nothing}</span>
      ${this.value.length ? html`<ul>${this.value.map((entry, at) => this._entry(entry, at))}</ul>` : nothing}
      <button type="button" class="btn small add" @click=${() => this._insert(this.value.length)}><sk-icon name="plus-lg"></sk-icon>${t("form.add")}</button>
      ${this.help ? html`<p class="faint" id="help">${this.help}</p>` : nothing}
      ${this.error ? html`<p class="error" id="error" role="alert">${this.error}</p>` : nothing}
    </div>`;
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
      ul {
        list-style: none;
        margin: 0 0 var(--s2);
        padding: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s1);
      }
      li {
        display: flex;
        gap: var(--s1);
      }
      .add sk-icon {
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

customElements.define("sk-list-field", SkListField);
