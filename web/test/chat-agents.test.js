import assert from "node:assert/strict";
import { test } from "node:test";
import { chatAgents } from "../src/chat/chat-agents.js";

/** @param {string} id @param {"chat" | "task"} type @param {string | null} plugin */
const agent = (id, type, plugin) => ({ id, name: id.toUpperCase(), description: "", type, plugin });
const assistant = agent("assistant", "chat", null);
const guide = agent("guide", "chat", "crew");
const all = [guide, assistant, agent("worker", "task", null), agent("scout", "task", "crew")];

test("agents that take work from others are none to talk with", () => {
  assert.deepEqual(chatAgents(all, null).offered, [guide, assistant]);
});

test("without a choice it is the server's own, wherever it is listed", () => {
  assert.deepEqual([chatAgents(all, null).current, chatAgents(all, undefined).current, chatAgents(all, "").current], [assistant, assistant, assistant]);
});

test("a chosen one is found", () => {
  const { current, missing } = chatAgents(all, "guide");
  assert.deepEqual([current, missing], [guide, false]);
});

test("one that went away, or turned into one for tasks, is missing", () => {
  for (const chosen of ["gone", "worker"]) {
    const { current, missing, main } = chatAgents(all, chosen);
    assert.deepEqual([current, missing, main], [null, true, assistant]);
  }
});

test("before the list is there, nothing counts as missing", () => {
  assert.deepEqual(chatAgents(null, "guide"), { offered: [], main: null, current: null, missing: false });
});
