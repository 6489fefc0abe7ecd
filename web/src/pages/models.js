/** `<sk-models-page>`: which models answer, in which order; the servers they come from; new ones found or chosen. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { navigate } from "../core/router.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { confirmDialog } from "../ui/dialog.js";
import { describeError } from "../ui/states.js";
import { toast, toastError, undoable } from "../ui/toast.js";
import "../ui/menu.js";
import "../ui/page.js";
import "../ui/states.js";
import "../ui/switch.js";
import "./provider-editor.js";

/**
 * @typedef {import("../api/types.js").Model} Model
 * @typedef {import("../api/types.js").Provider} Provider
 * @typedef {import("../api/types.js").ProviderType} ProviderType
 * @typedef {import("../api/types.js").ProviderPreset} ProviderPreset
 * @typedef {import("../api/types.js").FoundServer} FoundServer
 */

const MANY = 8;

export class SkModelsPage extends SkElement {
  static properties = {
    _editor: { state: true },
    _tests: { state: true },
    _adding: { state: true },
    _using: { state: true },
    _drag: { state: true },
    _hidden: { state: true },
    _said: { state: true },
  };

  constructor() {
    super();
    /** @type {{type: ProviderType, preset: ProviderPreset | null, provider: Provider | null, initial: {name: string, settings: Record<string, string>} | null} | null} */
    this._editor = null;
    /** model id → how its test went @type {Map<string, {busy: boolean, ok: boolean, words: string}>} */ this._tests = new Map();
    this._adding = false;
    this._using = "";
    /** index being dragged @type {number | null} */ this._drag = null;
    /** deleted here, undo still possible @type {Set<string>} */ this._hidden = new Set();
    /** for the live region */ this._said = "";
    /** @private */ this._types = new Resource(async () => /** @type {ProviderType[]} */ (await api.get("/api/provider-types")));
    /** @private */ this._providers = new Resource(async () => /** @type {Provider[]} */ (await api.get("/api/providers")));
    /** @private */ this._found = new Resource(async () => /** @type {FoundServer[]} */ (await api.get("/api/providers/discover")));
    for (const each of [app.models, this._types, this._providers, this._found]) new Watch(this, each);
    new Watch(this, app.models, ["change"], () => app.can("models.manage") && void this._providers.load());
  }

  connectedCallback() {
    super.connectedCallback();
    void app.models.load();
    if (!app.can("models.manage")) return;
    void this._types.load();
    void this._providers.load();
    void this._found.load();
  }

  /** @private */
  _models() {
    return (app.models.data ?? []).filter((m) => !this._hidden.has(String(m.id)));
  }

  /** @private @param {Model} model @param {Partial<Model>} change */
  async _patch(model, change) {
    app.models.set((app.models.data ?? []).map((m) => (m.id === model.id ? { ...m, ...change } : m)));
    try {
      await api.patch(`/api/models/${model.id}`, change);
    } catch (error) {
      toastError(error);
    }
    void app.models.load();
  }

  /** @private @param {Model} model */
  async _test(model) {
    const id = String(model.id);
    /** @param {{busy: boolean, ok: boolean, words: string}} state */
    const set = (state) => (this._tests = new Map(this._tests).set(id, state));
    set({ busy: true, ok: false, words: t("model.testing") });
    const began = performance.now();
    try {
      const result = await api.post(`/api/models/${model.id}/test`, {}, { timeout: 120_000 });
      const time = i18n.duration(performance.now() - began);
      set({ busy: false, ok: result.ok, words: result.ok ? t("model.test_ok", { time }) : tt(result.error?.message) || t("provider.failed") });
    } catch (error) {
      set({ busy: false, ok: false, words: describeError(error) });
    }
  }

  /** @private @param {number} from @param {number} to */
  async _move(from, to) {
    const models = this._models();
    if (to < 0 || to >= models.length || from === to) return;
    const order = models.slice();
    const [moved] = order.splice(from, 1);
    order.splice(to, 0, moved);
    app.models.set(order);
    this._said = t("model.moved", { model: moved.title || moved.model, position: to + 1, total: order.length });
    await this.updateComplete;
    /** @type {HTMLElement | null} */ (this.renderRoot.querySelector(`[data-handle="${CSS.escape(String(moved.id))}"]`))?.focus();
    try {
      await api.put("/api/models/order", { ids: order.map((m) => m.id) });
    } catch (error) {
      toastError(error);
      void app.models.load();
    }
  }

  /** @private @param {Model} model */
  _delete(model) {
    const id = String(model.id);
    this._hidden = new Set(this._hidden).add(id);
    const show = () => {
      const next = new Set(this._hidden);
      next.delete(id);
      this._hidden = next;
    };
    undoable({
      text: t("model.removed", { model: model.title || model.model }),
      undo: show,
      commit: (closing) =>
        api.delete(`/api/models/${model.id}`, { keepalive: closing }).then(
          () => app.models.load(),
          (error) => {
            show();
            toastError(error);
          },
        ),
    });
  }

  /** @private @param {Provider} provider */
  async _deleteProvider(provider) {
    const count = (app.models.data ?? []).filter((m) => String(m.provider) === String(provider.id)).length;
    const sure = await confirmDialog({
      heading: t("provider.delete_title", { name: provider.name }),
      text: t("provider.delete_text", { count }),
      confirm: t("provider.delete"),
      danger: true,
    });
    if (!sure) return;
    try {
      await api.delete(`/api/providers/${provider.id}`);
    } catch (error) {
      toastError(error);
    }
    void this._providers.load();
    void app.models.load();
  }

  /** @private @param {ProviderType} type @param {ProviderPreset | null} [preset] @param {Provider | null} [provider] */
  _edit(type, preset = null, provider = null) {
    this._editor = { type, preset, provider, initial: null };
  }

  /** Use a server found on this machine: connection and models in one go. @private @param {FoundServer} found */
  async _use(found) {
    const type = this._types.data?.find((x) => x.id === found.type);
    if (found.models.length > MANY || !found.models.length) {
      if (type) this._editor = { type, preset: null, provider: null, initial: { name: found.title, settings: found.settings } };
      return;
    }
    this._using = found.title;
    try {
      const provider = await api.post("/api/providers", { type: found.type, name: found.title, settings: found.settings });
      for (const m of found.models) await api.post("/api/models", { provider: provider.id, model: m.id, title: m.title ?? "", ...(m.info ? { info: m.info } : {}) });
      toast(t("model.added", { count: found.models.length }), { tone: "done" });
    } catch (error) {
      toastError(error);
    }
    this._using = "";
    this._reload();
  }

  /** @private */
  _reload() {
    void this._providers.load();
    void app.models.load();
    void this._found.load();
  }

  /** @private servers that no connection uses yet */
  _unused() {
    const used = new Set((this._providers.data ?? []).map((p) => (p.settings.base_url ?? JSON.stringify(p.settings)).replace(/\/+$/, "")));
    return (this._found.data ?? []).filter((f) => !used.has((f.settings.base_url ?? JSON.stringify(f.settings)).replace(/\/+$/, "")));
  }

  /** @private @param {Model} model @param {number} index @param {number} total */
  _row(model, index, total) {
    const test = this._tests.get(String(model.id));
    const name = model.title || model.model;
    return html`<li
      class=${this._drag === index ? "dragging" : ""}
      draggable="true"
      @dragstart=${(/** @type {DragEvent} */ e) => {
        this._drag = index;
        e.dataTransfer?.setData("text/plain", name);
        if (e.dataTransfer) e.dataTransfer.effectAllowed = "move";
      }}
      @dragend=${() => (this._drag = null)}
      @dragover=${(/** @type {DragEvent} */ e) => this._drag !== null && e.preventDefault()}
      @drop=${(/** @type {DragEvent} */ e) => {
        e.preventDefault();
        if (this._drag !== null) void this._move(this._drag, index);
        this._drag = null;
      }}
    >
      <button
        class="btn plain icon handle"
        data-handle=${String(model.id)}
        aria-label=${t("model.move", { model: name, position: index + 1, total })}
        title=${t("model.move_help")}
        @keydown=${(/** @type {KeyboardEvent} */ e) => {
          if (e.key !== "ArrowUp" && e.key !== "ArrowDown") return;
          e.preventDefault();
          void this._move(index, index + (e.key === "ArrowUp" ? -1 : 1));
        }}
      >
        <sk-icon name="grip-vertical"></sk-icon>
      </button>
      <div class="what">
        <p class="name" dir="auto">
          ${name} ${index === 0 && model.enabled ? html`<span class="chip">${t("model.first")}</span>` : nothing} ${this._health(model)}
          ${model.info?.weak ? html`<span class="chip">${t("model.weak")}</span>` : nothing}
        </p>
        <p class="faint" dir="auto">
          ${model.provider_name}${model.title && model.title !== model.model ? html` · ${model.model}` : nothing}${model.info?.context_window
            ? html` · ${t("model.context", { tokens: i18n.number(model.info.context_window, { notation: "compact" }) })}`
            : nothing}
        </p>
        ${test ? html`<p class="test ${test.busy ? "" : test.ok ? "ok" : "bad"}" role="status">${test.words}</p>` : nothing}
        ${!test && model.health !== "ok" && model.last_error ? html`<p class="test bad">${model.last_error}</p>` : nothing}
      </div>
      <sk-switch hide-label .label=${t("model.use", { model: name })} .checked=${model.enabled} @change=${(/** @type {CustomEvent} */ e) => this._patch(model, { enabled: e.detail })}></sk-switch>
      <sk-menu
        align="end"
        .label=${t("model.menu", { model: name })}
        .items=${[
          { label: t("model.test"), icon: "plug", run: () => this._test(model) },
          { label: t("model.up"), icon: "arrow-up", disabled: index === 0, run: () => this._move(index, index - 1) },
          { label: t("model.down"), icon: "arrow-down", disabled: index === total - 1, run: () => this._move(index, index + 1) },
          { label: t("model.remove"), icon: "trash", danger: true, divider: true, run: () => this._delete(model) },
        ]}
      ></sk-menu>
    </li>`;
  }

  /** @private @param {Model} model */
  _health(model) {
    if (!model.enabled || model.health === "ok") return nothing;
    return model.health === "down"
      ? html`<span class="chip fail"><sk-icon name="exclamation-circle"></sk-icon>${t("model.down_now")}</span>`
      : html`<span class="chip wait"><sk-icon name="exclamation-triangle"></sk-icon>${t("model.degraded")}</span>`;
  }

  /** @private */
  _addCards() {
    const types = this._types.data ?? [];
    const found = this._unused();
    const setups = types.filter((x) => x.setup_page);
    const presets = types.flatMap((type) => type.presets.map((preset) => ({ type, preset })));
    const local = presets.filter(({ preset }) => preset.local);
    const cloud = presets.filter(({ preset }) => !preset.local);
    const custom = types.filter((type) => type.fields.length);
    return html`${found.length || this._found.loading
        ? html`<h3>${t("add.found")}</h3>
            <div class="cards">
              ${found.map(
                (f) => html`<div class="pick">
                  <p class="name"><sk-icon name="pc-display"></sk-icon>${f.title}</p>
                  <p class="faint">${f.settings.base_url ?? ""}</p>
                  <p class="faint">${f.models.length ? f.models.slice(0, 3).map((m) => m.title || m.id).join(", ") + (f.models.length > 3 ? " …" : "") : t("add.no_models")}</p>
                  <sk-button variant="primary" size="small" ?busy=${this._using === f.title} @click=${() => this._use(f)}>${t("add.use")}</sk-button>
                </div>`,
              )}
              ${this._found.loading && !found.length ? html`<sk-skeleton shape="cards" lines="1"></sk-skeleton>` : nothing}
            </div>`
        : nothing}
      ${setups.length
        ? html`<h3>${t("add.here")}</h3>
            <div class="cards">
              ${setups.map(
                (type) => html`<div class="pick">
                  <p class="name"><sk-icon name="box-seam"></sk-icon>${tt(type.title)}</p>
                  <p class="faint">${tt(type.summary)}</p>
                  <a class="btn small" href="/page/${/** @type {any} */ (type.setup_page).plugin}/${/** @type {any} */ (type.setup_page).page}">${t("add.set_up")}</a>
                </div>`,
              )}
            </div>`
        : nothing}
      ${[
        { title: t("add.local"), list: local, icon: "hdd-network" },
        { title: t("add.cloud"), list: cloud, icon: "cloud" },
      ].map(({ title, list, icon }) =>
        list.length
          ? html`<h3>${title}</h3>
              <div class="cards small">
                ${list.map(
                  ({ type, preset }) =>
                    html`<button class="pick" @click=${() => this._edit(type, preset)}>
                      <span class="name"><sk-icon name=${icon}></sk-icon>${tt(preset.title)}</span>
                      <span class="faint">${preset.key === "required" ? t("add.key") : preset.key === "optional" ? t("add.key_optional") : t("add.no_key")}</span>
                    </button>`,
                )}
              </div>`
          : nothing,
      )}
      ${custom.length
        ? html`<h3>${t("add.other")}</h3>
            <div class="cards small">
              ${custom.map(
                (type) =>
                  html`<button class="pick" @click=${() => this._edit(type)}><span class="name"><sk-icon name="sliders"></sk-icon>${tt(type.title)}</span><span class="faint">${tt(type.summary)}</span></button>`,
              )}
            </div>`
        : nothing}`;
  }

  render() {
    const manage = app.can("models.manage");
    const models = this._models();
    const types = this._types.data ?? [];
    const none = app.models.data !== null && !models.length;
    const adding = this._adding || none;
    const editor = this._editor;
    return html`<sk-page .title=${t("nav.models")} .purpose=${t("models.purpose")}>
      ${manage && !none ? html`<sk-button slot="action" .variant=${adding ? "" : "primary"} icon=${adding ? "x-lg" : "plus-lg"} @click=${() => (this._adding = !this._adding)}>${adding ? t("action.close") : t("models.add")}</sk-button>` : nothing}
      ${!manage ? html`<sk-notice>${t("models.not_allowed")}</sk-notice>` : nothing}
      ${manage && adding
        ? html`<section class="add" aria-label=${t("models.add")}>
            <h2 class="sr">${t("models.add")}</h2>
            ${none ? html`<p class="soft">${t("models.none")}</p>` : nothing}
            ${this._types.error
              ? html`<sk-error .text=${describeError(this._types.error)} .retry=${() => this._types.load()}></sk-error>`
              : this._types.data === null
                ? html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`
                : types.length
                  ? this._addCards()
                  : html`<sk-empty icon="puzzle" .text=${t("models.no_types")}><a class="btn" href="/plugins">${t("nav.plugins")}</a></sk-empty>`}
          </section>`
        : nothing}
      ${app.models.error && !app.models.data
        ? html`<sk-error .text=${describeError(app.models.error)} .retry=${() => app.models.load()}></sk-error>`
        : app.models.data === null
          ? html`<sk-skeleton shape="rows" lines="3"></sk-skeleton>`
          : models.length
            ? html`<section>
                <h2>${t("models.order")}</h2>
                <p class="faint">${t("models.order_help")}</p>
                <ul class="rows">
                  ${manage
                    ? repeat(models, (m) => m.id, (m, i) => this._row(m, i, models.length))
                    : models.map((m) => html`<li><div class="what"><p class="name">${m.title || m.model} ${this._health(m)}</p><p class="faint">${m.provider_name}</p></div></li>`)}
                </ul>
              </section>`
            : nothing}
      ${manage && this._providers.data?.length
        ? html`<section>
            <h2>${t("models.connections")}</h2>
            <ul class="rows">
              ${repeat(
                this._providers.data,
                (p) => p.id,
                (p) => {
                  const type = types.find((x) => x.id === p.type);
                  const count = models.filter((m) => String(m.provider) === String(p.id)).length;
                  return html`<li>
                    <div class="what">
                      <p class="name" dir="auto">${p.name} ${type ? nothing : html`<span class="chip wait">${t("provider.no_type")}</span>`}</p>
                      <p class="faint">${tt(type?.title) || p.type}${p.settings.base_url ? html` · ${p.settings.base_url}` : nothing} · ${t("models.count", { count })}</p>
                    </div>
                    ${type && type.fields.length
                      ? html`<button class="btn small" @click=${() => this._edit(type, null, p)}>${t("provider.change")}</button>`
                      : type?.setup_page
                        ? html`<button class="btn small" @click=${() => navigate(`/page/${type.setup_page?.plugin}/${type.setup_page?.page}`)}>${t("add.set_up")}</button>`
                        : nothing}
                    <button class="btn plain icon" aria-label=${t("provider.delete_of", { name: p.name })} title=${t("provider.delete")} @click=${() => this._deleteProvider(p)}><sk-icon name="trash"></sk-icon></button>
                  </li>`;
                },
              )}
            </ul>
          </section>`
        : nothing}
      <div class="sr" role="status">${this._said}</div>
      ${editor
        ? html`<sk-provider-editor
            .type=${editor.type}
            .preset=${editor.preset}
            .provider=${editor.provider}
            .initial=${editor.initial}
            .known=${editor.provider ? (app.models.data ?? []).filter((m) => String(m.provider) === String(editor.provider?.id)).map((m) => m.model) : []}
            .open=${true}
            @sk-close=${() => (this._editor = null)}
            @sk-saved=${() => ((this._editor = null), (this._adding = false), this._reload())}
            @sk-changed=${() => this._reload()}
          ></sk-provider-editor>`
        : nothing}
    </sk-page>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      section {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
      }
      h2 {
        font-size: var(--size-m);
        font-weight: 650;
      }
      h3 {
        margin-block-start: var(--s3);
        font-size: var(--size-s);
        font-weight: 600;
        color: var(--text-soft);
      }
      .cards {
        display: grid;
        grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr));
        gap: var(--s3);
      }
      .cards.small {
        grid-template-columns: repeat(auto-fill, minmax(min(11rem, 100%), 1fr));
        gap: var(--s2);
      }
      .pick {
        display: flex;
        flex-direction: column;
        align-items: flex-start;
        gap: var(--s1);
        padding: var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        text-align: start;
        overflow-wrap: anywhere;
      }
      button.pick {
        padding: var(--s3) var(--s4);
        cursor: pointer;
      }
      button.pick:hover {
        background: var(--tint);
      }
      .pick .btn,
      .pick sk-button {
        margin-block-start: auto;
      }
      .pick > .faint:last-of-type {
        margin-block-end: var(--s2);
      }
      button.pick > .faint:last-of-type {
        margin: 0;
        font-size: var(--size-xs);
      }
      .name {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
        font-weight: 550;
        font-size: var(--size-s);
        overflow-wrap: anywhere;
      }
      .rows .name {
        font-size: var(--size-m);
      }
      .name > sk-icon {
        color: var(--text-soft);
      }
      .rows {
        list-style: none;
        margin: 0;
        padding: 0;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
      }
      .rows li {
        display: flex;
        align-items: center;
        gap: var(--s3);
        padding: var(--s3) var(--s4);
      }
      .rows li + li {
        border-block-start: 1px solid var(--line);
      }
      .rows li.dragging {
        opacity: 0.5;
      }
      .handle {
        cursor: grab;
        color: var(--text-faint);
        margin-inline-start: calc(-1 * var(--s2));
      }
      @media (pointer: coarse) {
        /* Dragging needs a mouse; the menu moves rows by touch. */
        .handle {
          display: none;
        }
      }
      .what {
        flex: 1;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      .test {
        font-size: var(--size-s);
        color: var(--text-soft);
      }
      .ok {
        color: var(--done);
      }
      .bad {
        color: var(--fail);
      }
      .chip sk-icon {
        --icon-size: 0.9rem;
      }
      @media (max-width: 40rem) {
        .rows li {
          padding-inline: var(--s3);
          gap: var(--s2);
        }
      }
    `,
  ];
}

customElements.define("sk-models-page", SkModelsPage);
