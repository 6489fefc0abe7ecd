/**
 * `<sk-provider-editor>`: a connection to a model server: its settings, a live test before anything is stored, and which of
 * its models to use. A stored key is never shown; leaving its field empty keeps it.
 */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toast, toastError } from "../ui/toast.js";
import "../ui/dialog.js";
import "../ui/form.js";
import "../ui/states.js";

/**
 * @typedef {import("../api/types.js").ProviderType} ProviderType
 * @typedef {import("../api/types.js").ProviderPreset} ProviderPreset
 * @typedef {import("../api/types.js").Provider} Provider
 * @typedef {import("../api/types.js").RemoteModel} RemoteModel
 */

const FEW = 6;

/** A provider's fields as the form's schema. @param {ProviderType} type @param {ProviderPreset | null} preset @returns {import("../ui/form.js").Schema} */
export function providerSchema(type, preset) {
  /** @type {Record<string, import("../ui/form.js").Property>} */
  const properties = { name: { type: "string", title: t("provider.name"), minLength: 1, maxLength: 80 } };
  const required = ["name"];
  for (const field of type.fields) {
    const secret = field.kind === "secret";
    if (secret && preset?.key === "none") continue;
    properties[field.key] = {
      type: "string",
      title: tt(field.label),
      description: tt(field.help),
      ...(secret ? { format: "password" } : field.kind === "url" ? { format: "uri" } : {}),
      ...(field.options?.length ? { enum: field.options.map((o) => o.value), enumNames: field.options.map((o) => tt(o.label)) } : {}),
      ...(field.default ? { default: field.default } : {}),
    };
    if (field.required || (secret && preset?.key === "required")) required.push(field.key);
  }
  return { type: "object", properties, required };
}

export class SkProviderEditor extends SkElement {
  static properties = {
    type: { attribute: false },
    preset: { attribute: false },
    provider: { attribute: false },
    known: { attribute: false },
    initial: { attribute: false },
    open: { type: Boolean },
    _testing: { state: true },
    _result: { state: true },
    _picked: { state: true },
    _query: { state: true },
    _manual: { state: true },
    _saving: { state: true },
  };

  constructor() {
    super();
    /** @type {ProviderType} */ this.type = /** @type {any} */ (null);
    /** @type {ProviderPreset | null} */ this.preset = null;
    /** an existing one to change @type {Provider | null} */ this.provider = null;
    /** ids of models of this provider that are used already @type {string[]} */ this.known = [];
    /** settings to begin with, e.g. of a server found on this machine @type {{name: string, settings: Record<string, string>} | null} */ this.initial = null;
    this.open = false;
    this._testing = false;
    /** @type {{ok: boolean, models: RemoteModel[], words: string, detail: string} | null} */ this._result = null;
    /** @type {Set<string>} */ this._picked = new Set();
    this._query = "";
    this._manual = "";
    this._saving = false;
    /** @private */ this._tested = "";
    /** @private @type {AbortController | null} */ this._abort = null;
    /** @private @type {ReturnType<typeof setTimeout> | undefined} */ this._timer = undefined;
  }

  /** @private @returns {import("../ui/form.js").SkForm | null} */
  get _form() {
    return this.renderRoot.querySelector("sk-form");
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("open") && this.open) {
      this._result = null;
      this._picked = new Set();
      this._query = "";
      this._manual = "";
      this._tested = "";
      this._schema = providerSchema(this.type, this.preset);
      const settings = this.provider?.settings ?? { ...this.preset?.settings, ...this.initial?.settings };
      this._values = { ...settings, name: this.provider?.name ?? this.initial?.name ?? (this.preset ? tt(this.preset.title) : tt(this.type.title)) };
      const ready = this.provider || this.initial || (this.preset && this.preset.key !== "required" && this.preset.local);
      if (ready) void this.updateComplete.then(() => this._test());
    }
    if (changed.has("open") && !this.open) this._abort?.abort();
  }

  /** @private @type {import("../ui/form.js").Schema} */
  _schema = {};
  /** @private @type {Record<string, any>} */
  _values = {};

  /** @private */
  _settings() {
    const { name, ...settings } = this._form?.current ?? {};
    /** @type {Record<string, string>} */
    const text = {};
    for (const [key, value] of Object.entries(settings)) if (value !== null && value !== undefined) text[key] = String(value).trim();
    return { name: String(name ?? "").trim(), settings: text };
  }

  /** @private required fields that are empty */
  _missing() {
    const current = this._form?.current ?? {};
    return (this._schema.required ?? []).filter((key) => !String(current[key] ?? "").trim() && !this.provider?.secrets?.[key]);
  }

  /** The settings changed: test by itself once they look complete and rest for a moment. @private */
  _changed() {
    clearTimeout(this._timer);
    const { settings } = this._settings();
    if (JSON.stringify(settings) === this._tested || this._missing().length) return;
    this._timer = setTimeout(() => this._test(), 900);
  }

  /** @private */
  async _test() {
    if (!this.open) return;
    clearTimeout(this._timer);
    const { settings } = this._settings();
    this._tested = JSON.stringify(settings);
    this._abort?.abort();
    const abort = (this._abort = new AbortController());
    this._testing = true;
    try {
      const result = await api.post(
        "/api/providers/test",
        { type: this.type.id, settings, ...(this.provider ? { provider: this.provider.id } : {}) },
        { signal: abort.signal, timeout: 45_000 },
      );
      const models = /** @type {RemoteModel[]} */ (result.models ?? []);
      this._result = {
        ok: result.ok,
        models,
        words: result.ok ? t("provider.works", { count: models.length }) : tt(result.error?.message) || t("provider.failed"),
        detail: result.error?.detail ?? "",
      };
      if (result.ok && !this.provider && models.length <= FEW) this._picked = new Set(models.map((m) => m.id));
    } catch (error) {
      if (abort.signal.aborted) return;
      this._result = { ok: false, models: [], words: describeError(error), detail: "" };
    }
    this._testing = false;
  }

  /** @private @param {string} id @param {boolean} on */
  _pick(id, on) {
    const next = new Set(this._picked);
    if (on) next.add(id);
    else next.delete(id);
    this._picked = next;
  }

  /** @private */
  async _save() {
    if (this._saving) return;
    const missing = this._missing();
    const form = /** @type {import("../ui/form.js").SkForm} */ (this._form);
    form.errors = Object.fromEntries(missing.map((key) => [key, t("form.missing")]));
    if (missing.length) return;
    const { name, settings } = this._settings();
    this._saving = true;
    try {
      const body = { type: this.type.id, name, settings };
      const provider = this.provider ? await api.patch(`/api/providers/${this.provider.id}`, body) : await api.post("/api/providers", body);
      const manual = this._manual.trim();
      const picked = new Set([...this._picked, ...(manual ? [manual] : [])]);
      for (const id of picked) {
        if (this.known.includes(id)) continue;
        const remote = this._result?.models.find((m) => m.id === id);
        await api.post("/api/models", { provider: provider.id, model: id, title: remote?.title ?? "", ...(remote?.info ? { info: remote.info } : {}) });
      }
      toast(t("state.saved"), { tone: "done", ms: 2500 });
      this.open = false;
      this.emit("sk-saved", provider);
    } catch (error) {
      toastError(error);
      // The connection may have been stored and only a model refused: what is stored is shown behind.
      this.emit("sk-changed");
    }
    this._saving = false;
  }

  /** @private */
  _models() {
    const result = this._result;
    if (!result?.ok) return nothing;
    const words = this._query.toLowerCase();
    const fresh = result.models.filter((m) => !this.known.includes(m.id));
    const shown = fresh.filter((m) => `${m.id} ${m.title}`.toLowerCase().includes(words));
    return html`<fieldset>
      <legend>${t("provider.pick")}</legend>
      ${fresh.length > 8
        ? html`<input
            class="field"
            type="search"
            aria-label=${t("provider.search")}
            placeholder=${t("provider.search")}
            .value=${this._query}
            @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
          />`
        : nothing}
      <div class="models" tabindex="0">
        ${repeat(
          shown,
          (m) => m.id,
          (m) =>
            html`<label>
              <input type="checkbox" .checked=${this._picked.has(m.id)} @change=${(/** @type {Event} */ e) => this._pick(m.id, /** @type {HTMLInputElement} */ (e.target).checked)} />
              <span class="name" dir="auto">${m.title || m.id}</span>
              ${m.info?.context_window ? html`<span class="faint">${t("model.context", { tokens: i18n.number(m.info.context_window, { notation: "compact" }) })}</span>` : nothing}
            </label>`,
        )}
        ${shown.length ? nothing : html`<p class="faint">${result.models.length && !fresh.length ? t("provider.all_used") : t("state.no_match")}</p>`}
      </div>
      <label class="manual" for="manual">${t("provider.manual")}</label>
      <input id="manual" class="field" autocomplete="off" spellcheck="false" .value=${this._manual} @input=${(/** @type {Event} */ e) => (this._manual = /** @type {HTMLInputElement} */ (e.target).value)} />
    </fieldset>`;
  }

  render() {
    if (!this.open || !this.type) return nothing;
    const result = this._result;
    const count = this._picked.size + (this._manual.trim() ? 1 : 0);
    return html`<sk-dialog size="wide" .heading=${this.provider ? t("provider.edit", { name: this.provider.name }) : this.preset ? tt(this.preset.title) : tt(this.type.title)} .open=${true} @sk-close=${() => (this.open = false)}>
      <div class="stack">
        ${this.preset?.help_url && this.preset.key !== "none"
          ? html`<p class="soft">${t("provider.get_key")} <a href=${safeLink(this.preset.help_url)} target="_blank" rel="noopener noreferrer">${hostOf(this.preset.help_url)}</a></p>`
          : nothing}
        <sk-form
          .schema=${this._schema}
          .values=${this._values}
          .stored=${Object.keys(this.provider?.secrets ?? {}).filter((key) => this.provider?.secrets[key])}
          @sk-change=${this._changed}
          @sk-submit=${this._test}
        ></sk-form>
        <div class="test" aria-live="polite">
          <sk-button ?busy=${this._testing} icon="plug" @click=${this._test}>${t("provider.test")}</sk-button>
          ${this._testing
            ? html`<span class="soft">${t("provider.testing")}</span>`
            : result
              ? html`<span class=${result.ok ? "ok" : "bad"}><sk-icon name=${result.ok ? "check-circle" : "exclamation-circle"}></sk-icon> ${result.words}</span>`
              : html`<span class="faint">${t("provider.untested")}</span>`}
        </div>
        ${result && !result.ok && result.detail ? html`<details><summary>${t("action.details")}</summary><pre class="raw" tabindex="0">${result.detail}</pre></details>` : nothing}
        ${this._models()}
      </div>
      <sk-button slot="actions" @click=${() => (this.open = false)}>${t("action.cancel")}</sk-button>
      <sk-button slot="actions" .variant=${result && !result.ok ? "" : "primary"} ?busy=${this._saving} @click=${this._save}>
        ${result && !result.ok ? t("provider.save_anyway") : count ? t("provider.save_with", { count }) : t("action.save")}
      </sk-button>
    </sk-dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      .stack {
        display: flex;
        flex-direction: column;
        gap: var(--s4);
      }
      .test {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s3);
        font-size: var(--size-s);
      }
      .test > span {
        flex: 1 1 12rem;
        overflow-wrap: anywhere;
      }
      .ok {
        color: var(--done);
      }
      .bad {
        color: var(--fail);
      }
      fieldset {
        margin: 0;
        padding: 0;
        border: 0;
        min-inline-size: 0;
      }
      legend,
      .manual {
        display: block;
        padding: 0;
        margin-block-end: var(--s1);
        font-size: var(--size-s);
        font-weight: 550;
      }
      .manual {
        margin-block-start: var(--s3);
      }
      .models {
        max-block-size: 16rem;
        overflow-y: auto;
        margin-block-start: var(--s2);
        border: 1px solid var(--line);
        border-radius: var(--radius-s);
      }
      .models label {
        display: flex;
        align-items: center;
        gap: var(--s3);
        min-block-size: var(--control);
        padding: 0 var(--s3);
        font-size: var(--size-s);
        cursor: pointer;
      }
      .models label:hover {
        background: var(--tint);
      }
      .models p {
        padding: var(--s3);
      }
      .name {
        flex: 1;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      input[type="checkbox"] {
        accent-color: var(--accent);
        inline-size: 1rem;
        block-size: 1rem;
      }
      summary {
        cursor: pointer;
        font-size: var(--size-s);
      }
    `,
  ];
}

customElements.define("sk-provider-editor", SkProviderEditor);

/** Only web addresses become links, whatever a plugin says. @param {string} url */
export function safeLink(url) {
  return /^https?:\/\//i.test(url) ? url : "#";
}

/** @param {string} url */
export function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
}
