/** The page "Model on this machine": download the starter model, name another file, see what runs. */
import { css, html, nothing } from "lit";
import { confirmDialog, describeError, SkElement, toast, toastError } from "@skald/ui";
import { onEvent, onReconnect, pluginApi } from "@skald/api";
import { i18n, t as translate } from "@skald/i18n";

const TONES = /** @type {Record<string, string>} */ ({
  paused: "wait",
  downloading: "run",
  verifying: "run",
  starting: "run",
  ready: "done",
  running: "done",
  failed: "fail",
  missing: "fail",
});
const ICONS = /** @type {Record<string, string>} */ ({
  absent: "cloud-arrow-down",
  paused: "pause-circle",
  downloading: "arrow-down-circle",
  verifying: "shield-check",
  starting: "hourglass-split",
  ready: "check-circle",
  running: "cpu",
  failed: "exclamation-circle",
  missing: "question-circle",
});

/** @param {string} key @param {Record<string, string | number>} [params] */
const t = (key, params) => translate(`plugin.llamacpp.${key}`, params);

/**
 * @typedef {object} Model
 * @property {string} id
 * @property {string} title
 * @property {string} state
 * @property {boolean} added
 * @property {string | null} path
 * @property {string} publisher
 * @property {string} license
 * @property {number} size
 * @property {number | null} context
 * @property {boolean} weak
 * @property {boolean} tools
 * @property {number} done
 * @property {number} total
 * @property {number} rate
 * @property {string} source
 * @property {number} [needed]
 * @property {number | null} [memory]
 * @property {{code: string, message: string, detail: string} | null} error
 */

export default class LocalModelsPage extends SkElement {
  static properties = {
    pluginId: { attribute: "plugin-id" },
    _status: { state: true },
    _error: { state: true },
    _busy: { state: true },
    _path: { state: true },
    _pathError: { state: true },
    _said: { state: true },
  };

  constructor() {
    super();
    this.pluginId = "llamacpp";
    /** @type {{models: Model[], machine: any, runtime: any, settings: any} | null} */ this._status = null;
    /** @type {unknown} */ this._error = null;
    /** the act under way, as "act model" */ this._busy = "";
    this._path = "";
    this._pathError = "";
    /** told to screen readers when a state changes */ this._said = "";
    /** @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this._off = [
      onEvent(`plugin.${this.pluginId}.changed`, (event) => this._changed(event)),
      onReconnect(() => void this._load()),
    ];
    void this._load();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  get _api() {
    return pluginApi(this.pluginId);
  }

  async _load() {
    try {
      this._take(await this._api.get("status"));
      this._error = null;
    } catch (error) {
      // What is shown already stays; the next event or reconnect reads again.
      if (!this._status) this._error = error;
    }
  }

  /** @param {any} status */
  _take(status) {
    const before = new Map((this._status?.models ?? []).map((m) => [m.id, m.state]));
    for (const model of status.models) {
      const old = before.get(model.id);
      if (old && old !== model.state) this._said = `${model.title}: ${t(`state.${model.state}`)}`;
    }
    this._status = status;
  }

  /** Progress is drawn from the event; a new state is read from the server. @param {any} event */
  _changed(event) {
    const model = this._status?.models.find((m) => m.id === event.model);
    if (!model || model.state !== event.state) {
      void this._load();
      return;
    }
    const { done, total, rate, source } = event;
    this._status = {
      .../** @type {any} */ (this._status),
      models: /** @type {any} */ (this._status).models.map((/** @type {Model} */ m) => (m.id === model.id ? { ...m, done, total, rate, source } : m)),
    };
  }

  /** @param {string} act @param {Model} model */
  async _do(act, model) {
    if (this._busy) return;
    this._busy = `${act} ${model.id}`;
    try {
      this._take(await this._api.post(act, { model: model.id }));
    } catch (error) {
      toastError(error);
      await this._load();
    }
    this._busy = "";
  }

  /** @param {Model} model */
  async _remove(model) {
    if (!model.added) {
      const sure = await confirmDialog({
        heading: t("remove.heading", { title: model.title }),
        text: t("remove.text", { size: i18n.bytes(model.done || model.size) }),
        confirm: t("act.delete"),
        danger: true,
      });
      if (!sure) return;
    }
    await this._do("remove", model);
    if (model.added) toast(t("removed", { title: model.title }), { tone: "done" });
  }

  /** @param {SubmitEvent} event */
  async _add(event) {
    event.preventDefault();
    if (this._busy) return;
    this._busy = "add-path";
    this._pathError = "";
    const before = new Set(this._status?.models.map((m) => m.id));
    try {
      const status = await this._api.post("add-path", { path: this._path });
      const added = status.models.find((/** @type {Model} */ m) => !before.has(m.id));
      this._take(status);
      this._path = "";
      if (added) toast(t("add.done", { title: added.title }), { tone: "done" });
    } catch (error) {
      this._pathError = describeError(error);
      await this.updateComplete;
      /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("#path"))?.focus();
    }
    this._busy = "";
  }

  render() {
    return html`<sk-page .title=${t("page.title")} .purpose=${t("page.purpose")}>
      <p class="sr" role="status">${this._said}</p>
      ${this._error ? html`<sk-error .error=${this._error} .retry=${() => this._load()}></sk-error>` : nothing}
      ${this._status ? this._body(this._status) : this._error ? nothing : html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`}
    </sk-page>`;
  }

  /** @param {{models: Model[], machine: any, runtime: any, settings: any}} status */
  _body(status) {
    const { runtime } = status;
    const unfit = runtime.version === null || runtime.missing.length > 0;
    return html`
      ${runtime.version === null ? html`<sk-notice tone="fail">${t("error.runtime_missing")}</sk-notice>` : nothing}
      ${runtime.missing.length ? html`<sk-notice tone="fail">${t("error.cpu_features", { features: runtime.missing.join(", ").toUpperCase() })}</sk-notice>` : nothing}
      ${status.models.map((model) => this._card(model, status, unfit))}
      <sk-card .heading=${t("add.heading")}>
        <form @submit=${this._add} novalidate>
          <label for="path">${t("add.label")}</label>
          <div class="row">
            <input
              id="path"
              class="field mono"
              autocomplete="off"
              autocapitalize="off"
              spellcheck="false"
              placeholder="/home/me/model.gguf"
              .value=${this._path}
              aria-describedby="path-help"
              aria-invalid=${this._pathError ? "true" : nothing}
              @input=${(/** @type {Event} */ e) => (this._path = /** @type {HTMLInputElement} */ (e.target).value)}
            />
            <button class="btn" ?disabled=${!this._path.trim() || unfit || this._busy === "add-path"}>${t("act.add")}</button>
          </div>
          <p id="path-help" class=${this._pathError ? "wrong" : "faint"} role=${this._pathError ? "alert" : nothing}>${this._pathError || t("add.help")}</p>
        </form>
      </sk-card>
      ${this._machine(status)}
    `;
  }

  /** @param {Model} model @param {any} status @param {boolean} unfit */
  _card(model, status, unfit) {
    const facts = [
      model.publisher,
      model.license,
      model.size ? i18n.bytes(model.size) : "",
      model.context ? t("about.context", { tokens: model.context }) : "",
    ].filter(Boolean);
    return html`<sk-card>
      <article aria-labelledby="title-${model.id}">
        <header>
          <div class="words">
            <h2 id="title-${model.id}">${model.title}</h2>
            <p class="faint">${facts.join(" · ")}</p>
            ${model.path ? html`<p class="faint mono path">${model.path}</p>` : nothing}
          </div>
          <span class="state ${TONES[model.state] ?? ""}"><sk-icon name=${ICONS[model.state] ?? "cpu"}></sk-icon>${t(`state.${model.state}`)}</span>
        </header>
        ${model.weak && !model.added ? html`<p class="soft">${t("about.weak")}</p>` : nothing}
        ${model.tools ? nothing : html`<p class="soft">${t("about.no_tools")}</p>`}
        ${this._now(model, status)}
        ${model.error
          ? html`<sk-error
              .text=${model.error.message}
              .details=${model.error.detail}
              .retry=${() => this._do(model.state === "failed" || model.state === "ready" ? "use" : "download", model)}
            ></sk-error>`
          : nothing}
        <div class="acts">${this._acts(model, unfit)}</div>
      </article>
    </sk-card>`;
  }

  /** What is going on. @param {Model} model @param {any} status */
  _now(model, status) {
    const bytes = (/** @type {number} */ n) => i18n.bytes(n);
    switch (model.state) {
      case "absent":
        return model.needed ? html`<p class="faint">${t("absent.text", { needed: bytes(model.needed), free: bytes(status.machine.disk_free) })}</p>` : nothing;
      case "paused":
        return html`<sk-progress .value=${model.done} .max=${model.total} .label=${t("paused.text", { done: bytes(model.done), total: bytes(model.total) })}></sk-progress>`;
      case "downloading": {
        const left = model.rate > 0 ? i18n.duration(((model.total - model.done) / model.rate) * 1000) : "";
        const detail = [
          t("progress.done", { done: bytes(model.done), total: bytes(model.total) }),
          model.rate > 0 ? t("progress.rate", { rate: bytes(model.rate) }) : "",
          left ? t("progress.left", { time: left }) : "",
        ].filter(Boolean);
        return html`<sk-progress
            .value=${model.done}
            .max=${model.total}
            .label=${t(model.source ? `progress.${model.source}` : "progress.starting")}
            .detail=${detail.join(" · ")}
          ></sk-progress>
          <p class="faint">${t("progress.stay")}</p>`;
      }
      case "verifying":
        return html`<sk-progress
          .value=${model.done}
          .max=${model.total}
          .label=${t("progress.verifying")}
          .detail=${t("progress.done", { done: bytes(model.done), total: bytes(model.total) })}
        ></sk-progress>`;
      case "ready":
        return html`<p class="soft">${t("ready.text")}</p>`;
      case "starting":
        return html`<sk-progress .value=${null} .label=${t("starting.text")}></sk-progress>`;
      case "running": {
        if (!model.memory) return html`<p class="soft">${t("running.plain")}</p>`;
        const minutes = status.settings.idle_minutes;
        const memory = bytes(model.memory);
        return html`<p class="soft">${minutes ? t("running.text", { memory, minutes }) : t("running.keep", { memory })}</p>`;
      }
      default:
        return nothing;
    }
  }

  /** @param {Model} model @param {boolean} unfit */
  _acts(model, unfit) {
    const button = (/** @type {string} */ act, /** @type {string} */ label, /** @type {string} */ variant = "", /** @type {string} */ icon = "") =>
      html`<sk-button .variant=${variant} .icon=${icon} ?busy=${this._busy === `${act} ${model.id}`} @click=${() => this._do(act, model)}>${label}</sk-button>`;
    const remove = html`<sk-button
      variant="plain"
      icon="trash3"
      ?busy=${this._busy === `remove ${model.id}`}
      @click=${() => this._remove(model)}
      >${model.added ? t("act.remove") : t("act.delete")}</sk-button
    >`;
    const chat = html`<a class="btn primary" href="/">${t("act.chat")}</a>`;
    switch (model.state) {
      case "absent":
        return unfit ? nothing : button("download", t("act.download", { size: i18n.bytes(model.size) }), "primary", "download");
      case "paused":
        return html`${unfit ? nothing : button("download", t("act.resume"), "primary", "play-fill")}${remove}`;
      case "downloading":
      case "verifying":
        return button("cancel", t("act.pause"), "", "pause-fill");
      case "ready":
        return html`${chat}${unfit ? nothing : button("use", t("act.load"))}${remove}`;
      case "starting":
        return button("unload", t("act.unload"));
      case "running":
        return html`${chat}${button("unload", t("act.unload"))}${remove}`;
      default:
        return remove;
    }
  }

  /** @param {any} status */
  _machine({ machine, runtime }) {
    const memory =
      machine.memory_total === null
        ? ""
        : machine.memory_available === null
          ? i18n.bytes(machine.memory_total)
          : t("machine.memory_value", { free: i18n.bytes(machine.memory_available), total: i18n.bytes(machine.memory_total) });
    const facts = [
      [t("machine.memory"), memory],
      [t("machine.disk"), i18n.bytes(machine.disk_free)],
      [t("machine.processors"), machine.processors ? i18n.number(machine.processors) : ""],
      [t("machine.runtime"), runtime.version ?? ""],
      [t("machine.folder"), machine.folder],
    ].filter(([, value]) => value);
    return html`<sk-card .heading=${t("machine.heading")}>
      <dl>
        ${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
      </dl>
    </sk-card>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      article {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      header {
        display: flex;
        flex-wrap: wrap;
        align-items: flex-start;
        justify-content: space-between;
        gap: var(--s2) var(--s4);
      }
      .words {
        flex: 1 1 14rem;
        min-inline-size: 0;
      }
      h2 {
        font-size: var(--size-l);
        font-weight: 650;
        line-height: var(--leading-tight);
      }
      .state {
        display: inline-flex;
        align-items: center;
        gap: var(--s2);
        font-size: var(--size-s);
        color: var(--text-soft);
      }
      .state.wait {
        color: var(--wait);
      }
      .state.run {
        color: var(--run);
      }
      .state.done {
        color: var(--done);
      }
      .state.fail {
        color: var(--fail);
      }
      .acts {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      .mono {
        font-family: var(--mono);
      }
      .path {
        overflow-wrap: anywhere;
      }
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
      }
      label {
        font-size: var(--size-s);
        font-weight: 550;
      }
      .row {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      .row input {
        flex: 1 1 16rem;
        inline-size: auto;
      }
      .wrong {
        color: var(--fail);
        font-size: var(--size-s);
      }
      dl {
        margin: 0;
        display: grid;
        gap: var(--s2);
        font-size: var(--size-s);
        font-variant-numeric: tabular-nums;
      }
      dl div {
        display: flex;
        flex-wrap: wrap;
        justify-content: space-between;
        gap: 0 var(--s4);
      }
      dt {
        color: var(--text-soft);
      }
      dd {
        margin: 0;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
    `,
  ];
}
