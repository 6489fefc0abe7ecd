import assert from "node:assert/strict";
import { test } from "node:test";
import { ConversationSync } from "../src/chat/sync.js";

function bench() {
  /** @type {any[]} */
  const sent = [];
  /** @type {any[]} */
  const applied = [];
  let open = true;
  const sync = new ConversationSync("c1", { send: (m) => (open && sent.push(m), open), apply: (e) => applied.push(e) });
  return { sync, sent, applied, setOpen: (/** @type {boolean} */ value) => (open = value) };
}

const snapshot = (/** @type {number} */ seq, epoch = "e1") => ({ type: "snapshot", epoch, seq });
const delta = (/** @type {number} */ seq) => ({ type: "token_delta", seq, delta: `${seq} ` });

test("a first subscription names nothing and gets a snapshot", () => {
  const { sync, sent, applied } = bench();
  sync.subscribe();
  assert.deepEqual(sent, [{ type: "subscribe", conversation: "c1", epoch: null, after: null }]);
  assert.equal(sync.receive(delta(4)), "early");
  assert.equal(sync.receive(snapshot(4)), "applied");
  assert.equal(sync.receive(delta(5)), "applied");
  assert.deepEqual(applied.map((e) => e.seq), [4, 5]);
});

test("after a reconnect it names the last event and takes the rest in order", () => {
  const { sync, sent, applied } = bench();
  sync.subscribe();
  sync.receive(snapshot(10));
  for (const seq of [11, 12]) sync.receive(delta(seq));
  sync.subscribe();
  assert.deepEqual(sent.at(-1), { type: "subscribe", conversation: "c1", epoch: "e1", after: 12 });
  for (const seq of [13, 14, 15]) assert.equal(sync.receive(delta(seq)), "applied");
  assert.deepEqual(applied.map((e) => e.seq), [10, 11, 12, 13, 14, 15]);
});

test("a duplicate is ignored", () => {
  const { sync, applied } = bench();
  sync.receive(snapshot(3));
  sync.receive(delta(4));
  assert.equal(sync.receive(delta(4)), "duplicate");
  assert.equal(sync.receive(delta(2)), "duplicate");
  assert.equal(applied.length, 2);
});

test("a gap asks once, and heals without a hole or a repeat", () => {
  const { sync, sent, applied } = bench();
  sync.receive(snapshot(1));
  assert.equal(sync.receive(delta(4)), "gap");
  assert.equal(sync.receive(delta(5)), "gap");
  assert.equal(sent.length, 1);
  assert.deepEqual(sent[0], { type: "subscribe", conversation: "c1", epoch: "e1", after: 1 });
  for (const seq of [2, 3, 4, 5, 6]) sync.receive(delta(seq));
  assert.deepEqual(applied.map((e) => e.seq), [1, 2, 3, 4, 5, 6]);
});

test("a second gap after a healed one asks again", () => {
  const { sync, sent } = bench();
  sync.receive(snapshot(1));
  sync.receive(delta(3));
  sync.receive(delta(2));
  sync.receive(delta(3));
  sync.receive(delta(9));
  assert.equal(sent.length, 2);
  assert.equal(sent[1].after, 3);
});

test("a gap noticed while the socket is closed is asked for on the next hello", () => {
  const { sync, sent, setOpen } = bench();
  sync.receive(snapshot(1));
  setOpen(false);
  sync.receive(delta(3));
  assert.equal(sent.length, 0);
  setOpen(true);
  sync.subscribe();
  assert.equal(sent[0].after, 1);
});

test("another epoch brings a snapshot that replaces the count", () => {
  const { sync, applied } = bench();
  sync.receive(snapshot(80));
  sync.receive(snapshot(2, "e2"));
  assert.equal(sync.receive(delta(3)), "applied");
  assert.deepEqual([sync.epoch, sync.seq, applied.length], ["e2", 3, 3]);
});

test("a changed branch drops events until the new snapshot", () => {
  const { sync, sent, applied } = bench();
  sync.receive(snapshot(5));
  sync.restart();
  assert.deepEqual(sent.at(-1), { type: "subscribe", conversation: "c1", epoch: null, after: null });
  assert.equal(sync.receive(delta(6)), "early");
  sync.receive(snapshot(7));
  assert.equal(sync.receive(delta(8)), "applied");
  assert.deepEqual(applied.map((e) => e.seq), [5, 7, 8]);
});

test("whatever is lost or repeated on the way, the text is whole (200 random wires)", () => {
  let state = 42;
  const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  for (let round = 0; round < 200; round++) {
    /** @type {any[]} */
    const log = [];
    let text = "";
    /** @type {any[]} */
    const wire = [];
    const sync = new ConversationSync("c", {
      // The server answers from its log, after what is on the wire already.
      send: (/** @type {any} */ m) => {
        if (m.epoch === null) wire.push({ type: "snapshot", epoch: "e", seq: log.length, text: log.map((e) => e.delta).join("") });
        else for (const e of log.slice(m.after)) wire.push(e);
        return true;
      },
      apply: (e) => (text = e.type === "snapshot" ? e.text : text + e.delta),
    });
    sync.subscribe();
    for (let n = 1; n <= 40; n++) {
      const event = { type: "token_delta", seq: n, delta: `${n} ` };
      log.push(event);
      const luck = random();
      if (luck > 0.15) wire.push(event);
      if (luck > 0.9) wire.push(event);
      if (luck < 0.05) {
        wire.length = 0;
        sync.subscribe();
      }
      while (wire.length && random() > 0.3) sync.receive(wire.shift());
    }
    sync.subscribe();
    while (wire.length) sync.receive(wire.shift());
    assert.equal(text, log.map((e) => e.delta).join(""));
  }
});
