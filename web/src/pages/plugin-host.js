/**
 * `<sk-plugin-host>`: mounts a plugin's page. The entry is an ES module whose default export is a custom element class; the
 * element gets the attribute `plugin-id`. A page that fails shows its error here and nowhere else.
 */
import { css, html } from "lit";
import { t, tt } from "../i18n/index.js";
import { onEvent } from "../api/index.js";
import { app } from "../core/app-state.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import "../ui/index.js";

let unnamed = 0;

export class SkPluginHost extends SkElement {
  static properties = { plugin: {}, page: {}, _error: { state: true }, _mounted: { state: true } };

  constructor() {
    super();
    this.plugin = "";
    this.page = "";
    /** @type {unknown} */ this._error = null;
    /** which entry is on the page */ this._mounted = "";
    /** @private */ this._run = 0;
    /** @private */ this._version = "";
    new Watch(this, app.pages);
    /** @private */ this._off = () => {};
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("error", this._caught);
    addEventListener("unhandledrejection", this._caught);
    // A plugin that was updated or restarted is loaded anew; browsers keep a module by its address.
    this._off = onEvent("plugins_changed", (event) => {
      if (event.id !== this.plugin) return;
      this._version = `?v=${Date.now()}`;
      this._mounted = "";
    });
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("error", this._caught);
    removeEventListener("unhandledrejection", this._caught);
    this._off();
  }

  /** @private Errors the page throws later, told apart by where they come from. @param {any} event */
  _caught = (event) => {
    const error = event.error ?? event.reason;
    const where = `/api/plugin/${this.plugin}/`;
    if (!String(error?.stack ?? event.filename ?? "").includes(where)) return;
    event.preventDefault?.();
    console.error(`page of plugin ${this.plugin} failed`, error);
    // A page that is on screen and works otherwise is not taken away for one failed click.
    if (this._slot?.shadowRoot?.childElementCount || this._slot?.childElementCount) return;
    this._fail(error);
  };

  /** @private @returns {HTMLElement | null} */
  get _slot() {
    return /** @type {HTMLElement | null} */ (this.renderRoot.querySelector(".mount")?.firstElementChild ?? null);
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (changed.has("plugin") || changed.has("page")) this._mounted = "";
    const info = this._info();
    const wanted = info ? info.entry + this._version : "";
    if (info && this._mounted !== wanted && !this._error) void this._mount(info, wanted);
  }

  /** @private */
  _info() {
    return app.pages.data?.find((p) => p.plugin === this.plugin && p.page_id === this.page) ?? null;
  }

  /** @private @param {import("../api/types.js").PluginPage} info @param {string} wanted */
  async _mount(info, wanted) {
    this._mounted = wanted;
    const run = ++this._run;
    this.emit("sk-page-title", tt(info.title));
    try {
      const url = new URL(wanted, location.origin);
      // Only the plugin's own files, whatever the entry says.
      if (url.origin !== location.origin || !url.pathname.startsWith(`/api/plugin/${encodeURIComponent(info.plugin)}/`)) {
        throw new Error(t("page.bad_entry", { entry: info.entry }));
      }
      const module = await import(/* the address is known only now */ url.href);
      if (run !== this._run) return;
      const Class = module.default;
      if (typeof Class !== "function" || !(Class.prototype instanceof HTMLElement)) throw new Error(t("page.no_element", { entry: info.entry }));
      if (!customElements.getName(Class)) customElements.define(`sk-plugin-page-${++unnamed}`, Class);
      const element = /** @type {HTMLElement} */ (new Class());
      element.setAttribute("plugin-id", info.plugin);
      const mount = /** @type {HTMLElement} */ (this.renderRoot.querySelector(".mount"));
      mount.replaceChildren(element);
      // A Lit element reports a failed first drawing here.
      await /** @type {any} */ (element).updateComplete;
    } catch (error) {
      if (run === this._run) this._fail(error);
    }
  }

  /** @private @param {unknown} error */
  _fail(error) {
    console.error(`page of plugin ${this.plugin} failed`, error);
    this.renderRoot.querySelector(".mount")?.replaceChildren();
    this._error = error;
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("plugin") || changed.has("page")) this._error = null;
  }

  /** @private */
  _again() {
    this._error = null;
    this._version = `?v=${Date.now()}`;
    this._mounted = "";
  }

  render() {
    const info = this._info();
    if (app.pages.data === null) return html`<div class="wait"><sk-skeleton shape="cards" lines="3"></sk-skeleton></div>`;
    if (!info) {
      return html`<sk-empty icon="puzzle" .text=${t("page.plugin_gone", { plugin: this.plugin })}>
        ${app.can("plugin.manage") ? html`<a class="btn" href="/plugins/${this.plugin}">${t("page.plugin_open")}</a>` : html`<a class="btn" href="/">${t("page.home")}</a>`}
      </sk-empty>`;
    }
    const details = this._error ? String(/** @type {any} */ (this._error)?.stack ?? this._error) : "";
    return html`${this._error
        ? html`<sk-page .title=${tt(info.title)}>
            <sk-error .text=${t("page.failed", { plugin: this.plugin })} .details=${details} .retry=${() => this._again()}></sk-error>
          </sk-page>`
        : html``}
      <div class="mount" ?hidden=${this._error !== null}></div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host,
      .mount {
        display: block;
        min-block-size: 100%;
      }
      .wait {
        max-inline-size: 56rem;
        margin: var(--s12) auto;
        padding-inline: var(--s6);
      }
    `,
  ];
}

customElements.define("sk-plugin-host", SkPluginHost);
