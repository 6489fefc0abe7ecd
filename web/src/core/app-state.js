/** What the whole app knows: who is signed in, their conversations, the inbox count, models, plugin pages. One per tab. */
import { api, apiEvents, ApiError, onEvent, socket } from "../api/index.js";
import { Outbox } from "../chat/outbox.js";
import { ConversationSync } from "../chat/sync.js";
import { Conversation } from "../chat/conversation.js";
import { browserLocale, i18n, setLocale } from "../i18n/index.js";
import { describeError } from "../ui/states.js";
import { Resource } from "./watch.js";

/**
 * @typedef {import("../api/types.js").Me} Me
 * @typedef {import("../api/types.js").ConversationInfo} ConversationInfo
 * @typedef {import("../api/types.js").HumanRequest} HumanRequest
 */

const PAGE = 40;
const HISTORY_PAGE = 50;
const KEEP_OPEN = 4;
const UNREACHABLE_RETRY_MS = 3000;

/** The conversations of the side bar, a page at a time, kept current by events. Fires `change`. */
class ConversationList extends EventTarget {
  constructor() {
    super();
    /** @type {ConversationInfo[]} */ this.items = [];
    /** @type {string | number | null} */ this.next = null;
    this.loaded = false;
    this.loading = false;
    /** @type {unknown} */ this.error = null;
    /** deleted here, undo still possible @type {Set<string>} */ this.hidden = new Set();
  }

  async load() {
    this.loading = true;
    this._emit();
    try {
      const page = await api.get("/api/conversations", { query: { limit: Math.max(PAGE, Math.min(200, this.items.length)) } });
      this.items = page.items;
      this.next = page.next;
      this.error = null;
      this.loaded = true;
    } catch (error) {
      this.error = error;
    }
    this.loading = false;
    this._emit();
  }

  async more() {
    if (this.loading || this.next === null) return;
    this.loading = true;
    try {
      const page = await api.get("/api/conversations", { query: { limit: PAGE, before: this.next } });
      const known = new Set(this.items.map((c) => String(c.id)));
      this.items = [...this.items, ...page.items.filter((/** @type {ConversationInfo} */ c) => !known.has(String(c.id)))];
      this.next = page.next;
    } catch (error) {
      this.error = error;
    }
    this.loading = false;
    this._emit();
  }

  /** @param {ConversationInfo} info */
  upsert(info) {
    const rest = this.items.filter((c) => String(c.id) !== String(info.id));
    this.items = [...rest, info].sort((a, b) => b.updated_at - a.updated_at);
    this._emit();
  }

  /** @param {import("../api/types.js").Id} id */
  remove(id) {
    this.items = this.items.filter((c) => String(c.id) !== String(id));
    this._emit();
  }

  /** @param {import("../api/types.js").Id} id @param {boolean} hidden */
  hide(id, hidden) {
    if (hidden) this.hidden.add(String(id));
    else this.hidden.delete(String(id));
    this._emit();
  }

  /** @param {string | null} id */
  find(id) {
    return this.items.find((c) => String(c.id) === id) ?? null;
  }

  clear() {
    this.items = [];
    this.next = null;
    this.loaded = false;
    this.hidden.clear();
    this._emit();
  }

  /** @private */
  _emit() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Fires `change` when who is signed in, or the connection, changed; `conversation-gone` (detail: id) for a deleted one. */
class AppState extends EventTarget {
  constructor() {
    super();
    /** @type {Me | null} */ this.me = null;
    /** @type {"start" | "setup" | "login" | "ready" | "unreachable"} */ this.phase = "start";
    /** the session ended while the app was in use: ask for the password over the page */ this.expired = false;
    this.setup = { needed: false, locales: ["en", "it", "fr"], password_min: 10 };
    this.pendingCount = 0;
    this.reachable = true;
    this.conversations = new ConversationList();
    this.inbox = new Resource(async () => {
      const data = await api.get("/api/inbox", { query: { status: "pending" } });
      this.pendingCount = data.pending;
      return /** @type {HumanRequest[]} */ (data.items);
    });
    this.models = new Resource(async () => /** @type {import("../api/types.js").Model[]} */ (await api.get("/api/models")));
    /** slash commands the person may use */
    this.commands = new Resource(async () => /** @type {import("../api/types.js").Command[]} */ (await api.get("/api/commands")));
    /** agents of the person's conversations */
    this.agents = new Resource(async () => /** @type {import("../api/types.js").Agent[]} */ (await api.get("/api/agents")));
    this.pages = new Resource(async () => /** @type {import("../api/types.js").PluginPage[]} */ (await api.get("/api/plugins/pages")));
    /** @type {Outbox | null} */ this.outbox = null;
    /** the conversation on screen, which is never let go @type {string | null} */ this.shown = null;
    /** @private conversations with a live subscription, newest last @type {Map<string, {model: Conversation, sync: ConversationSync}>} */
    this._open = new Map();
    this._wire();
  }

  /** Whether live events flow now. */
  get online() {
    return socket.state === "open";
  }

  /** @param {string} capability */
  can(capability) {
    return this.me?.capabilities.includes(capability) ?? false;
  }

  /** Find out who is there. */
  async start() {
    await setLocale(browserLocale());
    void this._pluginTexts();
    try {
      this.setup = await api.get("/api/setup", { quiet: true });
      if (this.setup.needed) return this._phase("setup");
      this.signedIn(await api.get("/api/auth/me", { quiet: true }));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return this._phase("login");
      this._phase("unreachable");
      // The page mends itself when the server is back.
      setTimeout(() => this.phase === "unreachable" && this.start(), UNREACHABLE_RETRY_MS);
    }
  }

  /** @param {Me} me */
  signedIn(me) {
    const sameUser = this.me !== null && String(this.me.id) === String(me.id);
    if (this.me && !sameUser) this._forget();
    this.me = me;
    this.expired = false;
    void setLocale(me.locale).then(() => this._pluginTexts());
    if (!this.outbox) {
      this.outbox = new Outbox({
        storage: localStorage,
        key: `skald.outbox.${me.id}`,
        post: (path, body) => api.post(path, body),
        describe: describeError,
      });
      this.outbox.addEventListener("created", (event) => {
        const { client_id, info } = /** @type {CustomEvent} */ (event).detail;
        this.conversations.upsert(info);
        this.dispatchEvent(new CustomEvent("conversation-created", { detail: { client_id, info } }));
      });
      this.outbox.addEventListener("refused", (event) => {
        // The list it was chosen from is old.
        if (/** @type {CustomEvent} */ (event).detail === "unknown_agent") void this.agents.load();
      });
    }
    this._phase("ready");
    if (socket.state === "off") socket.start();
    else socket.refresh();
    this._reload();
    void this.outbox.flush();
  }

  async signOut() {
    await api.post("/api/auth/logout").catch(() => undefined);
    const id = this.me?.id;
    this._forget();
    // Text a person typed stays on this device only while they are signed in.
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(`skald.draft.${id}.`) || key === `skald.outbox.${id}`) localStorage.removeItem(key);
    }
    this._phase("login");
  }

  /** Read the account again, e.g. after a plugin changed what it may do. */
  async refreshMe() {
    try {
      this.me = await api.get("/api/auth/me");
      this._changed();
    } catch {
      // the next event or reconnect tries again
    }
  }

  /**
   * A conversation with live events. The newest few stay subscribed, so going back to one is instant.
   * @param {string} id
   */
  open(id) {
    let entry = this._open.get(id);
    if (!entry) {
      const model = new Conversation(id);
      let branched = false;
      const sync = new ConversationSync(id, {
        send: (message) => socket.send(message),
        apply: (event) => {
          if (event.type === "history_changed") {
            branched = true;
            return sync.restart();
          }
          model.apply(event);
          // Events name a new message without its siblings; after a branch was opened, a snapshot tells them.
          if (branched && (event.type === "user_message" || event.type === "turn_finished")) {
            branched = event.type === "user_message";
            sync.restart();
          }
          if (event.type === "snapshot") this.outbox?.settleAcked(id);
          if (event.type === "snapshot" || event.type === "user_message" || event.type === "queue_changed") this.outbox?.settle((c) => model.knows(c), id);
          if (event.type === "snapshot" && model.info) this.conversations.upsert(model.info);
        },
      });
      entry = { model, sync };
      sync.subscribe();
      if (!this.online) void this._loadCold(model);
      else void this._check(model);
    }
    this._open.delete(id);
    this._open.set(id, entry);
    for (const [old, { sync, model }] of this._open) {
      if (this._open.size <= KEEP_OPEN) break;
      if (old === id || old === this.shown || model.running) continue;
      sync.unsubscribe();
      this._open.delete(old);
    }
    return entry.model;
  }

  /** Ask for the whole state again. @param {Conversation} model */
  resync(model) {
    this._open.get(String(model.id))?.sync.restart();
  }

  /**
   * The page of messages above what is loaded.
   * @param {Conversation} model
   */
  async loadOlder(model) {
    const first = model.messages[0];
    if (!first || !model.hasMore) return;
    const page = await api.get(`/api/conversations/${model.id}/messages`, { query: { before: first.id, limit: HISTORY_PAGE } });
    if (model.messages[0] === first) model.prepend(page.items, page.has_more);
  }

  /** @param {string} id @param {Partial<ConversationInfo> & {read?: true}} change */
  async patchConversation(id, change) {
    const info = await api.patch(`/api/conversations/${id}`, change);
    this._info(info);
  }

  /** Without a socket there is no snapshot; show what HTTP can say. @private @param {Conversation} model */
  async _loadCold(model) {
    try {
      const [info, page] = await Promise.all([
        api.get(`/api/conversations/${model.id}`),
        api.get(`/api/conversations/${model.id}/messages`, { query: { limit: HISTORY_PAGE } }),
      ]);
      if (model.loaded) return;
      model.info = info;
      model.loaded = true;
      model.prepend(page.items, page.has_more);
    } catch (error) {
      this._problem(model, error);
    }
  }

  /** A conversation that is gone, or someone else's, answers no subscription: HTTP says why. @private @param {Conversation} model */
  async _check(model) {
    try {
      const info = await api.get(`/api/conversations/${model.id}`);
      model.info ??= info;
      model.dispatchEvent(new Event("change"));
    } catch (error) {
      this._problem(model, error);
    }
  }

  /** @private @param {Conversation} model @param {unknown} error */
  _problem(model, error) {
    if (model.loaded || !(error instanceof ApiError) || error.status === 401) return;
    if (error.retryable) return;
    model.problem = { code: error.status === 404 ? "not_found" : error.code, detail: describeError(error) };
    model.dispatchEvent(new Event("change"));
  }

  /** @private @param {ConversationInfo} info */
  _info(info) {
    this.conversations.upsert(info);
    const entry = this._open.get(String(info.id));
    if (entry) {
      entry.model.info = info;
      entry.model.dispatchEvent(new Event("change"));
    }
  }

  /** @private */
  _wire() {
    apiEvents.addEventListener("signed-out", () => {
      if (this.phase !== "ready" || this.expired) return;
      this.expired = true;
      socket.stop();
      this._changed();
    });
    apiEvents.addEventListener("reached", () => this._reach(true));
    apiEvents.addEventListener("unreached", () => this._reach(false));
    socket.addEventListener("state", () => this._changed());
    let first = true;
    /** @type {string | null} */
    let epoch = null;
    socket.addEventListener("hello", () => {
      this._reach(true);
      // The server started anew: it may have brought another version of this app.
      if (epoch !== null && epoch !== socket.epoch) this.dispatchEvent(new Event("server-restarted"));
      epoch = socket.epoch;
      for (const { sync } of this._open.values()) sync.subscribe();
      void this.outbox?.flush();
      if (!first) this._reload();
      first = false;
    });
    socket.addEventListener("message", (event) => {
      const message = /** @type {CustomEvent} */ (event).detail;
      if (message.conversation === undefined || message.conversation === null) return;
      this._open.get(String(message.conversation))?.sync.receive(message);
    });
    onEvent("conversation_changed", (e) => this._info(e.conversation_info));
    onEvent("conversation_deleted", (e) => {
      this.conversations.remove(e.id);
      this._open.delete(String(e.id));
      this.dispatchEvent(new CustomEvent("conversation-gone", { detail: String(e.id) }));
    });
    onEvent("inbox_changed", (e) => {
      this.pendingCount = e.pending;
      this._changed();
      void this.inbox.load();
    });
    onEvent("models_changed", () => void this.models.load());
    onEvent("plugins_changed", () => {
      void this.pages.load();
      void this.commands.load();
      void this.agents.load();
      void this.models.load();
      void this.refreshMe();
      void this._pluginTexts();
    });
    onEvent("signed_out", () => {
      this.expired = true;
      socket.stop();
      this._changed();
    });
    this.inbox.addEventListener("change", () => this._changed());
  }

  /** @private */
  _reload() {
    void this.conversations.load();
    void this.inbox.load();
    void this.models.load();
    void this.pages.load();
    void this.commands.load();
    void this.agents.load();
  }

  /** @private */
  async _pluginTexts() {
    const locale = i18n.locale;
    try {
      i18n.add(locale, await api.get(`/api/i18n/${locale}`, { quiet: true }));
    } catch {
      // plugin texts fall back to what they are
    }
  }

  /** @private */
  _forget() {
    socket.stop();
    this.me = null;
    this.expired = false;
    this.outbox = null;
    this.pendingCount = 0;
    this._open.clear();
    this.conversations.clear();
    this.inbox.clear();
    this.models.clear();
    this.pages.clear();
    this.commands.clear();
    this.agents.clear();
  }

  /** @private @param {boolean} reachable */
  _reach(reachable) {
    if (reachable === this.reachable) return;
    this.reachable = reachable;
    this._changed();
  }

  /** @private @param {AppState["phase"]} phase */
  _phase(phase) {
    this.phase = phase;
    this._changed();
  }

  /** @private */
  _changed() {
    this.dispatchEvent(new Event("change"));
  }
}

export const app = new AppState();
