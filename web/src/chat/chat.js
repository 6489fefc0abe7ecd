/**
 * `<sk-chat>`: the conversation. The shell keeps one instance for its whole life, full on `/` and `/c/<id>`, docked beside
 * every other page, so connection, scroll position and draft survive navigation.
 */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api, ApiError } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { navigate } from "../core/router.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { confirmDialog } from "../ui/dialog.js";
import { toast, toastError, undoable } from "../ui/toast.js";
import { describeError } from "../ui/states.js";
import { chatAgents } from "./chat-agents.js";
import { Conversation } from "./conversation.js";
import { chunkTurns, groupTurns, keepUnchanged } from "./turns.js";
import { copyText } from "./turn.js";
import { exportConversation, importConversation } from "./transfer.js";
import { writeDraft } from "./composer.js";
import "../ui/menu.js";
import "../ui/states.js";
import "./composer.js";
import "./queue-list.js";
import "./turn.js";

/** @type {Map<string, import("../api/types.js").HumanRequest>} */
const NO_REQUESTS = new Map();
/** @type {import("../api/types.js").Command[]} */
const NO_COMMANDS = [];
const NEAR_PX = 56;
const OLDER_PX = 900;

export class SkChat extends SkElement {
  static properties = {
    conversationId: { attribute: false },
    docked: { type: Boolean, reflect: true },
    active: { type: Boolean },
    _renaming: { state: true },
    _away: { state: true },
    _missed: { state: true },
    _stopping: { state: true },
    _said: { state: true },
    _older: { state: true },
  };

  constructor() {
    super();
    /** the stored conversation to show; null is a new one @type {string | null} */ this.conversationId = null;
    this.docked = false;
    /** whether the chat is on screen */ this.active = true;
    this._renaming = false;
    /** true while the newest message is out of view */ this._away = false;
    this._missed = 0;
    this._stopping = false;
    /** what the live region says */ this._said = "";
    /** @type {"" | "loading" | "failed"} */ this._older = "";
    /** @private */ this._follow = true;
    /** @private */ this._lastTop = 0;
    /** @private names a conversation that is not stored yet */ this._newId = crypto.randomUUID();
    /** @private @type {string | null} model chosen for a new conversation */ this._newModel = null;
    /** @private @type {string | null} agent chosen for a new conversation */ this._newAgent = null;
    /** @type {Conversation} */ this.model = new Conversation(null);
    /** @private @type {ResizeObserver | null} */ this._resize = null;
    /** @private the live answer moves every frame: only its own element is told */ this._onLive = () => this._live();
    /** @private */ this._watch = new Watch(this, this.model, ["change", "snapshot", "started", "finished"], (event) => this._heard(event));
    new Watch(this, app);
    new Watch(this, app.models);
    new Watch(this, app.commands);
    new Watch(this, app.agents);
    new Watch(this, app.conversations, ["change"], () => this._markRead());
    this.addEventListener("sk-turn-act", (event) => void this._turnAct(/** @type {CustomEvent} */ (event)));
    /** @private */ this._watchOutbox = new Watch(this, null);
    /** @private */ this._created = (/** @type {Event} */ event) => {
      const { client_id, info } = /** @type {CustomEvent} */ (event).detail;
      if (this.conversationId !== null || client_id !== this._newId) return;
      this._adopt(String(info.id));
    };
    /** @private */ this._seen = () => this._markRead();
    /** @private */ this._gone = (/** @type {Event} */ event) => {
      if (/** @type {CustomEvent} */ (event).detail !== this.conversationId) return;
      this.reset();
      this.emit("sk-conversation", null);
    };
  }

  connectedCallback() {
    super.connectedCallback();
    app.addEventListener("conversation-created", this._created);
    app.addEventListener("conversation-gone", this._gone);
    document.addEventListener("visibilitychange", this._seen);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    app.removeEventListener("conversation-created", this._created);
    app.removeEventListener("conversation-gone", this._gone);
    document.removeEventListener("visibilitychange", this._seen);
    this._resize?.disconnect();
  }

  /** @private @returns {HTMLElement} */
  get _scroller() {
    return /** @type {HTMLElement} */ (this.renderRoot.querySelector(".scroller"));
  }

  /** @private @returns {import("./composer.js").SkComposer | null} */
  get _composer() {
    return this.renderRoot.querySelector("sk-composer");
  }

  focusComposer() {
    this._composer?.focus();
  }

  /** A new conversation, nothing stored. @param {string | null} [agent]  whom it is with, when not with the main one */
  reset(agent = null) {
    this.conversationId = null;
    this._newId = crypto.randomUUID();
    this._newModel = null;
    this._newAgent = agent;
    this.requestUpdate("conversationId", undefined);
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    this._watchOutbox.target = app.outbox;
    if (changed.has("conversationId")) {
      const id = this.conversationId;
      if (id === null ? this.model.id !== null || changed.get("conversationId") === undefined : String(this.model.id) !== id) {
        this._show(id === null ? new Conversation(null) : app.open(id));
      }
    }
  }

  /** @private @param {Conversation} model */
  _show(model) {
    this.model.removeEventListener("live", this._onLive);
    this.model = model;
    app.shown = model.id === null ? null : String(model.id);
    this._turns = [];
    this._chunkOf = new Map();
    this.model.addEventListener("live", this._onLive);
    this._watch.target = model;
    this._follow = true;
    this._away = false;
    this._missed = 0;
    this._renaming = false;
    this._stopping = false;
    this._older = "";
    this._said = "";
  }

  /** The new conversation got its id; keep everything as it stands. @private @param {string} id */
  _adopt(id) {
    this._composer?.rename(draftKey(id, ""));
    this._show(app.open(id));
    this.conversationId = id;
    this.emit("sk-conversation", id);
  }

  /** @private @param {Event} event */
  _heard(event) {
    if (event.type === "started") this._said = t("live.started");
    if (event.type === "finished") {
      this._stopping = false;
      const outcome = this.model.outcome?.outcome;
      this._said = t(outcome === "success" ? "live.finished" : outcome === "aborted" ? "live.stopped" : "live.failed");
      if (!this._follow) this._missed += 1;
    }
    if (event.type === "snapshot") this._stopping = false;
    if (event.type === "change" && this.model.pending.length) {
      const words = t("live.waiting");
      if (this._said !== words) this._said = words;
    }
    this._markRead();
  }

  /** @private */
  _markRead() {
    if (this.model.id === null || !this.active || document.visibilityState !== "visible") return;
    const info = app.conversations.find(String(this.model.id)) ?? this.model.info;
    if (!info?.unread) return;
    this.model.info = { ...info, unread: false };
    app.conversations.upsert(this.model.info);
    api.patch(`/api/conversations/${this.model.id}`, { read: true }).catch(() => undefined);
  }

  /** @private */
  _live() {
    const { live } = this.model;
    if (!live) return;
    const turn = /** @type {import("./turn.js").SkTurn | null} */ (this.renderRoot.querySelector("sk-turn[last]"));
    const text = /** @type {import("../markdown/markdown.js").SkMarkdown | null | undefined} */ (turn?.renderRoot.querySelector("sk-markdown[streaming].answer"));
    if (text && live.content) {
      text.text = live.content;
      return;
    }
    // Reasoning grows in the folded line: a few times a second is enough.
    if (!this._reasoningTimer) {
      this._reasoningTimer = setTimeout(() => {
        this._reasoningTimer = undefined;
        this.requestUpdate();
      }, 150);
    }
  }

  /** @private @type {ReturnType<typeof setTimeout> | undefined} */
  _reasoningTimer = undefined;

  firstUpdated() {
    const scroller = this._scroller;
    scroller.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this._resize = new ResizeObserver(() => {
      if (this._follow) this._toEnd();
    });
    this._resize.observe(scroller);
    this._resize.observe(/** @type {Element} */ (this.renderRoot.querySelector(".column")));
    this._resize.observe(/** @type {Element} */ (this.renderRoot.querySelector(".foot")));
  }

  updated() {
    if (this._follow) this._toEnd();
  }

  /** @private */
  _toEnd() {
    const scroller = this._scroller;
    scroller.scrollTop = scroller.scrollHeight;
    this._lastTop = scroller.scrollTop;
  }

  /** @private */
  _scrolled() {
    const scroller = this._scroller;
    const top = scroller.scrollTop;
    const left = scroller.scrollHeight - top - scroller.clientHeight;
    if (left < NEAR_PX) {
      this._follow = true;
      this._missed = 0;
    } else if (top < this._lastTop - 1) {
      this._follow = false;
    }
    this._lastTop = top;
    const away = !this._follow && left > NEAR_PX * 2;
    if (away !== this._away) this._away = away;
    if (top < OLDER_PX) void this._loadOlder();
  }

  /** @private */
  async _loadOlder() {
    const { model } = this;
    if (this._older === "loading" || !model.hasMore || !model.loaded) return;
    this._older = "loading";
    const scroller = this._scroller;
    const anchor = /** @type {HTMLElement | undefined} */ (
      [...this.renderRoot.querySelectorAll("sk-turn")].find((turn) => turn.getBoundingClientRect().bottom > scroller.getBoundingClientRect().top)
    );
    try {
      const before = anchor?.getBoundingClientRect().top ?? 0;
      await app.loadOlder(model);
      await this.updateComplete;
      // What is being read stays where it is, also where the browser does not anchor by itself.
      if (anchor?.isConnected && !this._follow) scroller.scrollTop += anchor.getBoundingClientRect().top - before;
      this._lastTop = scroller.scrollTop;
      this._older = "";
    } catch {
      this._older = "failed";
    }
  }

  /** @private Load pages until a message is there. @param {import("../api/types.js").Id} id */
  async _ensure(id) {
    for (let page = 0; page < 40 && this.model.hasMore && !this.model.messages.some((m) => String(m.id) === String(id)); page++) {
      await app.loadOlder(this.model);
    }
  }

  jumpToLatest() {
    this._follow = true;
    this._away = false;
    this._missed = 0;
    this._toEnd();
  }

  /** @private @param {string} text */
  _send(text) {
    const entry = app.outbox?.add({
      conversation: this.conversationId,
      conversationClientId: this.conversationId ?? this._newId,
      content: text,
      model: this.conversationId === null ? this._newModel : null,
      agent: this.conversationId === null ? this._newAgent : null,
    });
    if (!entry) return;
    this.jumpToLatest();
    this.requestUpdate();
  }

  /** @private @param {string} path @param {object} [body] */
  async _post(path, body) {
    try {
      return await api.post(`/api/conversations/${this.conversationId}/${path}`, body);
    } catch (error) {
      toastError(error);
      return null;
    }
  }

  /** Ends the running turn. @returns {boolean} whether there was one */
  stop() {
    if (!this.model.running || this._stopping || this.conversationId === null) return false;
    this._stopping = true;
    api.post(`/api/conversations/${this.conversationId}/stop`).catch((error) => {
      this._stopping = false;
      toastError(error);
    });
    return true;
  }

  /** @private @param {CustomEvent} event */
  async _turnAct(event) {
    const { act, message, content } = event.detail;
    if (this._agents.missing && ["retry", "continue", "edit", "regenerate"].includes(act)) {
      toast(t("agent.gone", { agent: this.model.info?.agent ?? "" }), { tone: "fail" });
      return;
    }
    if (this.model.running) {
      toast(t("turn.busy"));
      return;
    }
    if (act === "retry" || act === "continue") {
      this.model.outcome = null;
      this.jumpToLatest();
      await this._post(act);
    } else if (act === "edit") {
      this.jumpToLatest();
      await this._post("edit", { client_id: crypto.randomUUID(), message, content });
    } else if (act === "regenerate") {
      this.jumpToLatest();
      await this._post("regenerate", { message });
    } else if (act === "delete") {
      await this._deleteTurn(message);
    } else if (act === "head") {
      const done = await this._post("head", { message });
      if (done === null && !app.online) return;
      this._follow = false;
      const { model } = this;
      if (!model.messages.some((m) => String(m.id) === String(message))) {
        await new Promise((resolve) => {
          const timer = setTimeout(resolve, 3000);
          model.addEventListener("snapshot", () => (clearTimeout(timer), resolve(null)), { once: true });
        });
      }
      await this._ensure(message).catch(() => undefined);
      await this.updateComplete;
      const turns = /** @type {import("./turn.js").SkTurn[]} */ ([...this.renderRoot.querySelectorAll("sk-turn")]);
      turns.find((turn) => [turn.view.prompt, ...turn.view.answers].some((m) => String(m?.id) === String(message)))?.scrollIntoView({ block: "nearest" });
    }
  }

  /** @private @param {import("../api/types.js").Id} message */
  async _deleteTurn(message) {
    const sure = await confirmDialog({ heading: t("chat.delete_turn_title"), text: t("chat.delete_turn_text"), confirm: t("chat.delete"), danger: true });
    if (!sure) return;
    try {
      await api.delete(`/api/conversations/${this.conversationId}/messages/${message}`);
      app.resync(this.model);
    } catch (error) {
      toastError(error);
    }
  }

  /** Make the answer of the last turn anew. */
  regenerateLast() {
    const turns = groupTurns(this.model.messages, null, (m) => this.model.keyOf(m));
    const first = turns.at(-1)?.answers[0];
    if (first && !this.model.running) void this._post("regenerate", { message: first.id });
  }

  copyLastAnswer() {
    const turns = groupTurns(this.model.messages, null, (m) => this.model.keyOf(m));
    const text = turns.findLast((turn) => turn.answers.length)?.answers.map((m) => m.content.trim()).filter(Boolean).join("\n\n");
    if (text) void copyText(text);
  }

  copyLastCode() {
    for (const message of [...this.model.messages].reverse()) {
      const code = message.role === "assistant" ? [...message.content.matchAll(/^(`{3,}|~{3,})[^\n]*\n([\s\S]*?)\n\1[ \t]*$/gm)].at(-1) : null;
      if (code) return void copyText(code[2]);
    }
    toast(t("chat.no_code"));
  }

  rename() {
    if (this.conversationId === null) return;
    this._renaming = true;
    void this.updateComplete.then(() => {
      const input = /** @type {HTMLInputElement | null} */ (this.renderRoot.querySelector(".title input"));
      input?.focus();
      input?.select();
    });
  }

  /** @private @param {string} title */
  async _saveTitle(title) {
    if (!this._renaming) return;
    this._renaming = false;
    const wanted = title.trim();
    if (!wanted || wanted === this.model.info?.title || this.conversationId === null) return;
    try {
      await app.patchConversation(this.conversationId, { title: wanted });
    } catch (error) {
      toastError(error);
    }
  }

  /** @private @param {import("../api/types.js").Id | null} id */
  async _chooseModel(id) {
    if (this.conversationId === null) {
      this._newModel = id === null ? null : String(id);
      this.requestUpdate();
      return;
    }
    try {
      await app.patchConversation(this.conversationId, { model: id });
    } catch (error) {
      toastError(error);
    }
  }

  /** @private whom the conversation is with */
  get _agents() {
    return chatAgents(app.agents.data, this.conversationId === null ? this._newAgent : this.model.info?.agent);
  }

  /** @private @param {import("../api/types.js").Agent} agent */
  async _chooseAgent(agent) {
    if (this.conversationId === null) {
      this._newAgent = agent.plugin === null ? null : agent.id;
      app.outbox?.useAgent(this._newId, this._newAgent);
      this.requestUpdate();
      return;
    }
    try {
      await app.patchConversation(this.conversationId, { agent: agent.id });
    } catch (error) {
      // It went away while the list was open: the list is old.
      void app.agents.load();
      toastError(error);
    }
  }

  /** @private @returns {import("../ui/menu.js").MenuItem[]} */
  _agentItems() {
    const { offered, current } = this._agents;
    return offered.map((agent) => ({ label: agent.name, help: agent.description, checked: agent === current, run: () => this._chooseAgent(agent) }));
  }

  /** @private whom one talks with; nothing while there is no choice */
  _agentPill() {
    const { offered, current, missing } = this._agents;
    if (offered.length < 2 || (!current && !missing)) return nothing;
    const label = current?.name ?? t("agent.none");
    return html`<sk-menu slot="pills" class="agent" .label=${t("agent.choose", { agent: label })} .items=${this._agentItems()}>
      <span slot="trigger" class="pill"><sk-icon name="person"></sk-icon><span class="pill-text">${label}</span><sk-icon name="chevron-down"></sk-icon></span>
    </sk-menu>`;
  }

  /** @private the conversation's agent is gone, e.g. because its plugin was switched off */
  _agentNotice() {
    const { offered, main, missing } = this._agents;
    if (!missing) return nothing;
    const id = (this.conversationId === null ? this._newAgent : this.model.info?.agent) ?? "";
    const act =
      offered.length > 1
        ? html`<sk-menu slot="action" align="end" .label=${t("agent.other")} .items=${this._agentItems()}><span slot="trigger" class="btn small">${t("agent.other")}</span></sk-menu>`
        : main
          ? html`<button slot="action" class="btn small" @click=${() => this._chooseAgent(main)}>${t("agent.go_on", { agent: main.name })}</button>`
          : nothing;
    return html`<sk-notice tone="wait" class="gate" role="status">${t("agent.gone", { agent: id })}${act}</sk-notice>`;
  }

  /** @private */
  _modelPill() {
    const models = (app.models.data ?? []).filter((m) => m.enabled);
    const chosenId = this.conversationId === null ? this._newModel : (this.model.info?.model ?? null);
    const chosen = models.find((m) => String(m.id) === String(chosenId));
    const label = chosen ? chosen.title || chosen.model : t("model.auto");
    const first = models[0];
    return html`<sk-menu
      slot="pills"
      .label=${t("model.choose", { model: label })}
      .items=${[
        { label: t("model.auto"), help: first ? t("model.auto_help", { model: first.title || first.model }) : t("model.none"), checked: !chosen, run: () => this._chooseModel(null) },
        ...models.map((m) => ({ label: m.title || m.model, help: m.provider_name, checked: chosen === m, run: () => this._chooseModel(m.id) })),
        ...(app.can("models.manage") ? [{ label: t("nav.models"), icon: "sliders", divider: true, run: () => navigate("/models") }] : []),
      ]}
    >
      <span slot="trigger" class="pill"><span class="pill-text">${label}</span><sk-icon name="chevron-down"></sk-icon></span>
    </sk-menu>`;
  }

  /** @private how much of the model's window the conversation fills, once that is known */
  _meter() {
    const used = this.model.messages.findLast((m) => m.role === "assistant" && m.usage?.input_tokens)?.usage;
    const models = (app.models.data ?? []).filter((m) => m.enabled);
    const model = models.find((m) => String(m.id) === String(this.model.info?.model)) ?? models[0];
    const window = model?.info?.context_window;
    if (!used || !window || this.conversationId === null) return nothing;
    const tokens = (used.input_tokens ?? 0) + (used.output_tokens ?? 0);
    const share = Math.min(1, tokens / window);
    if (share < 0.1) return nothing;
    const percent = i18n.number(share, { style: "percent" });
    return html`<sk-menu
      slot="pills"
      .label=${t("meter.label", { percent })}
      .items=${[
        {
          label: t("chat.compact"),
          help: t("meter.help", { tokens: i18n.number(tokens), window: i18n.number(window) }),
          icon: "arrows-collapse",
          disabled: this.model.running,
          run: () => this._post("compact"),
        },
      ]}
    >
      <span slot="trigger" class="pill ${share > 0.85 ? "full" : ""}"><sk-icon name="pie-chart"></sk-icon>${percent}</span>
    </sk-menu>`;
  }

  /** @private every question of the loaded part, to jump to */
  _outline() {
    const prompts = this._turns.filter((turn) => turn.prompt?.role === "user");
    if (prompts.length < 4) return nothing;
    return html`<sk-menu
      align="end"
      small
      icon="list-nested"
      .label=${t("chat.outline")}
      .items=${prompts.slice(-60).map((turn) => ({
        label: (turn.prompt?.content ?? "").replace(/\s+/g, " ").trim().slice(0, 90),
        run: () => this._jumpTo(turn.key),
      }))}
    ></sk-menu>`;
  }

  /** @private @param {string} key */
  _jumpTo(key) {
    this._follow = false;
    const turns = /** @type {import("./turn.js").SkTurn[]} */ ([...this.renderRoot.querySelectorAll("sk-turn")]);
    const turn = turns.find((each) => each.view.key === key);
    turn?.scrollIntoView({ block: "start" });
    // Heights of what was never in view are estimates until now.
    requestAnimationFrame(() => turn?.scrollIntoView({ block: "start" }));
  }

  /** @private who can read this chat, and who gets its text */
  _trust() {
    const models = (app.models.data ?? []).filter((m) => m.enabled);
    const chosenId = this.conversationId === null ? this._newModel : (this.model.info?.model ?? null);
    const model = models.find((m) => String(m.id) === String(chosenId)) ?? models[0];
    const who = app.me?.encrypted ? t("trust.encrypted") : t("trust.plain");
    const where = model ? t("trust.provider", { provider: model.provider_name }) : "";
    return html`<p class="trust"><sk-icon name=${app.me?.encrypted ? "lock-fill" : "lock"}></sk-icon><span>${who} ${where}</span></p>`;
  }

  /** @private */
  _header() {
    const { info } = this.model;
    const title = info?.title || (this.conversationId === null ? t("chat.new") : this.model.loaded ? t("chat.untitled") : "");
    const items = this._menuItems();
    const heading = this.docked
      ? html`<h2 class="name" dir="auto" title=${title} @dblclick=${() => this.rename()}>${title}</h2>`
      : this.hasAttribute("empty")
        ? html`<p class="name">${title}</p>`
        : html`<h1 class="name" dir="auto" title=${title} @dblclick=${() => this.rename()}>${title}</h1>`;
    return html`<div class="head">
      <slot name="start"></slot>
      <div class="title">
        ${this._renaming
          ? html`<input
              class="field"
              aria-label=${t("chat.title_label")}
              maxlength="200"
              .value=${info?.title ?? ""}
              @keydown=${(/** @type {KeyboardEvent} */ e) => {
                if (e.isComposing) return;
                if (e.key === "Enter") void this._saveTitle(/** @type {HTMLInputElement} */ (e.target).value);
                if (e.key === "Escape") {
                  e.stopPropagation();
                  this._renaming = false;
                }
              }}
              @blur=${(/** @type {Event} */ e) => this._saveTitle(/** @type {HTMLInputElement} */ (e.target).value)}
            />`
          : heading}
        ${this._agentName()}
      </div>
      ${this._outline()} ${items.length ? html`<sk-menu align="end" small .label=${t("chat.menu")} .items=${items}></sk-menu>` : nothing}
      <slot name="end"></slot>
    </div>`;
  }

  /** @private said beside the title when it is not the agent everybody has */
  _agentName() {
    const { current, main } = this._agents;
    return !this._renaming && current && current !== main ? html`<span class="chip" title=${t("agent.with", { agent: current.name })}>${current.name}</span>` : nothing;
  }

  /** @private @returns {import("../ui/menu.js").MenuItem[]} */
  _menuItems() {
    const { info } = this.model;
    const id = this.conversationId;
    const bringIn = { label: t("chat.import"), icon: "box-arrow-in-down", divider: id !== null, run: () => importConversation() };
    if (id === null) return [bringIn];
    return [
      { label: t("chat.rename"), icon: "pencil", run: () => this.rename() },
      { label: info?.pinned ? t("chat.unpin") : t("chat.pin"), icon: info?.pinned ? "pin-angle-fill" : "pin-angle", run: () => app.patchConversation(id, { pinned: !info?.pinned }).catch(toastError) },
      { label: t("chat.compact"), icon: "arrows-collapse", disabled: this.model.running || this.model.messages.length < 4, run: () => this._post("compact") },
      { ...bringIn },
      { label: t("chat.export"), icon: "box-arrow-up", disabled: !this.model.messages.length, run: () => exportConversation(id) },
      { label: t("chat.delete"), icon: "trash", danger: true, divider: true, run: () => deleteConversation(id) },
    ];
  }

  /** @private */
  _hello() {
    const models = app.models.data;
    if (models && !models.some((m) => m.enabled)) {
      return html`<div class="hello">
        <h1>${t("hello.title", { name: app.me?.display_name ?? "" })}</h1>
        <div class="card">
          <sk-icon name="cpu"></sk-icon>
          <div>
            <h2>${t("hello.no_model")}</h2>
            <p class="soft">${app.can("models.manage") ? t("hello.no_model_help") : t("hello.no_model_ask")}</p>
          </div>
          ${app.can("models.manage") ? html`<a class="btn primary" href="/models">${t("hello.choose_model")}</a>` : nothing}
        </div>
      </div>`;
    }
    return html`<div class="hello">
      <h1>${t("hello.title", { name: app.me?.display_name ?? "" })}</h1>
      <p class="soft">${t("hello.text")}</p>
    </div>`;
  }

  /** @private things to begin with */
  _samples() {
    return html`<ul class="samples">
      ${["hello.sample1", "hello.sample2", "hello.sample3"].map(
        (key) =>
          html`<li>
            <button
              @click=${() => {
                const composer = this._composer;
                if (!composer) return;
                composer.value = t(key);
                composer.focus();
              }}
            >
              ${t(key)}
            </button>
          </li>`,
      )}
    </ul>`;
  }

  /** @private @param {import("./outbox.js").Entry} entry */
  _optimistic(entry) {
    const failed = entry.state === "failed";
    return html`<div class="mine ${failed ? "failed" : ""}">
      <div class="bubble" dir="auto">${entry.content}</div>
      <p class="faint" role=${failed ? "alert" : nothing}>
        ${failed
          ? html`<sk-icon name="exclamation-circle"></sk-icon> ${entry.problem}
              <button
                class="btn small"
                @click=${() => {
                  app.outbox?.remove(entry.client_id);
                  const composer = this._composer;
                  if (composer) composer.value = [entry.content, composer.value].filter((s) => s.trim()).join("\n\n");
                  composer?.focus();
                }}
              >
                ${t("chat.edit")}
              </button>
              <button class="btn small" @click=${() => app.outbox?.remove(entry.client_id)}>${t("chat.discard")}</button>`
          : app.online && app.reachable
            ? t("chat.sending")
            : html`<sk-icon name="wifi-off"></sk-icon> ${t("chat.waiting_connection")}`}
      </p>
    </div>`;
  }

  render() {
    const { model } = this;
    const entries = (app.outbox?.of(this.conversationId, this._newId) ?? []).filter((e) => !model.knows(e.client_id));
    const intoQueue = model.running ? entries.filter((e) => e.state !== "failed") : [];
    const inThread = model.running ? entries.filter((e) => e.state === "failed") : entries;
    const turns = keepUnchanged(
      this._turns,
      groupTurns(model.messages, model.live, (m) => model.keyOf(m), model.markers),
    );
    this._turns = turns;
    const { chunks, assigned } = chunkTurns(turns, this._chunkOf);
    this._chunkOf = assigned;
    // A message on its way will open the next turn, so none before it is the last any more.
    const lastTurn = inThread.some((e) => e.state !== "failed") ? null : turns.at(-1);
    const empty = model.loaded && !turns.length && !inThread.length && !model.problem;
    const running = model.running || entries.some((e) => e.state === "acked");
    const noModel = app.models.data !== null && !app.models.data.some((m) => m.enabled);
    const agentGone = this._agents.missing;
    this.toggleAttribute("empty", empty);
    return html`${this._header()}
      ${this.docked ? nothing : html`<h2 class="sr">${t("chat.log")}</h2>`}
      <div class="scroller" tabindex="-1">
        <div class="column" role="log" aria-live="off" aria-label=${t("chat.log")}>
          ${model.problem
            ? html`<sk-empty icon="chat-square-dots" .text=${model.problem.code === "not_found" ? t("chat.not_found") : model.problem.detail}>
                <a class="btn" href="/">${t("chat.new")}</a>
              </sk-empty>`
            : nothing}
          ${!model.loaded && !model.problem ? html`<sk-skeleton lines="6"></sk-skeleton>` : nothing}
          ${model.hasMore
            ? html`<p class="older">
                ${this._older === "failed"
                  ? html`<button class="btn small" @click=${() => ((this._older = ""), this._loadOlder())}>${t("action.try_again")}</button>`
                  : html`<button class="btn plain small" @click=${() => this._loadOlder()}>${t("chat.older")}</button>`}
              </p>`
            : nothing}
          ${empty ? this._hello() : nothing}
          ${repeat(
            chunks,
            (chunk) => chunk.id,
            (chunk) => html`<div class="chunk">
              ${repeat(
                chunk.turns,
                (turn) => turn.key,
                (turn) => {
                  const last = turn === lastTurn;
                  return html`<sk-turn
                    .view=${turn}
                    .model=${model}
                    .requests=${last || turn.answers.some((m) => m.calls.some((c) => c.state === "awaiting")) ? model.requests : NO_REQUESTS}
                    .outcome=${last ? model.outcome : null}
                    ?last=${last}
                    ?running=${last && model.running}
                  ></sk-turn>`;
                },
              )}
            </div>`,
          )}
          ${repeat(
            inThread,
            (entry) => entry.client_id,
            (entry) => this._optimistic(entry),
          )}
        </div>
      </div>
      <div class="foot">
        ${this._away
          ? html`<button class="jump" @click=${() => this.jumpToLatest()}>
              <sk-icon name="arrow-down"></sk-icon>${this._missed ? t("chat.jump_new", { count: this._missed }) : t("chat.jump")}
            </button>`
          : nothing}
        <div class="inner">
          ${!app.me?.gate ? this._gateNotice() : nothing} ${this._agentNotice()} ${this._offline(entries.length)}
          <sk-queue
            .queue=${model.queue}
            .sending=${intoQueue}
            @sk-queue-edit=${(/** @type {CustomEvent} */ e) =>
              api.patch(`/api/conversations/${this.conversationId}/queue/${e.detail.id}`, { content: e.detail.content }).catch(toastError)}
            @sk-queue-delete=${(/** @type {CustomEvent} */ e) => api.delete(`/api/conversations/${this.conversationId}/queue/${e.detail.id}`).catch(toastError)}
          ></sk-queue>
          <sk-composer
            .commands=${app.commands.data ?? NO_COMMANDS}
            .draftKey=${draftKey(this.conversationId, "")}
            ?running=${running}
            ?stopping=${this._stopping}
            ?disabled=${model.problem !== null}
            ?blocked=${noModel || agentGone}
            .placeholder=${running ? t("composer.placeholder_queue") : noModel ? t("composer.placeholder_no_model") : agentGone ? t("composer.placeholder_no_agent") : ""}
            @sk-send=${(/** @type {CustomEvent} */ e) => this._send(e.detail)}
            @sk-stop=${() => this.stop()}
            >${this._agentPill()} ${this._modelPill()} ${this._meter()}</sk-composer
          >
          ${this._trust()}
        </div>
      </div>
      <div class="below">${empty && !noModel ? this._samples() : nothing}</div>
      <div class="sr" role="status" aria-live="polite">${this._said}</div>`;
  }

  /** @private what was drawn last @type {import("./turns.js").TurnView[]} */
  _turns = [];
  /** @private @type {Map<string, number>} */
  _chunkOf = new Map();

  /** @private */
  _gateNotice() {
    const plugin = app.me?.gate_plugins?.[0];
    if (!app.me) return nothing;
    return html`<sk-notice tone="wait" class="gate">
      ${plugin ? t("gate.missing", { plugin: tt(plugin.title) }) : t("gate.none")}
      ${plugin && app.can("plugin.manage") ? html`<a slot="action" class="btn small" href="/plugins/${plugin.id}">${t("gate.open", { plugin: tt(plugin.title) })}</a>` : nothing}
    </sk-notice>`;
  }

  /** @private @param {number} waiting */
  _offline(waiting) {
    if (app.online && app.reachable) {
      this._offlineSince = 0;
      return nothing;
    }
    // A reconnect that takes a moment is no news.
    if (!this._offlineSince) {
      this._offlineSince = Date.now();
      setTimeout(() => this.requestUpdate(), 2100);
    }
    if (Date.now() - this._offlineSince < 2000 && app.reachable) return nothing;
    return html`<sk-notice tone="wait" icon="wifi-off" class="gate">${waiting ? t("offline.queued", { count: waiting }) : t("offline.text")}</sk-notice>`;
  }

  /** @private */
  _offlineSince = 0;

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        block-size: 100%;
        min-inline-size: 0;
        background: var(--ground);
      }
      .head {
        display: flex;
        align-items: center;
        gap: var(--s2);
        min-block-size: var(--bar);
        padding: var(--s1) var(--s3);
        padding-block-start: max(var(--s1), env(safe-area-inset-top));
      }
      .title {
        flex: 1;
        min-inline-size: 0;
      }
      .name {
        font-size: var(--size-s);
        font-weight: 600;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
        padding-inline: var(--s2);
      }
      .title {
        display: flex;
        align-items: center;
        gap: var(--s1);
      }
      .title .chip {
        display: block;
        flex: 0 1 auto;
        min-inline-size: 3rem;
        max-inline-size: 45%;
        overflow: hidden;
        text-overflow: ellipsis;
      }
      .title input {
        max-inline-size: 28rem;
      }
      .scroller {
        flex: 1 1 0;
        min-block-size: 0;
        overflow-y: auto;
        overflow-x: hidden;
        overscroll-behavior: contain;
        scrollbar-gutter: stable both-edges;
        outline: none;
      }
      .column {
        max-inline-size: calc(var(--column) + 2 * var(--s4));
        margin-inline: auto;
        padding: var(--s4) var(--s4) var(--s8);
        min-block-size: 100%;
        display: flow-root;
      }
      /* A new chat: the composer stands in the middle, under the greeting; on small screens it stays within reach below. */
      :host([empty]) .column {
        display: grid;
        align-content: end;
        padding-block-end: var(--s6);
      }
      .below {
        padding-inline: var(--s4);
      }
      :host([empty]:not([docked])) .below {
        flex: 1.15 1 0;
        min-block-size: 0;
        overflow-y: auto;
      }
      :host([empty][docked]) .column {
        align-content: center;
      }
      :host([empty][docked]) .below {
        order: 1;
        padding-block-end: var(--s3);
      }
      :host([empty][docked]) .foot {
        order: 2;
      }
      .chunk {
        content-visibility: auto;
        contain-intrinsic-size: auto 5000px;
      }
      .chunk:last-of-type {
        content-visibility: visible;
      }
      .older {
        text-align: center;
      }
      .foot {
        position: relative;
        padding: 0 var(--s4) max(var(--s2), env(safe-area-inset-bottom));
      }
      .inner {
        max-inline-size: var(--column);
        margin-inline: auto;
      }
      .gate {
        margin-block-end: var(--s2);
      }
      .jump {
        position: absolute;
        inset-block-end: calc(100% + var(--s2));
        inset-inline: 0;
        inline-size: fit-content;
        margin-inline: auto;
        display: inline-flex;
        align-items: center;
        gap: var(--s2);
        min-block-size: var(--control);
        padding: 0 var(--s4) 0 var(--s3);
        border: 1px solid var(--line);
        border-radius: 999px;
        background: var(--float);
        box-shadow: var(--shadow);
        font-size: var(--size-s);
        font-weight: 550;
        cursor: pointer;
      }
      .jump:hover {
        background: var(--tint);
      }
      .pill {
        display: inline-flex;
        align-items: center;
        gap: var(--s1);
        max-inline-size: 100%;
        min-block-size: 1.875rem;
        padding: 0 var(--s2) 0 var(--s3);
        border-radius: 999px;
        color: var(--text-soft);
        font-size: var(--size-s);
      }
      @media (pointer: coarse) {
        .pill {
          min-block-size: 2.75rem;
        }
      }
      .pill:hover {
        background: var(--tint);
        color: var(--text);
      }
      .pill sk-icon {
        --icon-size: 0.9rem;
      }
      .pill.full {
        color: var(--wait);
      }
      .pill-text {
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .trust {
        margin-block-start: var(--s1);
        padding-inline: var(--s2);
        color: var(--text-faint);
        font-size: var(--size-xs);
        line-height: 1.5;
        text-align: center;
        text-wrap: balance;
      }
      .trust sk-icon {
        --icon-size: 0.9rem;
        vertical-align: -0.15em;
        margin-inline-end: var(--s1);
      }
      .mine {
        display: flex;
        flex-direction: column;
        align-items: flex-end;
        gap: var(--s1);
        padding-block: var(--s3);
      }
      .bubble {
        max-inline-size: min(85%, 36rem);
        padding: var(--s2) var(--s4);
        border-radius: var(--radius-l);
        border-end-end-radius: 4px;
        background: var(--tint);
        white-space: pre-wrap;
        overflow-wrap: anywhere;
      }
      .mine p {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        justify-content: flex-end;
        gap: var(--s1);
        font-size: var(--size-xs);
      }
      .mine sk-icon {
        --icon-size: 1rem;
      }
      .failed p {
        color: var(--fail);
      }
      .hello {
        text-align: center;
      }
      .hello h1 {
        font-size: var(--size-xl);
        font-weight: 600;
        line-height: var(--leading-tight);
        letter-spacing: -0.015em;
        margin-block-end: var(--s2);
      }
      :host([docked]) .hello h1 {
        font-size: var(--size-l);
      }
      :host([docked]) .hello p {
        font-size: var(--size-s);
      }
      .samples {
        list-style: none;
        display: grid;
        grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
        gap: var(--s2);
        max-inline-size: var(--column);
        margin: var(--s5) auto 0;
        padding: 0;
      }
      .samples button {
        display: block;
        inline-size: 100%;
        block-size: 100%;
        padding: var(--s3) var(--s4);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        color: var(--text-soft);
        font-size: var(--size-s);
        line-height: 1.45;
        text-align: start;
        cursor: pointer;
      }
      .samples button:hover {
        background: var(--tint);
        color: var(--text);
      }
      .card {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s4);
        margin-block-start: var(--s6);
        padding: var(--s5);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        text-align: start;
      }
      .card > div {
        flex: 1 1 16rem;
      }
      .card h2 {
        font-size: var(--size-m);
      }
      .card > sk-icon {
        --icon-size: 1.75rem;
        color: var(--accent-text);
      }
      @media (max-width: 40rem) {
        /* The title needs the room; the composer names the agent too. */
        .title .chip {
          display: none;
        }
        .column {
          padding-inline: var(--s3);
        }
        .foot {
          padding-inline: var(--s2);
        }
        :host([empty]:not([docked])) .column {
          align-content: center;
        }
        :host([empty]:not([docked])) .below {
          order: 1;
          flex: none;
          padding: 0 var(--s2) var(--s3);
        }
        :host([empty]:not([docked])) .foot {
          order: 2;
        }
        .samples {
          grid-template-columns: none;
          gap: var(--s1);
        }
        .samples button {
          min-block-size: 2.75rem;
        }
      }
    `,
  ];
}

/** @param {string | null} id @param {string} fallback */
function draftKey(id, fallback) {
  return `skald.draft.${app.me?.id ?? fallback}.${id ?? "new"}`;
}

/** Deleting looks done at once and can be undone for a moment. @param {string} id */
export function deleteConversation(id) {
  app.conversations.hide(id, true);
  app.dispatchEvent(new CustomEvent("conversation-gone", { detail: id }));
  undoable({
    text: t("chat.deleted"),
    undo: () => {
      app.conversations.hide(id, false);
      void navigate(`/c/${id}`);
    },
    commit: (closing) => {
      writeDraft(draftKey(id, ""), "");
      api.delete(`/api/conversations/${id}`, { keepalive: closing }).then(
        () => app.conversations.remove(id),
        (error) => {
          app.conversations.hide(id, false);
          if (!(error instanceof ApiError && error.status === 404)) toast(describeError(error), { tone: "fail" });
        },
      );
    },
  });
}

customElements.define("sk-chat", SkChat);
