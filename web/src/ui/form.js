/**
 * `<sk-form>`: a form from a JSON Schema object: text, number, switch, select, several lines, secret. One column, help under
 * each field, saved explicitly. Fires `sk-submit` with the values; `dirty` says whether something changed.
 *
 * A property is a secret when it has `"format": "password"` or `"secret": true` (also `x-secret`, `writeOnly`). A stored
 * secret is never shown: list its key in `stored`. Leaving the field empty leaves it out of the values, which keeps it.
 */
import { css, html, nothing } from "lit";
import { t, tt } from "../i18n/index.js";
import { SkElement } from "./base.js";
import "./button.js";
import "./switch.js";

/** @typedef {{type?: string | string[], title?: string, description?: string, default?: any, enum?: any[], enumNames?: string[],
 *   format?: string, minimum?: number, maximum?: number, minLength?: number, maxLength?: number, pattern?: string, secret?: boolean,
 *   "x-secret"?: boolean, writeOnly?: boolean, multiline?: boolean, anyOf?: any[], oneOf?: any[], items?: any}} Property */
/** @typedef {{type?: string, properties?: Record<string, Property>, required?: string[]}} Schema */

/** @param {Property} property */
export function isSecret(property) {
  return property.format === "password" || property.secret === true || property["x-secret"] === true || property.writeOnly === true;
}

/** The plain type of a property; a nullable one counts as its other type. @param {Property} property @returns {string} */
export function typeOf(property) {
  const variants = property.anyOf ?? property.oneOf;
  if (!property.type && variants) return typeOf(variants.find((v) => v.type !== "null") ?? {});
  if (Array.isArray(property.type)) return property.type.find((x) => x !== "null") ?? "string";
  return property.type ?? "string";
}

export class SkForm extends SkElement {
  static properties = {
    schema: { attribute: false },
    values: { attribute: false },
    stored: { attribute: false },
    errors: { attribute: false },
    submitLabel: { attribute: "submit-label" },
    busy: { type: Boolean },
    _draft: { state: true },
  };

  constructor() {
    super();
    /** @type {Schema} */ this.schema = {};
    /** @type {Record<string, any>} */ this.values = {};
    /** keys of secrets the server holds @type {string[]} */ this.stored = [];
    /** key → sentence @type {Record<string, string>} */ this.errors = {};
    this.submitLabel = "";
    this.busy = false;
    /** @type {Record<string, any>} */ this._draft = {};
  }

  get dirty() {
    return Object.keys(this._draft).length > 0;
  }

  /** What the form says now: given values with changes; secrets only when typed. */
  get current() {
    /** @type {Record<string, any>} */
    const out = {};
    for (const [key, property] of Object.entries(this.schema.properties ?? {})) {
      const drafted = key in this._draft;
      const value = drafted ? this._draft[key] : this.values[key];
      if (isSecret(property)) {
        if (drafted && value !== "") out[key] = value;
      } else if (value !== undefined) out[key] = value;
      else if (property.default !== undefined) out[key] = property.default;
    }
    return out;
  }

  /** Forget changes, e.g. after they were saved. */
  reset() {
    this._draft = {};
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("values") && changed.get("values") !== undefined) this._draft = {};
  }

  /** @private @param {string} key @param {any} value */
  _set(key, value) {
    const same = JSON.stringify(value) === JSON.stringify(this.values[key] ?? this.schema.properties?.[key]?.default ?? "");
    const { [key]: _, ...rest } = this._draft;
    this._draft = same ? rest : { ...rest, [key]: value };
    this.emit("sk-change", { key, value });
  }

  /** @private @param {Event} event */
  _submit(event) {
    event.preventDefault();
    if (!this.busy) this.emit("sk-submit", this.current);
  }

  /** @private @param {string} key @param {Property} property */
  _field(key, property) {
    const type = typeOf(property);
    const label = tt(property.title) || key;
    const help = tt(property.description);
    const error = this.errors[key] ?? "";
    const required = this.schema.required?.includes(key) ?? false;
    const value = this._draft[key] ?? this.values[key] ?? property.default ?? (type === "boolean" ? false : "");
    if (type === "boolean") {
      return html`<div class="row">
        <sk-switch
          .label=${label}
          .help=${help}
          .checked=${Boolean(value)}
          @change=${(/** @type {CustomEvent} */ e) => (e.stopPropagation(), this._set(key, e.detail))}
        ></sk-switch>
      </div>`;
    }
    const described = [help ? `h-${key}` : "", error ? `e-${key}` : ""].filter(Boolean).join(" ");
    const common = { id: `f-${key}`, describedby: described || nothing, invalid: error ? "true" : nothing };
    /** @type {unknown} */
    let control;
    const options = property.enum ?? property.anyOf?.filter((v) => "const" in v).map((v) => v.const) ?? [];
    if (options.length) {
      control = html`<select
        class="field"
        id=${common.id}
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        ?required=${required}
        @change=${(/** @type {Event} */ e) => this._set(key, options[/** @type {HTMLSelectElement} */ (e.target).selectedIndex - (required ? 0 : 1)] ?? null)}
      >
        ${required ? nothing : html`<option .selected=${value === "" || value === null}>${t("form.none")}</option>`}
        ${options.map((option, i) => html`<option .selected=${option === value}>${tt(property.enumNames?.[i]) || String(option)}</option>`)}
      </select>`;
    } else if (isSecret(property)) {
      const stored = this.stored.includes(key);
      control = html`<input
        class="field"
        type="password"
        id=${common.id}
        autocomplete="off"
        spellcheck="false"
        placeholder=${stored ? t("form.secret_stored") : ""}
        ?required=${required && !stored}
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        .value=${String(this._draft[key] ?? "")}
        @input=${(/** @type {Event} */ e) => this._set(key, /** @type {HTMLInputElement} */ (e.target).value)}
      />`;
    } else if (type === "integer" || type === "number") {
      control = html`<input
        class="field"
        type="number"
        id=${common.id}
        step=${type === "integer" ? "1" : "any"}
        min=${property.minimum ?? nothing}
        max=${property.maximum ?? nothing}
        ?required=${required}
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        .value=${value === null ? "" : String(value)}
        @input=${(/** @type {Event} */ e) => {
          const input = /** @type {HTMLInputElement} */ (e.target);
          this._set(key, input.value === "" ? null : input.valueAsNumber);
        }}
      />`;
    } else if (type === "array" || type === "object") {
      const listed = type === "array" && (property.items?.type ?? "string") === "string";
      const text = listed ? (Array.isArray(value) ? value.join("\n") : "") : JSON.stringify(value === "" ? (type === "array" ? [] : {}) : value, null, 2);
      control = html`<textarea
        class="field"
        rows="4"
        id=${common.id}
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        .value=${text}
        @change=${(/** @type {Event} */ e) => {
          const area = /** @type {HTMLTextAreaElement} */ (e.target);
          if (listed) return this._set(key, area.value.split("\n").filter((line) => line.trim()));
          try {
            this._set(key, JSON.parse(area.value));
            area.setCustomValidity("");
          } catch {
            area.setCustomValidity(t("form.bad_json"));
            area.reportValidity();
          }
        }}
      ></textarea>`;
    } else if (property.multiline || property.format === "textarea" || (property.maxLength ?? 0) > 300) {
      control = html`<textarea
        class="field"
        rows="4"
        id=${common.id}
        maxlength=${property.maxLength ?? nothing}
        ?required=${required}
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        .value=${String(value)}
        @input=${(/** @type {Event} */ e) => this._set(key, /** @type {HTMLTextAreaElement} */ (e.target).value)}
      ></textarea>`;
    } else {
      control = html`<input
        class="field"
        type=${property.format === "uri" || property.format === "url" ? "url" : property.format === "email" ? "email" : "text"}
        id=${common.id}
        minlength=${property.minLength ?? nothing}
        maxlength=${property.maxLength ?? nothing}
        pattern=${property.pattern ?? nothing}
        ?required=${required}
        spellcheck="false"
        aria-describedby=${common.describedby}
        aria-invalid=${common.invalid}
        .value=${String(value ?? "")}
        @input=${(/** @type {Event} */ e) => this._set(key, /** @type {HTMLInputElement} */ (e.target).value)}
      />`;
    }
    return html`<div class="row">
      <label for=${common.id}>${label}${required ? nothing : html` <span class="optional">${t("form.optional")}</span>`}</label>
      ${control} ${help ? html`<p class="faint" id="h-${key}">${help}</p>` : nothing}
      ${error ? html`<p class="error" id="e-${key}" role="alert">${error}</p>` : nothing}
    </div>`;
  }

  render() {
    return html`<form @submit=${this._submit}>
      ${Object.entries(this.schema.properties ?? {}).map(([key, property]) => this._field(key, property))}
      <div class="acts">
        ${this.submitLabel
          ? html`<button class="btn primary" type="submit" ?disabled=${this.busy || !this.dirty} aria-busy=${this.busy ? "true" : nothing}>${this.submitLabel}</button>`
          : nothing}
        ${this.submitLabel && this.dirty ? html`<button class="btn plain" type="button" @click=${() => this.reset()}>${t("action.discard")}</button>` : nothing}
        <slot></slot>
      </div>
    </form>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s4);
        max-inline-size: 34rem;
      }
      label {
        display: block;
        font-size: var(--size-s);
        font-weight: 550;
        margin-block-end: var(--s1);
      }
      .optional {
        font-weight: 400;
        color: var(--text-faint);
      }
      .row > p {
        margin-block-start: var(--s1);
        line-height: 1.45;
      }
      .error {
        color: var(--fail);
        font-size: var(--size-s);
      }
      .acts {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
    `,
  ];
}

customElements.define("sk-form", SkForm);
