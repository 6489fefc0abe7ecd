/** `<sk-plugins-page>`: the catalog: what is installed, what the index offers, what needs attention. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api, onEvent, onReconnect } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { pluginJobs } from "../core/plugin-jobs.js";
import { navigate, router } from "../core/router.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toastError } from "../ui/toast.js";
import { availableCard, cardStyles, installedCard } from "./plugins/cards.js";
import { readJobs } from "./plugins/flow.js";
import { dataList, inTrouble, partStyles, switchPlugin } from "./plugins/parts.js";
import "../ui/command-line.js";
import "../ui/dialog.js";
import "../ui/page.js";
import "../ui/states.js";
import "./plugins/job-banner.js";

/**
 * @typedef {import("../api/types.js").Plugin} Plugin
 * @typedef {import("../api/types.js").Available} Available
 * @typedef {import("../api/types.js").AvailableList} AvailableList
 * @typedef {"installed" | "available" | "problems"} Tab
 */

export class SkPluginsPage extends SkElement {
  static properties = { _query: { state: true }, _busy: { state: true }, _naming: { state: true }, _name: { state: true } };

  constructor() {
    super();
    this._query = "";
    /** @type {Set<string>} */ this._busy = new Set();
    /** the dialog for a name is open */ this._naming = false;
    this._name = "";
    /** @private */ this._plugins = new Resource(async () => /** @type {Plugin[]} */ (await api.get("/api/plugins")));
    /** @private */ this._available = new Resource(async () => /** @type {AvailableList} */ (await api.get("/api/plugins/available", { timeout: 90_000 })));
    /** @private what plugins left that are gone */
    this._remains = new Resource(async () => /** @type {{id: string, data: import("../api/types.js").PluginData}[]} */ (await api.get("/api/plugins/remains")));
    new Watch(this, this._plugins);
    new Watch(this, this._remains);
    new Watch(this, this._available);
    new Watch(this, app.pages);
    new Watch(this, router);
    new Watch(this, pluginJobs, ["ended"], () => this._load());
    /** @private @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    if (app.can("plugin.manage")) this._load();
    readJobs();
    this._off = [onEvent("plugins_changed", () => void this._plugins.load()), onReconnect(() => this._load())];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  /** @private */
  _load() {
    void this._plugins.load();
    void this._available.load();
    void this._remains.load();
  }

  /** @private @returns {Tab} */
  get _tab() {
    const wanted = new URLSearchParams(location.search).get("show");
    return wanted === "available" || wanted === "problems" ? wanted : "installed";
  }

  /** @private @returns {import("./plugins/flow.js").SkPluginFlow} */
  get _flow() {
    return /** @type {any} */ (this.renderRoot.querySelector("sk-plugin-flow"));
  }

  /** @private @param {Plugin} plugin @param {boolean} on */
  async _switch(plugin, on) {
    this._busy = new Set(this._busy).add(plugin.id);
    try {
      const fresh = await switchPlugin(plugin.id, on);
      this._plugins.set((this._plugins.data ?? []).map((p) => (p.id === plugin.id ? fresh : p)));
    } catch (error) {
      toastError(error);
      void this._plugins.load();
    }
    const next = new Set(this._busy);
    next.delete(plugin.id);
    this._busy = next;
  }

  /** @private @param {string} text */
  _matches(text) {
    const found = text.toLowerCase();
    return this._query
      .toLowerCase()
      .split(/\s+/)
      .filter(Boolean)
      .every((word) => found.includes(word));
  }

  /** @private @param {Plugin} plugin */
  _entryOf(plugin) {
    return this._available.data?.items.find((entry) => entry.name === plugin.distribution) ?? null;
  }

  /** @private @param {Plugin[]} plugins @param {unknown} none */
  _installed(plugins, none) {
    const shown = plugins.filter((p) =>
      this._matches([p.id, p.distribution, tt(p.title), tt(p.summary), p.author, ...(p.contributes?.tools ?? []), ...(p.contributes?.commands ?? [])].join(" ")),
    );
    if (!plugins.length) return none;
    if (!shown.length) return this._noMatch();
    return html`<ul class="cards">
      ${repeat(
        shown,
        (p) => p.id,
        (p) =>
          html`<li>
            ${installedCard(p, {
              entry: this._entryOf(p),
              busy: this._busy.has(p.id),
              toggle: (on) => void this._switch(p, on),
              upgrade: () => void this._flow.begin({ act: "upgrade", plugin: p.id, title: tt(p.title) || p.id }),
            })}
          </li>`,
      )}
    </ul>`;
  }

  /** @private */
  _noMatch() {
    return html`<sk-empty icon="search" .text=${t("state.no_match")}><button class="btn" @click=${() => (this._query = "")}>${t("plugins.clear_search")}</button></sk-empty>`;
  }

  /** @private */
  _offered() {
    const { data, error } = this._available;
    if (error && !data) return html`<sk-error .text=${describeError(error)} .retry=${() => this._available.load()}></sk-error>`;
    if (!data) return html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`;
    const shown = data.items.filter((entry) => this._matches([entry.name, tt(entry.title), tt(entry.summary), entry.author].join(" ")));
    const byName = html`<button class="btn" @click=${() => this._askName()}><sk-icon name="plus-lg"></sk-icon>${t("plugins.by_name")}</button>`;
    return html`${data.index.error
        ? html`<sk-notice tone="wait">${t("plugins.index_failed", { reason: data.index.error })}<button slot="action" class="btn small" @click=${() => this._available.load()}>${t("action.try_again")}</button></sk-notice>`
        : nothing}
      ${data.items.length
        ? shown.length
          ? html`<ul class="cards">
              ${repeat(
                shown,
                (entry) => entry.name,
                (entry) =>
                  html`<li>
                    ${availableCard(entry, {
                      advice: data.advice !== null,
                      install: () => void this._flow.begin(this._wishFor(entry)),
                    })}
                  </li>`,
              )}
            </ul>`
          : this._noMatch()
        : html`<sk-empty icon="box-seam" .text=${t("plugins.none_offered")}>${byName}</sk-empty>`}
      ${data.index.title
        ? html`<p class="faint source">
            ${data.index.updated_at ? t("plugins.index_of", { index: data.index.title, when: i18n.date(data.index.updated_at) }) : data.index.title}
          </p>`
        : nothing}`;
  }

  /** @private @param {Available} entry @returns {import("./plugins/flow.js").Wish} */
  _wishFor(entry) {
    const installed = this._plugins.data?.find((p) => p.distribution === entry.name);
    const title = tt(entry.title) || entry.name;
    return installed ? { act: "upgrade", plugin: installed.id, title } : { act: "install", requirement: entry.name, title };
  }

  /** @private What plugins.lock asks for and this environment lacks, e.g. after it was built anew. */
  _missing() {
    const missing = this._available.data?.missing ?? [];
    if (!missing.length) return nothing;
    return html`<sk-notice tone="wait">
      ${t("plugins.missing", { count: missing.length, names: missing.map((row) => `${row.name} ${row.version}`).join(", ") })}
      <button slot="action" class="btn small" @click=${() => this._flow.begin({ act: "restore" })}>${t("flow.do.restore")}</button>
    </sk-notice>`;
  }

  /** @private */
  _left() {
    const left = this._remains.data ?? [];
    if (!left.length) return nothing;
    return html`<sk-card .heading=${t("plugins.remains")}>
      <p class="faint">${t("plugins.remains_help")}</p>
      <ul class="left">
        ${left.map(
          ({ id, data }) =>
            html`<li>
              <div><strong>${id}</strong> ${dataList(data)}</div>
              <button class="btn small danger" aria-label="${t("plug.purge")}: ${id}" @click=${() => this._flow.begin({ act: "purge", plugin: id })}>${t("plug.purge")}</button>
            </li>`,
        )}
      </ul>
    </sk-card>`;
  }

  /** @private */
  _askName() {
    this._name = "";
    this._naming = true;
  }

  /** @private @param {Event} event */
  _installNamed(event) {
    event.preventDefault();
    const requirement = this._name.trim();
    if (!requirement) return;
    this._naming = false;
    void this._flow.begin({ act: "install", requirement });
  }

  /** @private */
  _nameDialog() {
    return html`<sk-dialog .heading=${t("plugins.by_name_title")} .open=${this._naming} @sk-close=${() => (this._naming = false)}>
      <form id="by-name" @submit=${this._installNamed}>
        <label for="requirement">${t("plugins.package")}</label>
        <input
          class="field"
          id="requirement"
          autofocus
          autocomplete="off"
          autocapitalize="off"
          spellcheck="false"
          placeholder="skald-plugin-weather"
          aria-describedby="requirement-help"
          .value=${this._name}
          @input=${(/** @type {Event} */ e) => (this._name = /** @type {HTMLInputElement} */ (e.target).value)}
        />
        <p class="faint" id="requirement-help">${t("plugins.package_help")}</p>
        <button type="submit" hidden></button>
      </form>
      <sk-button slot="actions" @click=${() => (this._naming = false)}>${t("action.cancel")}</sk-button>
      <sk-button
        slot="actions"
        variant="primary"
        ?disabled=${!this._name.trim()}
        @click=${() => /** @type {HTMLFormElement} */ (this.renderRoot.querySelector("#by-name")).requestSubmit()}
        >${t("plugins.look")}</sk-button
      >
    </sk-dialog>`;
  }

  /** @private @param {Tab} tab */
  _show(tab) {
    const url = new URL(location.href);
    if (tab === "installed") url.searchParams.delete("show");
    else url.searchParams.set("show", tab);
    void navigate(url.pathname + url.search);
  }

  /** @private */
  _content() {
    const { data, error } = this._plugins;
    if (this._tab === "available") return this._offered();
    if (error && !data) return html`<sk-error .text=${describeError(error)} .retry=${() => this._plugins.load()}></sk-error>`;
    if (!data) return html`<sk-skeleton shape="cards" lines="4"></sk-skeleton>`;
    if (this._tab === "problems") return this._installed(data.filter(inTrouble), html`<sk-empty icon="check2-circle" .text=${t("plugins.no_problems")}></sk-empty>`);
    return this._installed(
      data,
      html`<sk-empty icon="puzzle" .text=${t("plugins.none")}><button class="btn primary" @click=${() => this._show("available")}>${t("plugins.to_available")}</button></sk-empty>`,
    );
  }

  render() {
    if (!app.can("plugin.manage")) {
      return html`<sk-page .title=${t("nav.plugins")}><sk-empty icon="shield-lock" .text=${t("plugins.not_allowed")}><a class="btn" href="/">${t("page.home")}</a></sk-empty></sk-page>`;
    }
    const tab = this._tab;
    const trouble = (this._plugins.data ?? []).filter(inTrouble).length;
    const advice = this._available.data?.advice ?? null;
    /** @type {[Tab, string, number | null][]} */
    const tabs = [
      ["installed", t("plugins.installed"), this._plugins.data?.length ?? null],
      ["available", t("plugins.available"), null],
      ["problems", t("plugins.problems"), this._plugins.data ? trouble : null],
    ];
    return html`<sk-page .title=${t("nav.plugins")} .purpose=${t("plugins.purpose")}>
        <sk-button slot="action" icon="plus-lg" @click=${() => this._askName()}>${t("plugins.by_name")}</sk-button>
        <sk-job-banner @sk-look=${(/** @type {CustomEvent} */ e) => this._flow.look(e.detail)}></sk-job-banner>
        ${advice
          ? html`<sk-notice tone="wait" icon="terminal">
              ${advice.reason} ${advice.command ? html`<sk-command-line .text=${advice.command}></sk-command-line>` : t("plugins.advice_how")}
            </sk-notice>`
          : nothing}
        ${this._missing()}
        <sk-notice icon="shield-exclamation">${t("plugins.trust")}</sk-notice>
        <div class="tools">
          <div class="tabs" role="group" aria-label=${t("plugins.filter")}>
            ${tabs.map(
              ([id, label, count]) =>
                html`<button class="btn small ${tab === id ? "on" : "plain"}" aria-pressed=${tab === id ? "true" : "false"} @click=${() => this._show(id)}>
                  ${label}${count === null ? nothing : html` <span class="n ${id === "problems" && count ? "wait" : ""}">${i18n.number(count)}</span>`}
                </button>`,
            )}
          </div>
          <input
            class="field"
            type="search"
            aria-label=${t("plugins.search")}
            placeholder=${t("plugins.search")}
            .value=${this._query}
            @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
          />
        </div>
        ${this._content()} ${tab === "available" ? nothing : this._left()}
      </sk-page>
      ${this._nameDialog()} <sk-plugin-flow></sk-plugin-flow>`;
  }

  static styles = [
    ...SkElement.styles,
    partStyles,
    cardStyles,
    css`
      .tools {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        justify-content: space-between;
        gap: var(--s3);
      }
      .tools .field {
        flex: 1 1 12rem;
        max-inline-size: 20rem;
      }
      .tabs {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1);
      }
      .tabs .on {
        background: var(--tint-strong);
        border-color: transparent;
      }
      .n {
        font-variant-numeric: tabular-nums;
        color: var(--text-soft);
        font-weight: 400;
      }
      .n.wait {
        color: var(--wait);
        font-weight: 600;
      }
      .left {
        list-style: none;
        margin: var(--s2) 0 0;
        padding: 0;
        font-size: var(--size-s);
      }
      .left li {
        display: flex;
        flex-wrap: wrap;
        align-items: flex-start;
        gap: var(--s3);
        padding-block: var(--s3);
        border-block-start: 1px solid var(--line);
      }
      .left div {
        flex: 1 1 14rem;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      .source {
        font-size: var(--size-xs);
      }
      form label {
        display: block;
        font-size: var(--size-s);
        font-weight: 550;
        margin-block-end: var(--s1);
      }
      form p {
        margin-block-start: var(--s1);
      }
      sk-command-line {
        margin-block-start: var(--s2);
      }
      @media (max-width: 40rem) {
        .tools .field {
          max-inline-size: none;
          flex-basis: 100%;
        }
      }
    `,
  ];
}

customElements.define("sk-plugins-page", SkPluginsPage);
