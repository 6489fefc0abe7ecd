/** One conversation as this tab knows it: a plain model fed by events. It draws nothing and calls no server. */

/**
 * @typedef {import("../api/types.js").Message} Message
 * @typedef {import("../api/types.js").Call} Call
 * @typedef {import("../api/types.js").HumanRequest} HumanRequest
 * @typedef {import("../api/types.js").ErrorInfo} ErrorInfo
 *
 * @typedef {object} Live  an answer that is still being written
 * @property {string} key
 * @property {string} content
 * @property {string} reasoning
 * @property {string} model
 * @property {number} startedAt  milliseconds since the epoch, this client's clock
 * @property {number | null} reasonedMs  how long it reasoned, once it writes
 *
 * @typedef {object} Outcome  how the last turn ended, as far as this tab saw it
 * @property {"success" | "aborted" | "error" | "interrupted"} outcome
 * @property {number} duration_ms
 * @property {ErrorInfo | null} error
 *
 * @typedef {object} Marker  a line between messages
 * @property {string} key
 * @property {"compaction" | "fallback" | "notice"} kind
 * @property {string | null} after  key of the message it follows
 * @property {any} data
 */

/** Fires `change` (what is shown changed) and `live` (text was added to the live answer), and `finished` / `started`. */
export class Conversation extends EventTarget {
  /** @param {import("../api/types.js").Id | null} id  null for one that is not stored yet */
  constructor(id) {
    super();
    this.id = id;
    /** @type {import("../api/types.js").ConversationInfo | null} */ this.info = null;
    /** @type {Message[]} */ this.messages = [];
    this.hasMore = false;
    this.loaded = id === null;
    /** @type {Live | null} */ this.live = null;
    /** @type {import("../api/types.js").Turn | null} */ this.turn = null;
    /** @type {import("../api/types.js").Queued[]} */ this.queue = [];
    /** @type {Map<string, HumanRequest>} by call id */ this.requests = new Map();
    /** @type {Outcome | null} */ this.outcome = null;
    /** @type {Marker[]} */ this.markers = [];
    /** a problem that keeps the conversation from being shown @type {{code: string, detail: string} | null} */
    this.problem = null;
    /** @private message id → the key its element was drawn under @type {Map<string, string>} */ this._keys = new Map();
    /** @private */ this._count = 0;
    /** @private @type {Record<string, (event: any) => boolean | void>} */
    this._handlers = {
      snapshot: (e) => this._snapshot(e),
      turn_started: (e) => {
        this.turn = { run_id: e.run_id, started_at: e.started_at ?? Date.now() / 1000 };
        this.outcome = null;
        this._emit("started");
      },
      turn_finished: (e) => {
        this.turn = null;
        this.live = null;
        this.outcome = { outcome: e.outcome, duration_ms: e.duration_ms ?? 0, error: e.error ?? null };
        this._emit("finished");
      },
      user_message: (e) => this.upsert(e.message),
      assistant_started: (e) => {
        this.live = this._newLive(e.model ?? "");
      },
      token_delta: (e) => this._delta(e),
      assistant_message: (e) => this._recorded(e.message),
      message_updated: (e) => this.upsert(e.message),
      tool_start: (e) => this._toolStart(e),
      tool_progress: (e) => this._patchCall(e.call_id, { progress: e.data }),
      tool_done: (e) =>
        this._patchCall(e.call_id, {
          state: e.state,
          result: e.result ?? "",
          result_kind: e.result_kind ?? null,
          duration_ms: e.duration_ms ?? null,
          ...(e.display ? { display: e.display } : {}),
        }),
      approval_required: (e) => {
        this._request(e.request);
        this._patchCall(e.request.call_id, { state: "awaiting" });
      },
      approval_resolved: (e) => {
        this._request(e.request);
        if (e.request.status === "answered" && e.request.answer?.allow) {
          const call = this.findCall(e.request.call_id);
          if (call?.state === "awaiting") this._patchCall(e.request.call_id, { state: "running", started_at: Date.now() });
        }
      },
      queue_changed: (e) => {
        this.queue = e.queue ?? [];
      },
      model_fallback: (e) => this._mark("fallback", e),
      compaction: (e) => this._mark("compaction", e),
      notice: (e) => this._mark("notice", e),
    };
  }

  get running() {
    return this.turn !== null;
  }

  /** Requests of this conversation that wait for a person, oldest first. */
  get pending() {
    return [...this.requests.values()].filter((r) => r.status === "pending").sort((a, b) => a.created_at - b.created_at);
  }

  /** @param {any} event  in order and without gaps, see sync.js */
  apply(event) {
    const handler = this._handlers[event.type];
    if (!handler) return;
    if (handler(event) !== true) this._emit("change");
  }

  /** @param {Message} message */
  keyOf(message) {
    return this._keys.get(String(message.id)) ?? `m${message.id}`;
  }

  /**
   * Add or replace a message; the order of arrival is the order shown.
   * @param {Message} message
   */
  upsert(message) {
    const at = this.messages.findIndex((m) => String(m.id) === String(message.id));
    if (at >= 0) {
      this.messages = this.messages.with(at, keepLocal(message, this.messages[at]));
    } else {
      this.messages = [...this.messages, message];
    }
  }

  /**
   * Older messages, read over HTTP.
   * @param {Message[]} older @param {boolean} hasMore
   */
  prepend(older, hasMore) {
    const known = new Set(this.messages.map((m) => String(m.id)));
    this.messages = [...older.filter((m) => !known.has(String(m.id))), ...this.messages];
    this.hasMore = hasMore;
    this._emit("change");
  }

  /** @param {import("../api/types.js").Id} callId */
  findCall(callId) {
    const wanted = String(callId);
    for (let i = this.messages.length - 1; i >= 0; i--) {
      const call = this.messages[i].calls.find((c) => String(c.id) === wanted);
      if (call) return call;
    }
    return null;
  }

  /** True when a message or a queued one with this client-made id is known here. @param {string} clientId */
  knows(clientId) {
    return this.messages.some((m) => m.client_id === clientId) || this.queue.some((q) => q.client_id === clientId);
  }

  /** @private @param {string} type */
  _emit(type) {
    this.dispatchEvent(new Event(type));
  }

  /** @private @param {string} model @returns {Live} */
  _newLive(model) {
    this._count += 1;
    return { key: `live${this._count}`, content: "", reasoning: "", model, startedAt: Date.now(), reasonedMs: null };
  }

  /** @private @param {any} e */
  _snapshot(e) {
    const before = this.messages;
    const fresh = /** @type {Message[]} */ (e.messages ?? []);
    const known = new Map(before.map((m) => [String(m.id), m]));
    let messages = fresh.map((m) => {
      const old = known.get(String(m.id));
      return old ? keepLocal(m, old) : m;
    });
    const hadMore = this.hasMore;
    this.hasMore = Boolean(e.has_more);
    // Older pages that were loaded stay when the snapshot continues them.
    const first = fresh[0];
    const joint = first ? before.findIndex((m) => String(m.id) === String(first.id)) : -1;
    if (joint > 0 && String(before[joint - 1].id) === String(first.parent)) {
      messages = [...before.slice(0, joint), ...messages];
      this.hasMore = hadMore;
    }
    this.messages = messages;
    this.info = e.conversation_info ?? this.info;
    this.turn = e.turn ?? null;
    this.queue = e.queue ?? [];
    this.requests = new Map((e.requests ?? []).map((/** @type {HumanRequest} */ r) => [String(r.call_id), r]));
    if (e.live) {
      const previous = this.live;
      const continues = previous && (e.live.content ?? "").startsWith(previous.content);
      this.live = continues && previous ? { ...previous } : this._newLive(e.live.model ?? "");
      this.live.content = e.live.content ?? "";
      this.live.reasoning = e.live.reasoning ?? "";
      if (this.live.content && this.live.reasonedMs === null) this.live.reasonedMs = 0;
    } else {
      const last = messages.at(-1);
      // The answer was recorded while this tab was away: keep drawing it in the element that showed it growing.
      if (this.live && last?.role === "assistant" && !known.has(String(last.id)) && last.content.startsWith(this.live.content)) {
        this._keys.set(String(last.id), this.live.key);
      }
      this.live = null;
    }
    if (this.turn) this.outcome = null;
    else if (e.last_turn) this.outcome = { outcome: e.last_turn.outcome, duration_ms: 0, error: e.last_turn.error ?? null };
    this.loaded = true;
    this.problem = null;
    this._emit("snapshot");
  }

  /** @private @param {any} e @returns {boolean} */
  _delta(e) {
    if (!this.live) {
      this.live = this._newLive("");
      this._add(e);
      return false;
    }
    const first = e.kind === "content" ? !this.live.content : !this.live.reasoning;
    this._add(e);
    if (first) return false;
    this._emit("live");
    return true;
  }

  /** @private @param {any} e */
  _add(e) {
    const live = /** @type {Live} */ (this.live);
    if (e.kind === "reasoning") {
      live.reasoning += e.delta;
    } else {
      if (live.reasonedMs === null) live.reasonedMs = live.reasoning ? Date.now() - live.startedAt : 0;
      live.content += e.delta;
    }
  }

  /** @private @param {Message} message */
  _recorded(message) {
    if (this.live && !this.messages.some((m) => String(m.id) === String(message.id))) {
      this._keys.set(String(message.id), this.live.key);
      /** @type {any} */ (message).reasoned_ms = this.live.reasonedMs;
    }
    this.live = null;
    this.upsert(message);
  }

  /** @private @param {any} e */
  _toolStart(e) {
    const at = this.messages.findIndex((m) => String(m.id) === String(e.message_id));
    if (at < 0) return;
    const message = this.messages[at];
    const index = message.calls.findIndex((c) => String(c.id) === String(e.call.id));
    const call = { ...(index >= 0 ? message.calls[index] : {}), ...e.call, started_at: Date.now() };
    const calls = index >= 0 ? message.calls.with(index, call) : [...message.calls, call];
    this.messages = this.messages.with(at, { ...message, calls });
  }

  /** @private @param {import("../api/types.js").Id} callId @param {Partial<Call>} patch */
  _patchCall(callId, patch) {
    const wanted = String(callId);
    for (let at = this.messages.length - 1; at >= 0; at--) {
      const message = this.messages[at];
      const index = message.calls.findIndex((c) => String(c.id) === wanted);
      if (index < 0) continue;
      const calls = message.calls.with(index, { ...message.calls[index], ...patch });
      this.messages = this.messages.with(at, { ...message, calls });
      return;
    }
  }

  /** @private @param {HumanRequest} request */
  _request(request) {
    this.requests = new Map(this.requests).set(String(request.call_id), request);
  }

  /** @private @param {Marker["kind"]} kind @param {any} data */
  _mark(kind, data) {
    const last = this.messages.at(-1);
    this._count += 1;
    if (kind === "notice" && this.markers.some((m) => m.kind === "notice" && m.data.code === data.code && m.data.text === data.text)) return;
    this.markers = [...this.markers, { key: `mark${this._count}`, kind, after: last ? this.keyOf(last) : null, data }];
  }
}

/**
 * What only this client knows of a message survives its replacement.
 * @param {Message} fresh @param {Message} old
 * @returns {Message}
 */
function keepLocal(fresh, old) {
  const reasoned = /** @type {any} */ (old).reasoned_ms;
  if (old.calls.some((call) => call.progress)) {
    const known = new Map(old.calls.map((call) => [String(call.id), call.progress]));
    fresh = { ...fresh, calls: fresh.calls.map((call) => (call.progress === undefined && known.get(String(call.id)) ? { ...call, progress: known.get(String(call.id)) } : call)) };
  }
  if (reasoned !== undefined) /** @type {any} */ (fresh).reasoned_ms = reasoned;
  return fresh;
}
