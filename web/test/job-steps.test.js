import assert from "node:assert/strict";
import { test } from "node:test";
import { isNewer, stepsOf } from "../src/core/job-steps.js";

/** @param {object} [changes] */
const job = (changes = {}) => /** @type {any} */ ({ id: "j1", act: "install", state: "running", step: "check", log: ["a", "b"], ...changes });

test("what is behind is done, what is ahead is not", () => {
  assert.deepEqual(stepsOf(job()).map((s) => s.state), ["done", "done", "now", "next", "next"]);
  assert.deepEqual(stepsOf(job({ state: "done", step: "done" })).map((s) => s.state), ["done", "done", "done", "done", "done"]);
});

test("a step that failed is named, a rollback stands alone", () => {
  assert.deepEqual(stepsOf(job({ state: "failed" })).map((s) => s.state), ["done", "done", "failed", "next", "next"]);
  assert.deepEqual(stepsOf(job({ step: "rollback" })), [{ step: "rollback", state: "now" }]);
  assert.deepEqual(stepsOf(job({ step: "rollback", state: "rolled_back" })), [{ step: "rollback", state: "done" }]);
  assert.deepEqual(stepsOf(job({ step: "done", state: "rolled_back" })), [{ step: "rollback", state: "done" }]);
});

test("an answer that an event overtook changes nothing", () => {
  assert.equal(isNewer(job({ state: "done" }), job()), false);
  assert.equal(isNewer(job(), job({ log: ["a"] })), false);
  assert.equal(isNewer(job(), job({ log: ["a", "b", "c"] })), true);
  assert.equal(isNewer(null, job()), true);
});
