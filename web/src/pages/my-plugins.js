/** `<sk-my-plugins-page>`: the plugins the person may use: what each adds for them, and their own settings for it. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api, onEvent, onReconnect } from "../api/index.js";
import { t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { guardLeaving, navigate } from "../core/router.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { iconOf, partStyles } from "./plugins/parts.js";
import "../ui/page.js";
import "../ui/states.js";
import "./plugins/settings.js";

/** @typedef {import("../api/types.js").MyPlugin} MyPlugin */

export class SkMyPluginsPage extends SkElement {
  static properties = { pluginId: { attribute: false } };

  constructor() {
    super();
    /** the one whose settings are open @type {string | null} */ this.pluginId = null;
    /** @private */ this._plugins = new Resource(async () => /** @type {MyPlugin[]} */ (await api.get("/api/my/plugins")));
    new Watch(this, this._plugins);
    new Watch(this, app.pages);
    /** @private @type {(() => void)[]} */ this._off = [];
    /** @private which one was brought into view */ this._shown = "";
  }

  connectedCallback() {
    super.connectedCallback();
    void this._plugins.load();
    this._off = [
      onEvent("plugins_changed", () => void this._plugins.load()),
      onReconnect(() => void this._plugins.load()),
      guardLeaving(() => /** @type {any} */ (this.renderRoot.querySelector("sk-plugin-settings"))?.dirty ?? false),
    ];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  updated() {
    if (!this.pluginId || this._shown === this.pluginId || !this._plugins.data) return;
    this._shown = this.pluginId;
    this.renderRoot.querySelector(`#p-${CSS.escape(this.pluginId)}`)?.scrollIntoView({ block: "nearest" });
  }

  /** @private @param {MyPlugin} plugin */
  _adds(plugin) {
    const parts = [
      ...plugin.pages.map((page) => html`<a href="/page/${plugin.id}/${page.page_id}">${tt(page.title)}</a>`),
      ...plugin.tools.map((tool) => html`<span title=${tool.name}>${tt(tool.title) || tool.name}</span>`),
      ...plugin.commands.map((command) => html`<code>/${typeof command === "string" ? command : command.name}</code>`),
    ];
    return parts.length ? html`<p class="adds" aria-label=${t("plug.adds")}>${parts}</p>` : nothing;
  }

  /** @private @param {MyPlugin} plugin */
  _card(plugin) {
    const open = plugin.id === this.pluginId;
    const title = tt(plugin.title) || plugin.id;
    return html`<li id="p-${plugin.id}">
      <div class="head">
        <span class="tile"><sk-icon name=${iconOf(plugin.id, { tools: plugin.tools.map((tool) => tool.name) })}></sk-icon></span>
        <div class="words">
          <h2 dir="auto">${title}</h2>
          <p class="soft" dir="auto">${tt(plugin.summary)}</p>
        </div>
        ${plugin.configurable
          ? html`<button
              class="btn small"
              aria-expanded=${open ? "true" : "false"}
              aria-label=${t("my.settings_of", { plugin: title })}
              @click=${() => navigate(open ? "/profile/plugins" : `/profile/plugins/${encodeURIComponent(plugin.id)}`)}
            >
              <sk-icon name="sliders"></sk-icon>${t("plug.settings")}
            </button>`
          : nothing}
      </div>
      ${this._adds(plugin)}
      ${open && plugin.configurable
        ? html`<div class="settings"><sk-plugin-settings .path=${`/api/my/plugins/${encodeURIComponent(plugin.id)}/config`}></sk-plugin-settings></div>`
        : nothing}
    </li>`;
  }

  /** @private */
  _content() {
    const { data, error } = this._plugins;
    if (error && !data) return html`<sk-error .text=${describeError(error)} .retry=${() => this._plugins.load()}></sk-error>`;
    if (!data) return html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`;
    if (!data.length) {
      return html`<sk-empty icon="puzzle" .text=${t(app.can("plugin.manage") ? "my.none_manage" : "my.none")}>
        <a class="btn" href=${app.can("plugin.manage") ? "/plugins" : "/"}>${t(app.can("plugin.manage") ? "my.to_catalog" : "inbox.to_chat")}</a>
      </sk-empty>`;
    }
    const missing = this.pluginId && !data.some((plugin) => plugin.id === this.pluginId);
    return html`${missing ? html`<sk-notice tone="wait">${t("my.not_yours", { plugin: this.pluginId ?? "" })}</sk-notice>` : nothing}
      <ul class="list">
        ${repeat(
          data,
          (plugin) => plugin.id,
          (plugin) => this._card(plugin),
        )}
      </ul>`;
  }

  render() {
    return html`<sk-page .title=${t("nav.my_plugins")} .purpose=${t("my.purpose")} back="/profile" .backLabel=${t("nav.profile")}>${this._content()}</sk-page>`;
  }

  static styles = [
    ...SkElement.styles,
    partStyles,
    css`
      .list {
        list-style: none;
        margin: 0;
        padding: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      .list > li {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
        padding: var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        font-size: var(--size-s);
        overflow-wrap: anywhere;
      }
      .head {
        display: flex;
        flex-wrap: wrap;
        align-items: flex-start;
        gap: var(--s3);
      }
      .words {
        flex: 1 1 12rem;
        min-inline-size: 0;
      }
      h2 {
        font-size: var(--size-m);
        font-weight: 600;
        line-height: var(--leading-tight);
      }
      .adds {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1) var(--s4);
        color: var(--text-soft);
        font-size: var(--size-xs);
      }
      .settings {
        padding-block-start: var(--s4);
        border-block-start: 1px solid var(--line);
      }
      .btn sk-icon {
        --icon-size: 1rem;
      }
    `,
  ];
}

customElements.define("sk-my-plugins-page", SkMyPluginsPage);
