/**
 * Keeps one conversation's events in order.
 *
 * Every event carries `seq`, which rises by one. This object names the last event it has when it subscribes, ignores
 * duplicates, and subscribes again on a gap. What it hands on is a snapshot followed by events without holes.
 */
export class ConversationSync {
  /**
   * @param {import("../api/types.js").Id} conversation
   * @param {{send: (message: object) => boolean, apply: (event: any) => void}} io
   */
  constructor(conversation, { send, apply }) {
    this.conversation = conversation;
    /** @type {string | null} */
    this.epoch = null;
    /** @type {number | null} the last event applied; null before the first snapshot */
    this.seq = null;
    /** @private */ this._send = send;
    /** @private */ this._apply = apply;
    /** @private true from asking until the answer begins */ this._asked = false;
  }

  /** Ask for what is missing. Call it on every `hello`. */
  subscribe() {
    this._asked = this._send({
      type: "subscribe",
      conversation: this.conversation,
      epoch: this.epoch,
      after: this.epoch === null ? null : this.seq,
    });
  }

  /**
   * Ask for a fresh snapshot, e.g. because the branch changed. What is shown stays until it arrives; events before it
   * are part of it.
   */
  restart() {
    this.epoch = null;
    this.seq = null;
    this._asked = this._send({ type: "subscribe", conversation: this.conversation, epoch: null, after: null });
  }

  unsubscribe() {
    this._send({ type: "unsubscribe", conversation: this.conversation });
    this.epoch = null;
    this.seq = null;
    this._asked = false;
  }

  /**
   * @param {any} event  an event of this conversation
   * @returns {"applied" | "duplicate" | "gap" | "early"}
   */
  receive(event) {
    if (event.type === "snapshot") {
      this.epoch = event.epoch;
      this.seq = event.seq;
      this._asked = false;
      this._apply(event);
      return "applied";
    }
    if (this.seq === null) return "early";
    if (typeof event.seq !== "number") {
      this._apply(event);
      return "applied";
    }
    if (event.seq <= this.seq) return "duplicate";
    if (event.seq > this.seq + 1) {
      // While an answer is on its way, later live events overtake it; they are part of the answer too.
      if (!this._asked) this.subscribe();
      return "gap";
    }
    this.seq = event.seq;
    if (this.epoch !== null) this._asked = false;
    this._apply(event);
    return "applied";
  }
}
