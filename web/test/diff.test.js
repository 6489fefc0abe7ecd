import assert from "node:assert/strict";
import { test } from "node:test";
import { diffWords, layOut, parseDiff } from "../src/chat/diff.js";

const text = (/** @type {import("../src/chat/diff.js").Line} */ line) => line.pieces.map((p) => p.text).join("");

test("lines get their numbers on both sides", () => {
  const [hunk] = parseDiff("--- a/x\n+++ b/x\n@@ -3,4 +3,4 @@ def f\n same\n-old line\n+new line\n same\n end\n");
  assert.equal(hunk.header, "def f");
  assert.deepEqual(hunk.lines.map((l) => [l.kind, l.old, l.new, text(l)]), [
    ["same", 3, 3, "same"],
    ["del", 4, null, "old line"],
    ["add", null, 4, "new line"],
    ["same", 5, 5, "same"],
    ["same", 6, 6, "end"],
  ]);
});

test("lines that look like headers are content inside a hunk", () => {
  const [hunk] = parseDiff("@@ -1,3 +1,3 @@\n--- a list\n+++ a sum\n @@ -1 +1 @@\n \n");
  assert.deepEqual(hunk.lines.map((l) => [l.kind, text(l)]), [["del", "-- a list"], ["add", "++ a sum"], ["same", "@@ -1 +1 @@"], ["same", ""]]);
});

test("counts may be left out, a missing last line end is a note", () => {
  const [hunk] = parseDiff("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n");
  assert.deepEqual(hunk.lines.map((l) => l.kind), ["del", "note", "add", "note"]);
});

test("several hunks and several files", () => {
  assert.equal(parseDiff("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-e\n+f\n").length, 3);
});

test("the words that differ are marked, the rest is not", () => {
  const words = diffWords("the quick brown fox", "the slow brown fox!");
  assert.deepEqual(words?.before.filter((p) => p.changed).map((p) => p.text), ["quick"]);
  assert.deepEqual(words?.after.filter((p) => p.changed).map((p) => p.text), ["slow", "!"]);
  assert.equal(words?.after.map((p) => p.text).join(""), "the slow brown fox!");
});

test("lines with nothing in common are not striped with marks", () => {
  assert.equal(diffWords("alpha beta gamma", "one two three four"), null);
  assert.equal(diffWords("", "x"), null);
});

test("a very long line is left whole", () => {
  assert.equal(diffWords("a ".repeat(5000), "b ".repeat(5000)), null);
});

test("a long diff is folded in the middle, its ends stay", () => {
  const body = Array.from({ length: 200 }, (_, n) => `+line ${n}`).join("\n");
  const rows = layOut(parseDiff(`@@ -0,0 +1,200 @@\n${body}\n`), 28);
  const fold = rows.find((r) => r.kind === "fold");
  assert.equal(rows.length, 29);
  assert.equal(/** @type {any} */ (fold).lines.length, 172);
  assert.equal(text(/** @type {any} */ (rows.at(-1)).line), "line 199");
  assert.equal(layOut(parseDiff(`@@ -0,0 +1,200 @@\n${body}\n`), Infinity).length, 200);
});

test("markup in a diff stays text", () => {
  const [hunk] = parseDiff("@@ -0,0 +1 @@\n+<img src=x onerror=alert(1)>\n");
  assert.equal(text(hunk.lines[0]), "<img src=x onerror=alert(1)>");
});

test("what is no diff has no hunks", () => {
  assert.deepEqual(parseDiff("hello"), []);
  assert.deepEqual(parseDiff(""), []);
});
