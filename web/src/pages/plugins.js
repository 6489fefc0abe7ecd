/** `<sk-plugins-page>`: every installed plugin, what it does, and whether it runs. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api, onEvent } from "../api/index.js";
import { t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toastError } from "../ui/toast.js";
import "../ui/page.js";
import "../ui/states.js";
import "../ui/switch.js";

/** @typedef {import("../api/types.js").Plugin} Plugin */

export const STATE_TONES = /** @type {Record<Plugin["state"], [string, string]>} */ ({
  running: ["done", "check-circle"],
  starting: ["run", "arrow-repeat"],
  disabled: ["", "circle"],
  stopped: ["", "stop-circle"],
  needs_config: ["wait", "sliders"],
  failed: ["fail", "exclamation-circle"],
  incompatible: ["fail", "x-octagon"],
  blocked: ["fail", "slash-circle"],
});

/** The state as icon and word. @param {Plugin} plugin */
export function stateChip(plugin) {
  const [tone, icon] = STATE_TONES[plugin.state] ?? ["", "question-circle"];
  return html`<span class="chip ${tone}"><sk-icon name=${icon}></sk-icon>${t(`plug.state.${plugin.state}`)}</span>`;
}

/**
 * @param {string} id @param {boolean} on
 * @returns {Promise<Plugin>}
 */
export function switchPlugin(id, on) {
  return api.post(`/api/plugins/${encodeURIComponent(id)}/${on ? "enable" : "disable"}`, {}, { timeout: 120_000 });
}

export class SkPluginsPage extends SkElement {
  static properties = { _query: { state: true }, _filter: { state: true }, _busy: { state: true } };

  constructor() {
    super();
    this._query = "";
    /** @type {"all" | "on" | "off" | "trouble"} */ this._filter = "all";
    /** @type {Set<string>} */ this._busy = new Set();
    /** @private */ this._plugins = new Resource(async () => /** @type {Plugin[]} */ (await api.get("/api/plugins")));
    new Watch(this, this._plugins);
    /** @private */ this._off = () => {};
  }

  connectedCallback() {
    super.connectedCallback();
    if (app.can("plugin.manage")) void this._plugins.load();
    this._off = onEvent("plugins_changed", () => void this._plugins.load());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._off();
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

  /** @private @param {Plugin} plugin */
  _trouble(plugin) {
    return ["failed", "incompatible", "blocked", "needs_config"].includes(plugin.state) || plugin.problems.length > 0;
  }

  /** @private @param {Plugin} plugin */
  _card(plugin) {
    const title = tt(plugin.title) || plugin.id;
    return html`<li>
      <div class="head">
        <a class="name" href="/plugins/${plugin.id}" dir="auto">${title}</a>
        ${this._busy.has(plugin.id) ? html`<span class="chip run"><sk-icon name="arrow-repeat"></sk-icon>${t("plug.working")}</span>` : stateChip(plugin)}
        <sk-switch
          hide-label
          .label=${t("plug.switch", { plugin: title })}
          .checked=${plugin.enabled}
          ?disabled=${this._busy.has(plugin.id) || (!plugin.enabled && (plugin.state === "incompatible" || plugin.state === "blocked"))}
          @change=${(/** @type {CustomEvent} */ e) => this._switch(plugin, e.detail)}
        ></sk-switch>
      </div>
      <p class="soft" dir="auto">${tt(plugin.summary)}</p>
      ${plugin.error ? html`<p class="bad">${t("plug.failed_in", { phase: phaseName(plugin.error.phase) })} ${plugin.error.message}</p>` : nothing}
      ${plugin.restart_needed ? html`<p class="wait">${t("plug.restart")}</p>` : nothing}
      <p class="faint">${plugin.version} · ${plugin.author || t("plug.no_author")}${plugin.bundled ? html` · ${t("plug.bundled")}` : nothing}</p>
    </li>`;
  }

  render() {
    if (!app.can("plugin.manage")) {
      return html`<sk-page .title=${t("nav.plugins")}><sk-empty icon="shield-lock" .text=${t("plugins.not_allowed")}></sk-empty></sk-page>`;
    }
    const all = this._plugins.data ?? [];
    const words = this._query.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = all.filter((p) => {
      if (this._filter === "on" && !p.enabled) return false;
      if (this._filter === "off" && p.enabled) return false;
      if (this._filter === "trouble" && !this._trouble(p)) return false;
      const text = `${p.id} ${tt(p.title)} ${tt(p.summary)} ${(p.contributes?.tools ?? []).join(" ")}`.toLowerCase();
      return words.every((w) => text.includes(w));
    });
    const trouble = all.filter((p) => this._trouble(p)).length;
    /** @type {[typeof this._filter, string][]} */
    const filters = [
      ["all", t("plugins.all")],
      ["on", t("plugins.on")],
      ["off", t("plugins.off")],
    ];
    if (trouble) filters.push(["trouble", t("plugins.trouble", { count: trouble })]);
    return html`<sk-page .title=${t("nav.plugins")} .purpose=${t("plugins.purpose")}>
      <sk-notice icon="shield-exclamation">${t("plugins.trust")}</sk-notice>
      <div class="tools">
        <input
          class="field"
          type="search"
          aria-label=${t("plugins.search")}
          placeholder=${t("plugins.search")}
          @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
        />
        <div class="filters" role="group" aria-label=${t("plugins.filter")}>
          ${filters.map(
            ([id, label]) =>
              html`<button class="btn small ${this._filter === id ? "on" : "plain"}" aria-pressed=${this._filter === id ? "true" : "false"} @click=${() => (this._filter = id)}>${label}</button>`,
          )}
        </div>
      </div>
      ${this._plugins.error && !this._plugins.data
        ? html`<sk-error .text=${describeError(this._plugins.error)} .retry=${() => this._plugins.load()}></sk-error>`
        : this._plugins.data === null
          ? html`<sk-skeleton shape="cards" lines="4"></sk-skeleton>`
          : shown.length
            ? html`<ul>
                ${repeat(
                  shown,
                  (p) => p.id,
                  (p) => this._card(p),
                )}
              </ul>`
            : html`<sk-empty icon="puzzle" .text=${all.length ? t("state.no_match") : t("plugins.none")}></sk-empty>`}
    </sk-page>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      .tools {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s3);
      }
      .tools .field {
        flex: 1 1 14rem;
        max-inline-size: 22rem;
      }
      .filters {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1);
      }
      .filters .on {
        background: var(--tint-strong);
        border-color: transparent;
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
        display: grid;
        grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr));
        gap: var(--s3);
      }
      li {
        display: flex;
        flex-direction: column;
        gap: var(--s1);
        padding: var(--s4) var(--s5);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        font-size: var(--size-s);
        line-height: 1.5;
        overflow-wrap: anywhere;
      }
      .head {
        display: flex;
        align-items: center;
        gap: var(--s2);
      }
      .head sk-switch {
        margin-inline-start: auto;
      }
      .name {
        font-size: var(--size-m);
        font-weight: 600;
        color: var(--text);
        text-decoration: none;
      }
      .name:hover {
        text-decoration: underline;
      }
      li .faint {
        font-size: var(--size-xs);
        margin-block-start: auto;
        padding-block-start: var(--s1);
      }
      .bad {
        color: var(--fail);
      }
      .wait {
        color: var(--wait);
      }
      .chip sk-icon {
        --icon-size: 0.9rem;
      }
    `,
  ];
}

customElements.define("sk-plugins-page", SkPluginsPage);

/** @param {string} phase */
export function phaseName(phase) {
  const key = `plug.phase.${phase}`;
  const known = t(key);
  return known === key ? phase : known;
}
