import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversation } from "../src/chat/conversation.js";
import { chunkTurns, groupTurns, keepUnchanged, reasoningSummary, siblingsOf } from "../src/chat/turns.js";

/** @param {any} fields @returns {any} */
const message = (fields) => ({
  parent: null, siblings: [], content: "", reasoning: "", status: "ok", synthetic: false, client_id: "", attachments: [], model: "m", usage: null,
  duration_ms: null, created_at: 0, calls: [], role: "assistant", ...fields,
}); // prettier-ignore

/** @param {any} fields */
const snapshot = (fields = {}) => ({ type: "snapshot", epoch: "e", seq: 0, conversation_info: { id: "c" }, messages: [], has_more: false, live: null, queue: [], requests: [], turn: null, ...fields });

function running() {
  const model = new Conversation("c");
  model.apply(snapshot());
  model.apply({ type: "user_message", message: message({ id: 1, role: "user", content: "hi", client_id: "k1" }) });
  model.apply({ type: "turn_started", run_id: 1, started_at: 5 });
  model.apply({ type: "assistant_started", model: "m" });
  return model;
}

test("a turn from question to answer", () => {
  const model = running();
  model.apply({ type: "token_delta", kind: "reasoning", delta: "hm" });
  model.apply({ type: "token_delta", kind: "content", delta: "Hel" });
  model.apply({ type: "token_delta", kind: "content", delta: "lo" });
  assert.equal(model.live?.content, "Hello");
  assert.equal(model.running, true);
  model.apply({ type: "assistant_message", message: message({ id: 2, parent: 1, content: "Hello" }) });
  model.apply({ type: "turn_finished", outcome: "success", duration_ms: 12 });
  assert.equal(model.live, null);
  assert.equal(model.running, false);
  assert.deepEqual(model.messages.map((m) => m.content), ["hi", "Hello"]);
});

test("the recorded answer is drawn in the element that showed it growing", () => {
  const model = running();
  model.apply({ type: "token_delta", kind: "content", delta: "Hello" });
  const before = groupTurns(model.messages, model.live, (m) => model.keyOf(m));
  model.apply({ type: "assistant_message", message: message({ id: 2, parent: 1, content: "Hello" }) });
  const after = groupTurns(model.messages, model.live, (m) => model.keyOf(m));
  assert.deepEqual(after.map((t) => [t.key, t.parts.map((p) => p.key)]), before.map((t) => [t.key, t.parts.map((p) => p.key)]));
});

test("added text tells only the live listener", () => {
  const model = running();
  model.apply({ type: "token_delta", kind: "content", delta: "a" });
  let changes = 0;
  let lives = 0;
  model.addEventListener("change", () => changes++);
  model.addEventListener("live", () => lives++);
  for (let n = 0; n < 50; n++) model.apply({ type: "token_delta", kind: "content", delta: "a" });
  assert.deepEqual([changes, lives], [0, 50]);
});

test("calls run, wait for a person, and end", () => {
  const model = running();
  const call = { id: 9, name: "write_file", title: "Write", icon: "edit", summary: "x", path: "x", arguments: "{}", state: "running", result: null, result_kind: null, duration_ms: null };
  model.apply({ type: "assistant_message", message: message({ id: 2, parent: 1, calls: [call] }) });
  model.apply({ type: "tool_start", message_id: 2, call });
  const request = { id: "r", call_id: 9, status: "pending", created_at: 1 };
  model.apply({ type: "approval_required", request });
  assert.equal(model.findCall(9)?.state, "awaiting");
  assert.equal(model.pending.length, 1);
  model.apply({ type: "approval_resolved", request: { ...request, status: "answered", answer: { choice: "allow_once", allow: true, note: "" } } });
  assert.equal(model.findCall(9)?.state, "running");
  assert.equal(model.pending.length, 0);
  model.apply({ type: "tool_done", call_id: 9, state: "done", result: "ok", result_kind: "text", duration_ms: 3 });
  assert.deepEqual([model.findCall(9)?.state, model.findCall(9)?.result], ["done", "ok"]);
  assert.equal(model.messages[1].calls.length, 1);
});

test("a snapshot in the middle of an answer goes on where the text was", () => {
  const model = running();
  model.apply({ type: "token_delta", kind: "content", delta: "1 2 3 " });
  const key = model.live?.key;
  model.apply(snapshot({ messages: [message({ id: 1, role: "user", content: "hi" })], turn: { run_id: 1, started_at: 5 }, live: { message_id: 2, content: "1 2 3 4 5 ", reasoning: "", model: "m", started_at: 5 } }));
  model.apply({ type: "token_delta", kind: "content", delta: "6 " });
  assert.equal(model.live?.content, "1 2 3 4 5 6 ");
  assert.equal(model.live?.key, key);
});

test("a snapshot after the end leaves nothing running", () => {
  const model = running();
  model.apply({ type: "token_delta", kind: "content", delta: "1 2 " });
  const key = model.live?.key;
  const last = message({ id: 2, parent: 1, content: "1 2 3 " });
  model.apply(snapshot({ messages: [message({ id: 1, role: "user", content: "hi" }), last] }));
  assert.equal(model.running, false);
  assert.equal(model.live, null);
  assert.equal(model.keyOf(last), key);
});

test("older pages that a snapshot continues are kept, others are dropped", () => {
  const model = new Conversation("c");
  const page = (/** @type {number} */ from, /** @type {number} */ to) => Array.from({ length: to - from }, (_, n) => message({ id: from + n, parent: from + n - 1 || null, role: n % 2 ? "assistant" : "user" }));
  model.apply(snapshot({ messages: page(51, 101), has_more: true }));
  model.prepend(page(1, 51), false);
  model.apply(snapshot({ messages: page(53, 103), has_more: true }));
  assert.equal(model.messages.length, 102);
  assert.equal(model.hasMore, false);
  model.apply(snapshot({ messages: [message({ id: 200, parent: 7 })], has_more: true }));
  assert.deepEqual([model.messages.length, model.hasMore], [1, true]);
});

test("a known client id is known in messages and in the queue", () => {
  const model = running();
  model.apply({ type: "queue_changed", queue: [{ id: 1, client_id: "k2", content: "next", created_at: 1 }] });
  assert.deepEqual([model.knows("k1"), model.knows("k2"), model.knows("k3")], [true, true, false]);
});

test("steps join one activity per turn, text keeps its order, markers stand between", () => {
  const call = (/** @type {number} */ id) => ({ id, name: "read_file", title: "", icon: "", summary: "", path: null, arguments: "{}", state: /** @type {const} */ ("done"), result: "", result_kind: null, duration_ms: 1 });
  const turns = groupTurns(
    [
      message({ id: 1, role: "user", content: "a" }),
      message({ id: 2, content: "first", reasoning: "r", calls: [call(1), call(2)] }),
      message({ id: 3, content: "", calls: [call(3)] }),
      message({ id: 4, content: "last" }),
      message({ id: 5, role: "user", content: "b" }),
    ],
    null,
    (m) => `m${m.id}`,
    [{ key: "x", kind: "compaction", after: "m4", data: {} }],
  );
  assert.deepEqual(turns.map((t) => t.parts.map((p) => p.kind)), [["activity", "text", "text", "marker"], []]);
  const activity = /** @type {any} */ (turns[0].parts[0]);
  assert.deepEqual(activity.steps.map((/** @type {any} */ s) => s.kind), ["reasoning", "call", "call", "call"]);
});

test("the host's own messages to the model open no turn", () => {
  const turns = groupTurns([message({ id: 1, role: "user", content: "a" }), message({ id: 2, content: "x" }), message({ id: 3, role: "user", synthetic: true, content: "media" }), message({ id: 4, content: "y" })], null, (m) => `m${m.id}`);
  assert.equal(turns.length, 1);
  assert.equal(turns[0].answers.length, 2);
});

test("reasoning is summed up by its newest heading, else its newest sentence", () => {
  assert.equal(reasoningSummary("**One**\n\ntext\n\n**Two**\n\nmore"), "Two");
  assert.equal(reasoningSummary("## Plan\nbody"), "Plan");
  assert.equal(reasoningSummary("First thing. Second thing. Thi"), "Second thing.");
  assert.equal(reasoningSummary("no end yet"), "no end yet");
});

test("siblings include the message itself, in order", () => {
  assert.deepEqual(siblingsOf(message({ id: 12, siblings: [3, 12, 7] })), { ids: ["3", "7", "12"], at: 2 });
  assert.deepEqual(siblingsOf(message({ id: 4, siblings: [] })), { ids: ["4"], at: 0 });
});

const view = (/** @type {string} */ key) => /** @type {any} */ ({ key, prompt: null, answers: [], parts: [], live: false });
const keys = (/** @type {number} */ from, /** @type {number} */ to) => Array.from({ length: to - from }, (_, n) => view(`t${from + n}`));

test("chunks keep their turns while turns come in at both ends", () => {
  const first = chunkTurns(keys(100, 130), new Map(), 10);
  assert.deepEqual(first.chunks.map((c) => c.turns.length), [10, 10, 10]);
  const second = chunkTurns(keys(75, 134), first.assigned, 10);
  assert.deepEqual(second.chunks.map((c) => c.turns.length), [5, 10, 10, 10, 10, 10, 4]);
  for (const [key, id] of first.assigned) assert.equal(second.assigned.get(key), id);
  assert.equal(new Set(second.chunks.map((c) => c.id)).size, second.chunks.length);
});

test("a turn that comes in between joins its neighbours, a foreign list starts anew", () => {
  const first = chunkTurns(keys(0, 20), new Map(), 10);
  const branch = chunkTurns([...keys(0, 5), view("x"), view("y")], first.assigned, 10);
  assert.deepEqual(branch.chunks.map((c) => c.turns.length), [7]);
  assert.deepEqual(chunkTurns([view("z")], first.assigned, 10).chunks.map((c) => c.id), [0]);
});

test("turns that did not change keep their view; a changed message, a new part or live text does not", () => {
  const one = message({ id: 1, role: "user", content: "a" });
  const two = message({ id: 2, content: "b" });
  const group = (/** @type {any[]} */ list, live = null) => groupTurns(list, live, (m) => `m${m.id}`);
  const before = group([one, two, message({ id: 3, role: "user", content: "c" })]);
  const now = keepUnchanged(before, group([one, two, message({ id: 3, role: "user", content: "c2" })]));
  assert.equal(now[0], before[0]);
  assert.notEqual(now[1], before[1]);
  assert.notEqual(keepUnchanged(before, group([one, message({ id: 2, content: "B" })]))[0], before[0]);
});
