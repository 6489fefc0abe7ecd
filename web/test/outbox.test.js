import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/api/http.js";
import { Outbox } from "../src/chat/outbox.js";

function storage() {
  /** @type {Map<string, string>} */
  const map = new Map();
  return { map, getItem: (/** @type {string} */ k) => map.get(k) ?? null, setItem: (/** @type {string} */ k, /** @type {string} */ v) => void map.set(k, v), removeItem: (/** @type {string} */ k) => void map.delete(k) };
}

const down = () => new ApiError({ status: 0, code: "offline" });

/** @param {{store?: ReturnType<typeof storage>, post: (path: string, body: any) => Promise<any>}} options */
function bench({ store = storage(), post }) {
  /** @type {[string, any][]} */
  const calls = [];
  /** @type {(() => void)[]} */
  const timers = [];
  let next = 0;
  const outbox = new Outbox({
    storage: store,
    key: "box",
    newId: () => `k${++next}`,
    later: (run) => timers.push(run),
    post: async (path, body) => {
      calls.push([path, body]);
      return post(path, body);
    },
  });
  return { outbox, calls, timers, store };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a message goes out with its client id and is settled by the conversation", async () => {
  const { outbox, calls, store } = bench({ post: async () => ({}) });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "hi" });
  await settled();
  assert.deepEqual(calls, [["/api/conversations/c1/messages", { client_id: "k1", content: "hi" }]]);
  assert.equal(outbox.entries[0].state, "acked");
  assert.equal(store.map.size, 0);
  outbox.settle((id) => id === "k1", "c1");
  assert.equal(outbox.entries.length, 0);
});

test("a new conversation is created once, and the rest follows into it", async () => {
  const { outbox, calls } = bench({ post: async (path) => (path === "/api/conversations" ? { id: "c9" } : {}) });
  /** @type {any[]} */
  const created = [];
  outbox.addEventListener("created", (e) => created.push(/** @type {CustomEvent} */ (e).detail));
  outbox.add({ conversation: null, conversationClientId: "n1", content: "one", model: "m2" });
  outbox.add({ conversation: null, conversationClientId: "n1", content: "two" });
  await settled();
  assert.deepEqual(calls.map(([path]) => path), ["/api/conversations", "/api/conversations/c9/messages", "/api/conversations/c9/messages"]);
  assert.deepEqual(calls[0][1], { client_id: "n1", model: "m2" });
  assert.equal(created.length, 1);
});

test("C4: sent again and again during an outage, it keeps one id, and goes once the server is back", async () => {
  let up = false;
  /** @type {Set<string>} */
  const stored = new Set();
  const { outbox, calls, timers } = bench({
    post: async (_path, body) => {
      if (!up) throw down();
      stored.add(body.client_id);
      return {};
    },
  });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "hi" });
  await settled();
  for (let n = 0; n < 3; n++) {
    timers.shift()?.();
    await settled();
  }
  assert.equal(outbox.entries[0].state, "pending");
  up = true;
  for (let n = 0; n < 10; n++) await outbox.flush();
  assert.deepEqual([...stored], ["k1"]);
  assert.ok(calls.every(([, body]) => body.client_id === "k1" && body.content === "hi"));
});

test("C4: reconnecting with an empty composer sends nothing", async () => {
  const { outbox, calls } = bench({ post: async () => ({}) });
  assert.equal(outbox.add({ conversation: "c1", conversationClientId: "c1", content: "  \n " }), null);
  for (let n = 0; n < 10; n++) await outbox.flush();
  assert.equal(calls.length, 0);
});

test("what was not acknowledged survives a reload, what was is not sent again", async () => {
  const store = storage();
  const first = bench({ store, post: async (_p, body) => (body.content === "two" ? Promise.reject(down()) : {}) });
  first.outbox.add({ conversation: "c1", conversationClientId: "c1", content: "one" });
  await settled();
  first.outbox.add({ conversation: "c1", conversationClientId: "c1", content: "two" });
  await settled();
  const second = bench({ store, post: async () => ({}) });
  assert.deepEqual(second.outbox.entries.map((e) => [e.client_id, e.content]), [["k2", "two"]]);
  await second.outbox.flush();
  assert.deepEqual(second.calls.map(([, body]) => body.client_id), ["k2"]);
});

test("order holds: a later message never overtakes one that waits", async () => {
  let failures = 2;
  const { outbox, calls, timers } = bench({
    post: async () => {
      if (failures-- > 0) throw down();
      return {};
    },
  });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "one" });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "two" });
  await settled();
  while (timers.length) {
    timers.shift()?.();
    await settled();
  }
  assert.deepEqual(calls.map(([, b]) => b.content).slice(-2), ["one", "two"]);
});

test("a refusal is final and says why; the next message still goes", async () => {
  const { outbox } = bench({ post: async (_p, body) => (body.content === "big" ? Promise.reject(new ApiError({ status: 413, code: "message_too_large", detail: "Too long." })) : {}) });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "big" });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "small" });
  await settled();
  assert.deepEqual(outbox.entries.map((e) => [e.state, e.problem]), [["failed", "Too long."], ["acked", undefined]]);
});

test("a new conversation that names a lost agent goes out again with another one, and keeps its ids", async () => {
  const gone = new ApiError({ status: 422, code: "unknown_agent", detail: "Choose another." });
  const { outbox, calls } = bench({
    post: async (path, body) => {
      if (path !== "/api/conversations") return {};
      return body.agent === "gone" ? Promise.reject(gone) : { id: "c9" };
    },
  });
  outbox.add({ conversation: null, conversationClientId: "n1", content: "one", agent: "gone" });
  outbox.add({ conversation: null, conversationClientId: "n1", content: "two", agent: "gone" });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "elsewhere" });
  await settled();
  assert.deepEqual(outbox.entries.map((e) => [e.state, e.problem]), [["failed", "Choose another."], ["failed", "Choose another."], ["acked", undefined]]);
  calls.length = 0;
  outbox.useAgent("n1", null);
  await settled();
  assert.deepEqual(calls, [
    ["/api/conversations", { client_id: "n1" }],
    ["/api/conversations/c9/messages", { client_id: "k1", content: "one" }],
    ["/api/conversations/c9/messages", { client_id: "k2", content: "two" }],
  ]);
  assert.deepEqual(outbox.entries.map((e) => [e.state, e.problem]), [["acked", undefined], ["acked", undefined], ["acked", undefined]]);
});

test("an ended session keeps the message and waits for the sign-in", async () => {
  const { outbox, timers } = bench({ post: async () => Promise.reject(new ApiError({ status: 401, code: "not_signed_in" })) });
  outbox.add({ conversation: "c1", conversationClientId: "c1", content: "hi" });
  await settled();
  assert.deepEqual([outbox.entries[0].state, timers.length], ["pending", 0]);
});

test("an unreadable store is an empty one", () => {
  const store = storage();
  store.map.set("box", "{not json");
  assert.deepEqual(bench({ store, post: async () => ({}) }).outbox.entries, []);
});
