/**
 * `<sk-form>`: a form from a JSON Schema object: text, several lines, number, switch, select (fixed or computed), model,
 * address, secret, lists of simple values, groups. One column, help under each field, saved explicitly. Fires `sk-submit`
 * with the values once they are right; `dirty` says whether something changed. What each field is: `form-schema.js`.
 *
 * A stored secret is never shown: list its path in `stored`. Left alone it is left out of the values, which keeps it;
 * removed, it is `null`.
 */
import { css, html, nothing } from "lit";
import { api, onEvent } from "../api/index.js";
import { t, tt } from "../i18n/index.js";
import { SkElement } from "./base.js";
import { faultsOf, isSecret, kindOf, resolve, typeOf, valueAt } from "./form-schema.js";
import "./button.js";
import "./list-field.js";
import "./secret-field.js";
import "./switch.js";

export { isSecret, typeOf } from "./form-schema.js";

/** @typedef {import("./form-schema.js").Property} Property */
/** @typedef {import("./form-schema.js").Schema} Schema */
/** @typedef {import("./form-schema.js").Choice} Choice */

export class SkForm extends SkElement {
  static properties = {
    schema: { attribute: false },
    values: { attribute: false },
    stored: { attribute: false },
    choices: { attribute: false },
    errors: { attribute: false },
    notes: { attribute: false },
    submitLabel: { attribute: "submit-label" },
    removable: { type: Boolean },
    busy: { type: Boolean },
    _draft: { state: true },
    _faults: { state: true },
    _models: { state: true },
  };

  constructor() {
    super();
    /** @type {Schema} */ this.schema = {};
    /** @type {Record<string, any>} */ this.values = {};
    /** paths of secrets the server holds @type {string[]} */ this.stored = [];
    /** path → options computed by the server @type {Record<string, Choice[]>} */ this.choices = {};
    /** path → sentence @type {Record<string, string>} */ this.errors = {};
    /** path → what else is to know of a field, e.g. that its options could not be read @type {Record<string, string>} */ this.notes = {};
    this.submitLabel = "";
    /** stored secrets may be removed, sent as null */ this.removable = false;
    this.busy = false;
    /** changes by path; undefined as value: left out @type {Record<string, any>} */ this._draft = {};
    /** what this form found wrong @type {ReturnType<typeof faultsOf>} */ this._faults = {};
    /** @type {import("../api/types.js").Model[] | null} */ this._models = null;
    /** @private paths of fields whose text is no JSON @type {Set<string>} */ this._unreadable = new Set();
    /** @private the changes as they were submitted last @type {Record<string, any> | null} */ this._submitted = null;
    /** @private */ this._off = () => {};
  }

  connectedCallback() {
    super.connectedCallback();
    this._off = onEvent("models_changed", () => this._models && void this._loadModels());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._off();
  }

  get dirty() {
    return Object.keys(this._draft).length > 0;
  }

  /** What the form says now: given values with changes; secrets only when typed or removed. */
  get current() {
    /** @param {Property} group @param {Record<string, any>} held @param {string} prefix @returns {Record<string, any>} */
    const collect = (group, held, prefix) => {
      /** @type {Record<string, any>} */
      const out = {};
      for (const [key, raw] of Object.entries(group.properties ?? {})) {
        const property = resolve(raw, this.schema);
        const path = prefix + key;
        const drafted = path in this._draft;
        if (kindOf(property) === "group") {
          const inner = collect(property, held?.[key] ?? property.default ?? {}, `${path}.`);
          if (Object.keys(inner).length || held?.[key] !== undefined) out[key] = inner;
        } else if (isSecret(property)) {
          if (drafted && this._draft[path] !== undefined && this._draft[path] !== "") out[key] = this._draft[path];
        } else {
          const value = drafted ? this._draft[path] : held?.[key];
          if (value !== undefined) out[key] = Array.isArray(value) ? value.filter((v) => v !== "" && v !== null) : value;
          else if (property.default !== undefined) out[key] = property.default;
        }
      }
      return out;
    };
    return collect(resolve(this.schema, this.schema), this.values, "");
  }

  /** Forget changes, e.g. after they were saved. */
  reset() {
    this._draft = {};
    this._faults = {};
    this._unreadable.clear();
  }

  /**
   * Look at every field; the first that is wrong gets the focus.
   * @returns {boolean} whether all is well
   */
  validate() {
    this._faults = faultsOf(this.schema, this.current, (path) => this.stored.includes(path) && this._draft[path] !== null);
    for (const path of this._unreadable) this._faults[path] = { key: "form.bad_json" };
    void this.updateComplete.then(() => this.focusFirstError());
    return Object.keys(this._faults).length === 0;
  }

  focusFirstError() {
    const wrong = /** @type {HTMLElement | null} */ (this.renderRoot.querySelector('[aria-invalid="true"], [data-invalid]'));
    wrong?.focus();
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("values") && changed.get("values") !== undefined) this._take();
    if (changed.has("schema")) {
      const text = JSON.stringify(this.schema);
      if (text.includes('"x-kind":"model"') && !this._models) void this._loadModels();
    }
  }

  /** New values: what was submitted is in them; what was typed since stays. @private */
  _take() {
    const sent = this._submitted;
    this._submitted = null;
    if (!sent) return this.reset();
    this._draft = Object.fromEntries(Object.entries(this._draft).filter(([path, value]) => !(path in sent) || sent[path] !== value));
    this._faults = {};
  }

  /** @private */
  async _loadModels() {
    try {
      this._models = await api.get("/api/models");
    } catch {
      // the field keeps what it has; an empty list says that nothing could be read
      this._models ??= [];
    }
  }

  /** @private @param {string} path @param {any} value */
  _set(path, value) {
    const property = this._propertyAt(path);
    const before = valueAt(this.values, path) ?? property.default;
    const same = !isSecret(property) && JSON.stringify(value ?? null) === JSON.stringify(before ?? emptyOf(property) ?? null);
    const { [path]: _, ...rest } = this._draft;
    this._draft = same || (isSecret(property) && value === undefined) ? rest : { ...rest, [path]: value };
    if (this._faults[path] || this.errors[path]) {
      const { [path]: _fault, ...faults } = this._faults;
      this._faults = faults;
      const { [path]: _error, ...errors } = this.errors;
      this.errors = errors;
    }
    this.emit("sk-change", { key: path, value });
  }

  /** @private @param {string} path @returns {Property & {nullable?: boolean}} */
  _propertyAt(path) {
    let at = resolve(this.schema, this.schema);
    for (const key of path.split(".")) at = resolve(at.properties?.[key] ?? {}, this.schema);
    return at;
  }

  /** @private @param {Event} event */
  _submit(event) {
    event.preventDefault();
    if (this.busy || !this.validate()) return;
    this._submitted = this._draft;
    this.emit("sk-submit", this.current);
  }

  /** @private @param {string} path */
  _error(path) {
    const fault = this._faults[path];
    return fault ? t(fault.key, fault.params) : (this.errors[path] ?? "");
  }

  /** @private @param {string} path @param {Property} raw @param {boolean} required @returns {unknown} */
  _field(path, raw, required) {
    const property = resolve(raw, this.schema);
    const key = path.slice(path.lastIndexOf(".") + 1);
    const kind = kindOf(property, this.choices[path] !== undefined);
    const label = tt(property.title) || key;
    const help = tt(property.description);
    const error = this._error(path);
    const note = this.notes[path] ?? "";
    const held = path in this._draft ? this._draft[path] : (valueAt(this.values, path) ?? property.default);
    const value = held ?? emptyOf(property);
    const optional = !required && (property.default === undefined || property.default === null || property.default === "" || property.default?.length === 0);
    if (kind === "group") {
      return html`<fieldset>
        <legend>${label}</legend>
        ${help ? html`<p class="faint">${help}</p>` : nothing} ${this._fields(property, `${path}.`)}
      </fieldset>`;
    }
    if (kind === "secret") {
      return html`<sk-secret-field
        class="row"
        .label=${label}
        .help=${help}
        .error=${error}
        ?data-invalid=${error !== ""}
        .stored=${this.stored.includes(path)}
        .removable=${this.removable}
        .required=${required}
        .value=${path in this._draft ? this._draft[path] : undefined}
        @sk-secret=${(/** @type {CustomEvent} */ e) => (e.stopPropagation(), this._set(path, e.detail))}
      ></sk-secret-field>`;
    }
    if (kind === "list") {
      return html`<sk-list-field
        class="row"
        .label=${label}
        .help=${help}
        .error=${error}
        .optional=${optional}
        ?data-invalid=${error !== ""}
        .items=${resolve(property.items ?? {}, this.schema)}
        .value=${Array.isArray(value) ? value : []}
        @sk-list=${(/** @type {CustomEvent} */ e) => (e.stopPropagation(), this._set(path, e.detail))}
      ></sk-list-field>`;
    }
    if (kind === "switch") {
      return html`<div class="row">
        <sk-switch
          .label=${label}
          .help=${help}
          .checked=${Boolean(value)}
          @change=${(/** @type {CustomEvent} */ e) => (e.stopPropagation(), this._set(path, e.detail))}
        ></sk-switch>
        ${error ? html`<p class="error" role="alert">${error}</p>` : nothing}
      </div>`;
    }
    return html`<div class="row">
      <label for="f-${path}">${label}${optional ? html` <span class="optional">${t("form.optional")}</span>` : nothing}</label>
      ${this._control(kind, path, property, value, {
        required,
        described: [help ? `h-${path}` : "", note ? `n-${path}` : "", error ? `e-${path}` : ""].filter(Boolean).join(" "),
        invalid: error !== "",
      })}
      ${help ? html`<p class="faint" id="h-${path}">${help}</p>` : nothing}
      ${note ? html`<p class="note" id="n-${path}">${note}</p>` : nothing}
      ${error ? html`<p class="error" id="e-${path}" role="alert">${error}</p>` : nothing}
    </div>`;
  }

  /**
   * @private
   * @param {import("./form-schema.js").Kind} kind @param {string} path @param {Property & {nullable?: boolean}} property @param {any} value
   * @param {{required: boolean, described: string, invalid: boolean}} state
   */
  _control(kind, path, property, value, { required, described, invalid }) {
    const id = `f-${path}`;
    const describedBy = described || nothing;
    const wrong = invalid ? "true" : nothing;
    const needed = required ? "true" : nothing;
    if (kind === "select" || kind === "model") return this._select(kind, path, property, value, { required, describedBy, wrong });
    if (kind === "number") {
      return html`<input
        class="field number"
        type="number"
        id=${id}
        inputmode=${typeOf(property) === "integer" ? "numeric" : "decimal"}
        step=${typeOf(property) === "integer" ? "1" : "any"}
        min=${property.minimum ?? nothing}
        max=${property.maximum ?? nothing}
        aria-required=${needed}
        aria-describedby=${describedBy}
        aria-invalid=${wrong}
        .value=${value === null || value === undefined ? "" : String(value)}
        @input=${(/** @type {Event} */ e) => {
          const input = /** @type {HTMLInputElement} */ (e.target);
          // What cannot be read as a number is kept apart from an empty field.
          const typed = input.value === "" ? (input.validity.badInput ? Number.NaN : property.nullable ? null : undefined) : input.valueAsNumber;
          this._set(path, typed);
        }}
      />`;
    }
    if (kind === "json") {
      return html`<textarea
        class="field code"
        rows="4"
        id=${id}
        spellcheck="false"
        aria-describedby=${describedBy}
        aria-invalid=${wrong}
        .value=${JSON.stringify(value ?? (typeOf(property) === "array" ? [] : {}), null, 2)}
        @change=${(/** @type {Event} */ e) => this._json(path, /** @type {HTMLTextAreaElement} */ (e.target).value)}
      ></textarea>`;
    }
    /** @param {Event} e */
    const typed = (e) => {
      const text = /** @type {HTMLInputElement | HTMLTextAreaElement} */ (e.target).value;
      this._set(path, text === "" && property.nullable ? null : text);
    };
    if (kind === "textarea") {
      return html`<textarea
        class="field"
        rows="4"
        dir="auto"
        id=${id}
        aria-required=${needed}
        aria-describedby=${describedBy}
        aria-invalid=${wrong}
        .value=${String(value ?? "")}
        @input=${typed}
      ></textarea>`;
    }
    return html`<input
      class="field"
      type=${kind === "url" || kind === "email" ? kind : "text"}
      id=${id}
      spellcheck="false"
      aria-required=${needed}
      aria-describedby=${describedBy}
      aria-invalid=${wrong}
      .value=${String(value ?? "")}
      @input=${typed}
    />`;
  }

  /** @private @param {string} path @param {string} text */
  _json(path, text) {
    try {
      const value = JSON.parse(text);
      this._unreadable.delete(path);
      this._set(path, value);
    } catch {
      this._unreadable.add(path);
      this._faults = { ...this._faults, [path]: { key: "form.bad_json" } };
    }
  }

  /**
   * @private
   * @param {"select" | "model"} kind @param {string} path @param {Property & {nullable?: boolean}} property @param {any} value
   * @param {{required: boolean, describedBy: unknown, wrong: unknown}} state
   */
  _select(kind, path, property, value, { required, describedBy, wrong }) {
    const unset = value === "" || value === null || value === undefined;
    /** @type {Choice[]} */
    const options =
      this.choices[path] ??
      (kind === "model"
        ? (this._models ?? []).filter((m) => m.enabled).map((m) => ({ value: m.id, label: `${m.title || m.model} · ${m.provider_name}` }))
        : (property.enum ?? []).filter((v) => v !== null).map((v, i) => ({ value: v, label: property.enumNames?.[i] ?? "" })));
    const known = unset || options.some((option) => option.value === value);
    const mayBeEmpty = property.nullable || (!required && (property.default === undefined || property.default === "" || property.default === null));
    const none = mayBeEmpty || unset;
    const empty = property.nullable || property.default === null ? null : typeOf(property) === "string" && property.default === "" ? "" : undefined;
    /** @type {[any, unknown, boolean][]} value, words, disabled */
    const all = [
      ...(none ? [/** @type {[any, unknown, boolean]} */ ([empty, kind === "model" && mayBeEmpty ? t("model.auto") : mayBeEmpty ? t("form.none") : t("form.choose"), !mayBeEmpty])] : []),
      ...options.map((option) => /** @type {[any, unknown, boolean]} */ ([option.value, tt(option.label) || String(option.value), false])),
      // What is stored stays visible when it is not offered any more.
      ...(known ? [] : [/** @type {[any, unknown, boolean]} */ ([value, t("form.not_offered", { value: String(value) }), false])]),
    ];
    return html`<select
      class="field"
      id="f-${path}"
      aria-required=${required ? "true" : nothing}
      aria-describedby=${describedBy}
      aria-invalid=${wrong}
      @change=${(/** @type {Event} */ e) => this._set(path, all[/** @type {HTMLSelectElement} */ (e.target).selectedIndex][0])}
    >
      ${all.map(([option, words, disabled]) => html`<option ?disabled=${disabled} .selected=${option === value || (unset && option === empty)}>${words}</option>`)}
    </select>`;
  }

  /** @private @param {Property} group @param {string} prefix */
  _fields(group, prefix) {
    return Object.entries(group.properties ?? {}).map(([key, property]) => this._field(prefix + key, property, group.required?.includes(key) ?? false));
  }

  render() {
    const general = this.errors[""];
    return html`<form @submit=${this._submit} novalidate>
      ${this._fields(resolve(this.schema, this.schema), "")} ${general ? html`<p class="error" role="alert">${general}</p>` : nothing}
      <div class="acts">
        ${this.submitLabel
          ? html`<button class="btn primary" type="submit" ?disabled=${this.busy || !this.dirty} aria-busy=${this.busy ? "true" : nothing}>${this.submitLabel}</button>`
          : nothing}
        <slot></slot>
        ${this.submitLabel && this.dirty ? html`<button class="btn plain" type="button" @click=${() => this.reset()}>${t("action.discard")}</button>` : nothing}
      </div>
    </form>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      form,
      fieldset {
        display: flex;
        flex-direction: column;
        gap: var(--s4);
        max-inline-size: 34rem;
      }
      fieldset {
        min-inline-size: 0;
        margin: 0;
        padding: var(--s3) var(--s4) var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
      }
      legend {
        padding-inline: var(--s1);
        font-size: var(--size-s);
        font-weight: 650;
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
      .number {
        max-inline-size: 12rem;
      }
      .code {
        font-family: var(--mono);
      }
      .row > p {
        margin-block-start: var(--s1);
        line-height: 1.45;
      }
      .note {
        color: var(--wait);
        font-size: var(--size-s);
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

/** What an untouched field of this type holds. @param {Property} property @returns {any} */
function emptyOf(property) {
  const type = typeOf(property);
  return type === "boolean" ? false : type === "array" ? [] : type === "string" ? "" : undefined;
}

customElements.define("sk-form", SkForm);
