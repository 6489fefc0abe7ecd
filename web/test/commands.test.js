import assert from "node:assert/strict";
import { test } from "node:test";
import { commandOf, matchingCommands, typedCommand } from "../src/chat/command-menu.js";
import { workOf, workSummary } from "../src/chat/agent-work.js";

const commands = [
  { name: "weather", title: "Weather for a place", hint: "place", plugin: "weather" },
  { name: "rain", title: "Will it rain?", hint: "", plugin: "weather" },
  { name: "terrain", title: "Maps", hint: "", plugin: "maps" },
];

test("a command is being typed only at the very beginning, up to the caret", () => {
  assert.equal(typedCommand("/we", 3), "we");
  assert.equal(typedCommand("/", 1), "");
  assert.equal(typedCommand("/we rest", 3), "we");
  assert.equal(typedCommand("/weather Turin", 14), null);
  assert.equal(typedCommand("hello /we", 9), null);
  assert.equal(typedCommand("/weather", 3), null);
  assert.equal(typedCommand("/etc/passwd", 11), null);
});

test("names that begin with the word come first, then those that hold it, then titles", () => {
  assert.deepEqual(matchingCommands(commands, "rain").map((c) => c.name), ["rain", "terrain"]);
  assert.deepEqual(matchingCommands(commands, "place").map((c) => c.name), ["weather"]);
  assert.equal(matchingCommands(commands, "").length, 3);
  assert.equal(matchingCommands(commands, "zzz").length, 0);
});

test("a complete name is recognised, whatever its capitals", () => {
  assert.equal(commandOf(commands, "/Weather Turin")?.name, "weather");
  assert.equal(commandOf(commands, "/weather")?.name, "weather");
  assert.equal(commandOf(commands, "/wea"), null);
  assert.equal(commandOf(commands, "/weatherman"), null);
});

test("the work of an agent is read from its newest progress; a tool's own is none", () => {
  const work = workOf({ agent: "r", name: "Researcher", title: "Ferries", text: "There are two.", step: "Read file: a.md", steps: [{ id: 1 }], steps_before: 3 });
  assert.deepEqual([work?.name, work?.before, work?.steps.length], ["Researcher", 3, 1]);
  assert.equal(workSummary(/** @type {any} */ (work)), "Read file: a.md");
  assert.equal(workSummary(/** @type {any} */ (workOf({ agent: "r", text: " a\n b " }))), "a b");
  assert.equal(workOf({ percent: 3 }), null);
  assert.equal(workOf(null), null);
});
