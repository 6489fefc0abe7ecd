/** `<sk-plugin-detail>`: one plugin: state, settings, health, who may use it, what it adds and asks for, what it keeps. */
import { css, html, nothing } from "lit";
import { ApiError, api, onEvent, onReconnect } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { pluginJobs } from "../core/plugin-jobs.js";
import { guardLeaving } from "../core/router.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toastError } from "../ui/toast.js";
import { readJobs } from "./plugins/flow.js";
import { broughtBy, capabilityChips, dataList, hasUpdate, iconOf, isBarred, keepsSomething, partStyles, phaseName, publisher, stateChip, switchPlugin } from "./plugins/parts.js";
import { hostOf, safeLink } from "./provider-editor.js";
import "../markdown/markdown.js";
import "../ui/menu.js";
import "../ui/page.js";
import "../ui/states.js";
import "./plugins/access.js";
import "./plugins/health.js";
import "./plugins/job-banner.js";
import "./plugins/settings.js";

/** @typedef {import("../api/types.js").Plugin} Plugin */
/** @typedef {import("../api/types.js").PluginDetail} PluginDetail */

export class SkPluginDetail extends SkElement {
  static properties = { pluginId: { attribute: false }, _busy: { state: true } };

  constructor() {
    super();
    this.pluginId = "";
    this._busy = false;
    /** @private */ this._plugin = new Resource(async () => /** @type {PluginDetail} */ (await api.get(`/api/plugins/${encodeURIComponent(this.pluginId)}`)));
    new Watch(this, this._plugin);
    new Watch(this, app.pages);
    new Watch(this, pluginJobs, ["ended"], () => this._plugin.load());
    /** @private @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    readJobs();
    this._off = [
      onEvent("plugins_changed", (event) => {
        if (event.id === undefined || event.id === null || event.id === this.pluginId) void this._plugin.load();
      }),
      onReconnect(() => void this._plugin.load()),
      guardLeaving(() => /** @type {any} */ (this.renderRoot.querySelector("sk-plugin-settings"))?.dirty ?? false),
    ];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (!changed.has("pluginId") || !this.pluginId) return;
    this._plugin.clear();
    if (app.can("plugin.manage")) void this._plugin.load();
  }

  /** @private @returns {import("./plugins/flow.js").SkPluginFlow} */
  get _flow() {
    return /** @type {any} */ (this.renderRoot.querySelector("sk-plugin-flow"));
  }

  /** @private @param {boolean} on */
  async _switch(on) {
    this._busy = true;
    try {
      await switchPlugin(this.pluginId, on);
    } catch (error) {
      toastError(error);
    }
    await this._plugin.load();
    this._busy = false;
  }

  /** @private @param {import("../api/types.js").JobAct} act */
  _begin(act) {
    const plugin = this._plugin.data;
    void this._flow.begin({ act, plugin: this.pluginId, title: (plugin && tt(plugin.title)) || this.pluginId });
  }

  /** @private @param {PluginDetail} plugin */
  _acts(plugin) {
    const more = [
      ...(hasUpdate(plugin) ? [] : [{ label: t("plug.check_upgrade"), icon: "arrow-up-circle", run: () => this._begin("upgrade") }]),
      { label: t("plug.uninstall"), icon: "box-arrow-left", help: t("plug.uninstall_help"), run: () => this._begin("uninstall") },
      { label: t("plug.purge"), icon: "trash", help: t("plug.purge_help"), danger: true, divider: true, run: () => this._begin("purge") },
    ];
    return html`<div slot="action" class="acts">
      ${hasUpdate(plugin)
        ? html`<sk-button icon="arrow-up-circle" .variant=${plugin.enabled ? "primary" : ""} @click=${() => this._begin("upgrade")}
            >${t("plug.upgrade_to", { version: plugin.latest_version ?? "" })}</sk-button
          >`
        : nothing}
      <sk-button .variant=${plugin.enabled ? "" : "primary"} ?busy=${this._busy} ?disabled=${isBarred(plugin)} @click=${() => this._switch(!plugin.enabled)}>
        ${plugin.enabled ? t("plug.disable") : t("plug.enable")}
      </sk-button>
      <sk-menu align="end" .label=${t("plug.more_acts")} .items=${more}></sk-menu>
    </div>`;
  }

  /** @private @param {PluginDetail} plugin */
  _facts(plugin) {
    const running = plugin.running_version && plugin.running_version !== plugin.version ? plugin.running_version : "";
    const ms = (plugin.import_ms ?? 0) + (plugin.start_ms ?? 0);
    /** @type {[string, unknown][]} */
    const facts = [
      [t("plug.publisher"), publisher({ author: plugin.author, bundled: plugin.bundled })],
      [
        t("plug.version"),
        html`${plugin.version}${plugin.editable ? html` <span class="chip">${t("plug.editable")}</span>` : nothing}${running
          ? html` · ${t("plug.running_version", { version: running })}`
          : nothing}${hasUpdate(plugin) ? html` · ${t("plug.latest_version", { version: plugin.latest_version ?? "" })}` : nothing}`,
      ],
      [t("plug.package"), html`<code>${plugin.distribution}</code>`],
    ];
    if (plugin.license) facts.push([t("plug.license"), plugin.license]);
    if (plugin.size) facts.push([t("plug.size"), i18n.bytes(plugin.size)]);
    if (ms) facts.push([t("plug.start_up"), t("plug.start_times", { import: milliseconds(plugin.import_ms ?? 0), start: milliseconds(plugin.start_ms ?? 0) })]);
    const links = [
      [plugin.homepage, t("plug.homepage")],
      [plugin.docs, t("plug.docs")],
    ].filter(([href]) => href);
    if (links.length) {
      facts.push([
        t("plug.links"),
        html`<span class="links">${links.map(([href, label]) => html`<a href=${safeLink(href)} target="_blank" rel="noopener noreferrer" title=${hostOf(href)}>${label}</a>`)}</span>`,
      ]);
    }
    return html`<div class="lead">
      <span class="tile"><sk-icon name=${iconOf(plugin.id, plugin.contributes)}></sk-icon></span>
      <div class="chips">
        ${stateChip(plugin)} ${plugin.restart_needed ? html`<span class="chip wait"><sk-icon name="arrow-repeat"></sk-icon>${t("plug.restart_short")}</span>` : nothing}
      </div>
      <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    </div>`;
  }

  /** @private @param {PluginDetail} plugin */
  _adds(plugin) {
    const groups = broughtBy(plugin.contributes ?? {});
    const rights = plugin.rights ?? [];
    if (!groups.length && !rights.length) return html`<p class="faint">${t("plug.adds_nothing")}</p>`;
    const pages = (app.pages.data ?? []).filter((p) => p.plugin === plugin.id);
    return html`<dl class="adds">
      ${groups.map(
        ({ kind, label, items, code }) =>
          html`<div>
            <dt>${label}</dt>
            <dd>
              ${kind === "pages" && pages.length
                ? pages.map((page) => html`<a href="/page/${page.plugin}/${page.page_id}">${tt(page.title)}</a>`)
                : items.map((item) => (code ? html`<code>${item}</code>` : html`<span>${item}</span>`))}
            </dd>
          </div>`,
      )}
      ${rights.length ? html`<div><dt>${t("plug.rights")}</dt><dd>${rights.map((right) => html`<span>${tt(right.title) || right.id}</span>`)}</dd></div>` : nothing}
    </dl>`;
  }

  /** @private @param {string} heading @param {string} text  Markdown of the distribution, untrusted */
  _document(heading, text) {
    return text?.trim()
      ? html`<details class="document">
          <summary>${heading}</summary>
          <sk-markdown .text=${text}></sk-markdown>
        </details>`
      : nothing;
  }

  /** @private @param {PluginDetail} plugin */
  _troubles(plugin) {
    return html`${plugin.error
        ? html`<sk-error
            .text=${`${t("plug.failed_in", { phase: phaseName(plugin.error.phase) })} ${tt(plugin.error.message)}`}
            .details=${plugin.error.traceback ?? ""}
            .retry=${plugin.enabled ? () => this._switch(true) : null}
          ></sk-error>`
        : nothing}
      ${plugin.problems.map((problem) => html`<sk-notice tone="wait">${tt(problem)}</sk-notice>`)}
      ${plugin.restart_needed ? html`<sk-notice tone="wait" icon="arrow-repeat">${t("plug.restart")}</sk-notice>` : nothing}
      ${(plugin.deprecations ?? []).length
        ? html`<sk-notice tone="wait" icon="hourglass-bottom">${t("plug.deprecated")}<ul class="plain">${plugin.deprecations?.map((text) => html`<li>${text}</li>`)}</ul></sk-notice>`
        : nothing}`;
  }

  /** @private */
  _body() {
    const { data: plugin, error } = this._plugin;
    const frame = (/** @type {unknown} */ content) =>
      html`<sk-page .title=${this.pluginId} back="/plugins" .backLabel=${t("nav.plugins")}>
        <sk-job-banner @sk-look=${(/** @type {CustomEvent} */ e) => this._flow.look(e.detail)}></sk-job-banner>
        ${content}
      </sk-page>`;
    if (error && (!plugin || (error instanceof ApiError && error.status === 404))) {
      return frame(
        error instanceof ApiError && error.status === 404
          ? html`<sk-empty icon="puzzle" .text=${t("plug.not_installed", { plugin: this.pluginId })}>
              <a class="btn" href="/plugins">${t("plug.to_catalog")}</a>
              <button class="btn danger" @click=${() => this._begin("purge")}>${t("plug.purge_left")}</button>
            </sk-empty>`
          : html`<sk-error .text=${describeError(error)} .retry=${() => this._plugin.load()}></sk-error>`,
      );
    }
    if (!plugin) return frame(html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`);
    return html`<sk-page .title=${tt(plugin.title) || plugin.id} .purpose=${tt(plugin.summary)} back="/plugins" .backLabel=${t("nav.plugins")}>
      ${this._acts(plugin)}
      <sk-job-banner @sk-look=${(/** @type {CustomEvent} */ e) => this._flow.look(e.detail)}></sk-job-banner>
      ${this._facts(plugin)} ${this._troubles(plugin)}
      ${plugin.enabled ? nothing : html`<sk-notice icon="shield-exclamation">${t("plug.trust")}</sk-notice>`}
      ${plugin.configurable
        ? html`<sk-card .heading=${t("plug.settings")}>
            <sk-plugin-settings
              .path=${`/api/plugins/${encodeURIComponent(plugin.id)}/config`}
              .version=${plugin.state}
              @sk-saved=${() => this._plugin.load()}
            ></sk-plugin-settings>
          </sk-card>`
        : nothing}
      <sk-plugin-health .plugin=${plugin.id} ?running=${plugin.state === "running"}></sk-plugin-health>
      ${plugin.access
        ? html`<sk-card .heading=${t("access.title")}>
            <sk-plugin-access .plugin=${plugin.id} .access=${plugin.access}></sk-plugin-access>
          </sk-card>`
        : nothing}
      <sk-card .heading=${t("plug.adds")}>${this._adds(plugin)}</sk-card>
      <sk-card .heading=${t("plug.may")}>
        ${plugin.capabilities.length ? capabilityChips(plugin.capabilities) : html`<p class="faint">${t("plug.may_nothing")}</p>`}
        <p class="faint gap">${t("plug.may_note")}</p>
      </sk-card>
      ${plugin.data
        ? html`<sk-card .heading=${t("plug.data")}>
            ${keepsSomething(plugin.data) ? html`${dataList(plugin.data)}<p class="faint gap">${t("plug.data_note")}</p>` : html`<p class="faint">${t("plug.data_none")}</p>`}
          </sk-card>`
        : nothing}
      ${plugin.readme || plugin.changelog
        ? html`<sk-card .heading=${t("plug.texts")}>
            ${this._document(t("plug.readme"), plugin.readme)} ${this._document(t("plug.changelog"), plugin.changelog)}
          </sk-card>`
        : nothing}
    </sk-page>`;
  }

  render() {
    if (!app.can("plugin.manage")) return html`<sk-page .title=${t("nav.plugins")}><sk-empty icon="shield-lock" .text=${t("plugins.not_allowed")}><a class="btn" href="/">${t("page.home")}</a></sk-empty></sk-page>`;
    // The dialog outlives what it changes, such as the page of a plugin that is being uninstalled.
    return html`${this._body()}<sk-plugin-flow></sk-plugin-flow>`;
  }

  static styles = [
    ...SkElement.styles,
    partStyles,
    css`
      .acts {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      .lead {
        display: grid;
        grid-template-columns: auto 1fr;
        align-items: center;
        gap: var(--s3);
      }
      .facts {
        grid-column: 1 / -1;
        display: flex;
        flex-wrap: wrap;
        gap: var(--s3) var(--s8);
        margin: 0;
        font-size: var(--size-s);
      }
      .facts dt {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      dd {
        margin: 0;
        overflow-wrap: anywhere;
      }
      .links {
        display: inline-flex;
        gap: var(--s3);
      }
      .adds {
        margin: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      .adds div {
        display: grid;
        grid-template-columns: minmax(7rem, 10rem) 1fr;
        gap: var(--s1) var(--s4);
        font-size: var(--size-s);
      }
      .adds dt {
        color: var(--text-faint);
      }
      .adds dd {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1) var(--s3);
      }
      .gap {
        margin-block-start: var(--s3);
      }
      .plain {
        margin: var(--s1) 0 0;
        padding-inline-start: var(--s5);
      }
      .document + .document {
        margin-block-start: var(--s2);
      }
      summary {
        cursor: pointer;
        font-size: var(--size-s);
        font-weight: 550;
        padding-block: var(--s1);
      }
      .document sk-markdown {
        display: block;
        padding-block: var(--s2);
        max-block-size: 36rem;
        overflow-y: auto;
      }
      @media (max-width: 40rem) {
        .adds div {
          grid-template-columns: 1fr;
        }
      }
    `,
  ];
}

/** Start-up is counted in milliseconds: authors care about small ones. @param {number} ms */
function milliseconds(ms) {
  return i18n.number(ms, { style: "unit", unit: "millisecond", unitDisplay: "short", maximumFractionDigits: ms < 10 ? 1 : 0 });
}

customElements.define("sk-plugin-detail", SkPluginDetail);
