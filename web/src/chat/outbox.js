/**
 * Messages on their way. Each has a client-made id, so sending again is harmless; entries that the server has not
 * acknowledged survive a reload in local storage and are sent again when the connection returns.
 */
import { ApiError } from "../api/http.js";

/**
 * @typedef {object} Entry
 * @property {string} client_id
 * @property {string | null} conversation  the stored conversation, once there is one
 * @property {string} conversation_client_id  names a conversation that is still to be created
 * @property {string | null} model  for a conversation that is still to be created
 * @property {string | null} [agent]  likewise
 * @property {string} content
 * @property {number} created_at  milliseconds since the epoch
 * @property {"pending" | "acked" | "failed"} state
 * @property {string} [problem]  why it failed, one sentence
 * @property {string} [code]  the same as a stable code
 */

const RETRY_MS = [1_000, 2_000, 5_000, 10_000];

/** Fires `change`, `created` (detail: `{client_id, info}`) when a conversation came into being, `refused` (detail: the error's code). */
export class Outbox extends EventTarget {
  /**
   * @param {{storage: Pick<Storage, "getItem" | "setItem" | "removeItem">, key: string,
   *   post: (path: string, body: object) => Promise<any>, newId?: () => string,
   *   later?: (run: () => void, ms: number) => unknown, describe?: (error: ApiError) => string}} options
   */
  constructor({ storage, key, post, newId = () => crypto.randomUUID(), later = (run, ms) => setTimeout(run, ms), describe = (e) => e.detail || e.code }) {
    super();
    /** @private */ this._storage = storage;
    /** @private */ this._key = key;
    /** @private */ this._post = post;
    /** @private */ this._newId = newId;
    /** @private */ this._later = later;
    /** @private */ this._describe = describe;
    /** @private */ this._busy = false;
    /** @private */ this._again = false;
    /** @private */ this._attempt = 0;
    /** @type {Entry[]} */
    this.entries = this._load();
  }

  /**
   * @param {{conversation: string | null, conversationClientId: string, content: string, model?: string | null, agent?: string | null}} message
   * @returns {Entry | null} null for a message without text, which is never sent
   */
  add({ conversation, conversationClientId, content, model = null, agent = null }) {
    if (!content.trim()) return null;
    /** @type {Entry} */
    const entry = {
      client_id: this._newId(),
      conversation,
      conversation_client_id: conversationClientId,
      model,
      agent,
      content,
      created_at: Date.now(),
      state: "pending",
    };
    this._set([...this.entries, entry]);
    void this.flush();
    return entry;
  }

  /** What waits for one conversation. @param {string | null} id @param {string} clientId */
  of(id, clientId) {
    return this.entries.filter((e) => (id !== null && e.conversation === String(id)) || e.conversation_client_id === clientId);
  }

  /** The stored conversation names this message: it has arrived. @param {(clientId: string) => boolean} knows @param {string} conversation */
  settle(knows, conversation) {
    const left = this.entries.filter((e) => e.conversation !== conversation || !knows(e.client_id));
    if (left.length !== this.entries.length) this._set(left);
  }

  /** A snapshot shows all there is: whatever was acknowledged and is not in it was deleted meanwhile. @param {string} conversation */
  settleAcked(conversation) {
    const left = this.entries.filter((e) => e.conversation !== conversation || e.state !== "acked");
    if (left.length !== this.entries.length) this._set(left);
  }

  /** @param {string} clientId */
  remove(clientId) {
    this._set(this.entries.filter((e) => e.client_id !== clientId));
  }

  /**
   * Another agent for a conversation that is still to be created; what failed for want of the first one is sent again.
   * @param {string} clientId  of the conversation @param {string | null} agent
   */
  useAgent(clientId, agent) {
    const affected = (/** @type {Entry} */ e) => e.conversation === null && e.conversation_client_id === clientId;
    this._set(
      this.entries.map((e) => {
        if (!affected(e)) return e;
        const { problem, code, ...rest } = e;
        return code === "unknown_agent" ? { ...rest, agent, state: /** @type {const} */ ("pending") } : { ...e, agent };
      }),
    );
    void this.flush();
  }

  clear() {
    this._set([]);
  }

  /** Send everything that waits, in order. Safe to call at any time. */
  async flush() {
    if (this._busy) {
      this._again = true;
      return;
    }
    this._busy = true;
    try {
      for (;;) {
        this._again = false;
        const entry = this.entries.find((e) => e.state === "pending");
        if (!entry) break;
        if (!(await this._send(entry))) break;
      }
    } finally {
      this._busy = false;
    }
    if (this._again) void this.flush();
  }

  /** @private @param {Entry} entry @returns {Promise<boolean>} whether to go on with the next one */
  async _send(entry) {
    try {
      let conversation = entry.conversation;
      if (conversation === null) {
        const { model, agent } = entry;
        const body = { client_id: entry.conversation_client_id, ...(model === null ? {} : { model }), ...(agent ? { agent } : {}) };
        const info = await this._post("/api/conversations", body);
        conversation = String(info.id);
        const id = conversation;
        this._set(this.entries.map((e) => (e.conversation_client_id === entry.conversation_client_id && e.conversation === null ? { ...e, conversation: id } : e)));
        this.dispatchEvent(new CustomEvent("created", { detail: { client_id: entry.conversation_client_id, info } }));
      }
      await this._post(`/api/conversations/${encodeURIComponent(conversation)}/messages`, { client_id: entry.client_id, content: entry.content });
      this._attempt = 0;
      // It may have been settled by an event that overtook this answer.
      this._set(this.entries.map((e) => (e.client_id === entry.client_id ? { ...e, state: /** @type {const} */ ("acked") } : e)));
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.retryable || error.code === "bad_answer" || error.status === 401) {
        const delay = RETRY_MS[Math.min(this._attempt, RETRY_MS.length - 1)];
        this._attempt += 1;
        // After a 401 the next sign-in flushes; a timer would only knock on a closed door.
        if (error.status !== 401) this._later(() => void this.flush(), delay);
        return false;
      }
      const problem = this._describe(error);
      this._set(this.entries.map((e) => (e.client_id === entry.client_id ? { ...e, state: /** @type {const} */ ("failed"), problem, code: error.code } : e)));
      this.dispatchEvent(new CustomEvent("refused", { detail: error.code }));
      return true;
    }
  }

  /** @private @returns {Entry[]} */
  _load() {
    try {
      const raw = JSON.parse(this._storage.getItem(this._key) ?? "[]");
      return raw.filter((/** @type {any} */ e) => e && typeof e.client_id === "string" && typeof e.content === "string" && e.content.trim());
    } catch {
      return [];
    }
  }

  /** @private @param {Entry[]} entries */
  _set(entries) {
    this.entries = entries;
    const waiting = entries.filter((e) => e.state !== "acked");
    try {
      if (waiting.length) this._storage.setItem(this._key, JSON.stringify(waiting));
      else this._storage.removeItem(this._key);
    } catch {
      // Storage may be full or forbidden; the message is still sent from memory.
    }
    this.dispatchEvent(new Event("change"));
  }
}
