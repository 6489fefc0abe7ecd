/** `<sk-plugin-detail>`: one plugin: state, what it adds, what it may do, its settings, and what went wrong. */
import { css, html, nothing } from "lit";
import { api, onEvent } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { guardLeaving } from "../core/router.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { isSecret } from "../ui/form.js";
import { describeError } from "../ui/states.js";
import { toast, toastError } from "../ui/toast.js";
import { phaseName, stateChip, switchPlugin } from "./plugins.js";
import { hostOf, safeLink } from "./provider-editor.js";
import "../ui/form.js";
import "../ui/page.js";
import "../ui/states.js";

/** @typedef {import("../api/types.js").Plugin} Plugin */

export class SkPluginDetail extends SkElement {
  static properties = { pluginId: { attribute: false }, _busy: { state: true }, _errors: { state: true } };

  constructor() {
    super();
    this.pluginId = "";
    this._busy = "";
    /** @type {Record<string, string>} */ this._errors = {};
    /** @private */ this._plugins = new Resource(async () => /** @type {Plugin[]} */ (await api.get("/api/plugins")));
    /** @private */ this._config = new Resource(async () => /** @type {{schema: import("../ui/form.js").Schema, values: Record<string, any>, secrets?: Record<string, boolean>}} */ (await api.get(`/api/plugins/${encodeURIComponent(this.pluginId)}/config`)));
    new Watch(this, this._plugins);
    new Watch(this, this._config);
    new Watch(this, app.pages);
    /** @private @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this._off = [
      onEvent("plugins_changed", () => void this._plugins.load()),
      guardLeaving(() => /** @type {any} */ (this.renderRoot.querySelector("sk-form"))?.dirty ?? false),
    ];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (!changed.has("pluginId") || !this.pluginId) return;
    this._config.clear();
    if (!app.can("plugin.manage")) return;
    void this._plugins.load();
    void this._config.load();
  }

  /** @private @param {boolean} on */
  async _switch(on) {
    this._busy = "switch";
    try {
      await switchPlugin(this.pluginId, on);
    } catch (error) {
      toastError(error);
    }
    await this._plugins.load();
    void this._config.load();
    this._busy = "";
  }

  /** @private @param {CustomEvent} event */
  async _save(event) {
    this._busy = "save";
    this._errors = {};
    try {
      await api.put(`/api/plugins/${encodeURIComponent(this.pluginId)}/config`, { values: event.detail });
      toast(t("state.saved"), { tone: "done", ms: 2500 });
      await this._config.load();
      void this._plugins.load();
    } catch (error) {
      const body = /** @type {any} */ (error)?.body;
      if (body?.errors && typeof body.errors === "object" && !Array.isArray(body.errors)) this._errors = body.errors;
      toastError(error);
    }
    this._busy = "";
  }

  /** @private @param {Plugin} plugin */
  _adds(plugin) {
    const c = plugin.contributes ?? {};
    const pages = (app.pages.data ?? []).filter((p) => p.plugin === plugin.id);
    /** @type {[string, unknown[]][]} */
    const groups = [
      [t("plug.tools"), (c.tools ?? []).map((name) => html`<code>${name}</code>`)],
      [t("plug.pages"), pages.length ? pages.map((p) => html`<a href="/page/${p.plugin}/${p.page_id}">${tt(p.title)}</a>`) : (c.pages ?? [])],
      [t("plug.providers"), c.providers ?? []],
      [t("plug.services"), c.services ?? []],
      [t("plug.hooks"), (c.hooks ?? []).map((name) => html`<code>${name}</code>`)],
      [t("plug.routes"), typeof c.routes === "number" && c.routes ? [i18n.number(c.routes)] : c.routes === true ? [t("plug.yes")] : []],
    ];
    const filled = groups.filter(([, items]) => items.length);
    return filled.length
      ? html`<dl>${filled.map(([name, items]) => html`<div><dt>${name}</dt><dd>${items.map((item) => html`<span class="thing">${item}</span>`)}</dd></div>`)}</dl>`
      : html`<p class="faint">${t("plug.adds_nothing")}</p>`;
  }

  /** @private */
  _settings() {
    const { data, error } = this._config;
    const properties = data?.schema?.properties ?? {};
    if (error || !data || !Object.keys(properties).length) return nothing;
    const stored = Object.keys(properties).filter((key) => isSecret(properties[key]) && (data.secrets?.[key] || data.values?.[key]));
    return html`<sk-card .heading=${t("plug.settings")}>
      <sk-form
        .schema=${data.schema}
        .values=${data.values ?? {}}
        .stored=${stored}
        .errors=${this._errors}
        .busy=${this._busy === "save"}
        .submitLabel=${t("action.save")}
        @sk-submit=${this._save}
      ></sk-form>
    </sk-card>`;
  }

  render() {
    if (!app.can("plugin.manage")) return html`<sk-page .title=${t("nav.plugins")}><sk-empty icon="shield-lock" .text=${t("plugins.not_allowed")}></sk-empty></sk-page>`;
    const back = { back: "/plugins", label: t("nav.plugins") };
    if (this._plugins.data === null) {
      return html`<sk-page .title=${this.pluginId} .back=${back.back} .backLabel=${back.label}>
        ${this._plugins.error ? html`<sk-error .text=${describeError(this._plugins.error)} .retry=${() => this._plugins.load()}></sk-error>` : html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`}
      </sk-page>`;
    }
    const plugin = this._plugins.data.find((p) => p.id === this.pluginId);
    if (!plugin) {
      return html`<sk-page .title=${this.pluginId} .back=${back.back} .backLabel=${back.label}>
        <sk-empty icon="puzzle" .text=${t("plug.not_installed", { plugin: this.pluginId })}></sk-empty>
      </sk-page>`;
    }
    const barred = !plugin.enabled && (plugin.state === "incompatible" || plugin.state === "blocked");
    const ms = (plugin.import_ms ?? 0) + (plugin.start_ms ?? 0);
    return html`<sk-page .title=${tt(plugin.title) || plugin.id} .purpose=${tt(plugin.summary)} .back=${back.back} .backLabel=${back.label}>
      <sk-button slot="action" .variant=${plugin.enabled ? "" : "primary"} ?busy=${this._busy === "switch"} ?disabled=${barred} @click=${() => this._switch(!plugin.enabled)}>
        ${plugin.enabled ? t("plug.disable") : t("plug.enable")}
      </sk-button>
      <p class="facts">
        ${stateChip(plugin)}
        <span class="faint">${plugin.version} · ${plugin.author || t("plug.no_author")}${plugin.bundled ? html` · ${t("plug.bundled")}` : nothing}${ms ? html` · ${t("plug.start_time", { time: i18n.duration(ms) })}` : nothing}</span>
        ${plugin.homepage ? html`<a class="faint" href=${safeLink(plugin.homepage)} target="_blank" rel="noopener noreferrer">${hostOf(plugin.homepage)}</a>` : nothing}
      </p>
      ${plugin.error
        ? html`<sk-error .text=${`${t("plug.failed_in", { phase: phaseName(plugin.error.phase) })} ${plugin.error.message}`} .details=${plugin.error.traceback ?? ""}></sk-error>`
        : nothing}
      ${plugin.problems.map((problem) => html`<sk-notice tone="wait">${problem}</sk-notice>`)}
      ${plugin.restart_needed ? html`<sk-notice tone="wait">${t("plug.restart")}</sk-notice>` : nothing}
      ${plugin.enabled ? nothing : html`<sk-notice icon="shield-exclamation">${t("plug.trust")}</sk-notice>`}
      ${this._settings()}
      <sk-card .heading=${t("plug.adds")}>${this._adds(plugin)}</sk-card>
      <sk-card .heading=${t("plug.may")}>
        ${plugin.capabilities.length
          ? html`<p class="chips">${plugin.capabilities.map((c) => html`<span class="chip">${c}</span>`)}</p>`
          : html`<p class="faint">${t("plug.may_nothing")}</p>`}
        <p class="faint gap">${t("plug.may_note")}</p>
      </sk-card>
    </sk-page>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      .facts,
      .chips {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2) var(--s3);
      }
      .chip sk-icon {
        --icon-size: 0.9rem;
      }
      dl {
        margin: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      dl div {
        display: grid;
        grid-template-columns: minmax(7rem, 10rem) 1fr;
        gap: var(--s1) var(--s4);
        font-size: var(--size-s);
      }
      @media (max-width: 40rem) {
        dl div {
          grid-template-columns: 1fr;
        }
      }
      dt {
        color: var(--text-faint);
      }
      dd {
        margin: 0;
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1) var(--s3);
        overflow-wrap: anywhere;
      }
      code {
        font-family: var(--mono);
        font-size: 0.8125rem;
      }
      .gap {
        margin-block-start: var(--s3);
      }
    `,
  ];
}

customElements.define("sk-plugin-detail", SkPluginDetail);
