/**
 * `<sk-plugin-settings path>`: the settings behind one address (an instance's, or the person's own): read, tested where the
 * plugin offers it, saved. `dirty` says whether leaving would lose something. Fires `sk-saved`.
 */
import { css, html, nothing } from "lit";
import { api, ApiError } from "../../api/index.js";
import { t, tt } from "../../i18n/index.js";
import { Resource, Watch } from "../../core/watch.js";
import { SkElement } from "../../ui/base.js";
import { errorsByField } from "../../ui/form-schema.js";
import { describeError } from "../../ui/states.js";
import { toast } from "../../ui/toast.js";
import "../../ui/form.js";
import "../../ui/states.js";

/** @typedef {import("../../api/types.js").SettingsForm} SettingsForm */

export class SkPluginSettings extends SkElement {
  static properties = {
    path: {},
    version: {},
    _busy: { state: true },
    _errors: { state: true },
    _result: { state: true },
    _problem: { state: true },
  };

  constructor() {
    super();
    /** an address that answers GET and PUT with a form, and POST `…/test` */ this.path = "";
    /** read again when it changes, e.g. the plugin's state */ this.version = "";
    /** @type {"" | "save" | "test"} */ this._busy = "";
    /** @type {Record<string, string>} */ this._errors = {};
    /** @type {{ok: boolean, text: string} | null} */ this._result = null;
    this._problem = "";
    /** @private */ this._form = new Resource(async () => /** @type {SettingsForm} */ (await api.get(this.path)));
    new Watch(this, this._form);
  }

  /** @private @returns {import("../../ui/form.js").SkForm | null} */
  get _fields() {
    return this.renderRoot?.querySelector("sk-form") ?? null;
  }

  get dirty() {
    return this._fields?.dirty ?? false;
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("path")) {
      this._form.clear();
      this._errors = {};
      this._result = null;
      this._problem = "";
    }
    if (!this.path || !(changed.has("path") || changed.has("version"))) return;
    // What the person is typing is worth more than what may have changed behind it.
    if (changed.has("path") || !this.dirty) void this._form.load();
  }

  /** @private @param {unknown} error */
  _refused(error) {
    const errors = error instanceof ApiError ? errorsByField(error.body.errors) : {};
    this._errors = errors;
    this._problem = Object.keys(errors).length ? "" : describeError(error);
    if (Object.keys(errors).length) void this.updateComplete.then(() => this._fields?.updateComplete).then(() => this._fields?.focusFirstError());
  }

  /** @private @param {CustomEvent} event */
  async _save(event) {
    event.stopPropagation();
    this._busy = "save";
    this._errors = {};
    this._problem = "";
    try {
      await api.put(this.path, { values: event.detail }, { timeout: 120_000 });
      toast(t("state.saved"), { tone: "done", ms: 2500 });
      this._result = null;
      await this._form.load();
      this.emit("sk-saved");
    } catch (error) {
      this._refused(error);
    }
    this._busy = "";
  }

  /** @private */
  async _test() {
    const fields = this._fields;
    if (!fields || this._busy || !fields.validate()) return;
    this._busy = "test";
    this._errors = {};
    this._problem = "";
    this._result = null;
    try {
      this._result = await api.post(`${this.path}/test`, { values: fields.current }, { timeout: 120_000 });
    } catch (error) {
      this._refused(error);
    }
    this._busy = "";
  }

  render() {
    const { data, error } = this._form;
    if (error && !data) return html`<sk-error .text=${describeError(error)} .retry=${() => this._form.load()}></sk-error>`;
    if (!data) return html`<sk-skeleton lines="4"></sk-skeleton>`;
    const schema = data.schema ?? {};
    if (!Object.keys(schema.properties ?? {}).length && !schema.$ref) return html`<p class="faint">${t("settings.none")}</p>`;
    const result = this._result;
    return html`${(data.aside ?? []).map(
        (kept) =>
          html`<sk-notice tone="wait"
            >${t("settings.aside", { version: kept.version, reason: kept.reason })}
            <details>
              <summary>${t("settings.aside_values")}</summary>
              <pre class="raw" tabindex="0">${JSON.stringify(kept.values, null, 2)}</pre>
            </details></sk-notice
          >`,
      )}
      <sk-form
        .schema=${data.required?.length && !schema.required ? { ...schema, required: data.required } : schema}
        .values=${data.values ?? {}}
        .stored=${Object.keys(data.secrets ?? {}).filter((key) => data.secrets[key])}
        .choices=${data.choices ?? {}}
        .errors=${this._errors}
        .notes=${data.choice_errors ?? {}}
        .removable=${true}
        .busy=${this._busy !== ""}
        .submitLabel=${t("action.save")}
        @sk-submit=${this._save}
        @sk-change=${() => (this._result = null)}
      >
        ${data.testable
          ? html`<sk-button icon="plug" ?busy=${this._busy === "test"} ?disabled=${this._busy === "save"} @click=${this._test}>${t("settings.test")}</sk-button>`
          : nothing}
      </sk-form>
      <div role="status" class="result">
        ${this._busy === "test" ? html`<span class="faint">${t("settings.testing")}</span>` : nothing}
        ${result ? html`<sk-notice tone=${result.ok ? "done" : "fail"}>${tt(result.text) || t(result.ok ? "settings.test_ok" : "settings.test_failed")}</sk-notice>` : nothing}
        ${this._problem ? html`<sk-notice tone="fail">${this._problem}</sk-notice>` : nothing}
      </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      sk-notice {
        max-inline-size: 34rem;
        margin-block-end: var(--s4);
      }
      .result sk-notice {
        margin-block-end: 0;
      }
      summary {
        cursor: pointer;
      }
      .result {
        max-inline-size: 34rem;
        margin-block-start: var(--s3);
      }
      .result:not(:has(*)) {
        display: none;
      }
    `,
  ];
}

customElements.define("sk-plugin-settings", SkPluginSettings);
