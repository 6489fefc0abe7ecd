import assert from "node:assert/strict";
import { test } from "node:test";
import { errorsByField, faultsOf, isSecret, kindOf, resolve, valueAt } from "../src/ui/form-schema.js";

const AREA = { type: "object", required: ["radius"], properties: { radius: { type: "integer", minimum: 1 }, label: { type: "string" } } };
const root = { type: "object", required: ["name"], $defs: { Area: AREA }, properties: { name: { type: "string" }, area: { $ref: "#/$defs/Area", title: "Area" } } };

test("each field has the control its type and annotations ask for", () => {
  /** @type {[any, string][]} */
  const cases = [
    [{ type: "string" }, "text"],
    [{ type: "string", "x-kind": "textarea" }, "textarea"],
    [{ type: "string", maxLength: 5000 }, "textarea"],
    [{ type: "string", "x-kind": "url" }, "url"],
    [{ type: "string", format: "uri" }, "url"],
    [{ type: "string", format: "email" }, "email"],
    [{ type: "string", "x-kind": "secret" }, "secret"],
    [{ type: "string", format: "password" }, "secret"],
    [{ type: "string", "x-kind": "model" }, "model"],
    [{ type: "boolean" }, "switch"],
    [{ type: "integer" }, "number"],
    [{ enum: ["a", "b"] }, "select"],
    [{ type: "string", "x-kind": "select" }, "select"],
    [{ type: "array", items: { type: "string" } }, "list"],
    [{ type: "array", items: { type: "object" } }, "json"],
    [{ type: "object" }, "json"],
    [AREA, "group"],
  ];
  for (const [property, kind] of cases) assert.equal(kindOf(property), kind, JSON.stringify(property));
  assert.equal(kindOf({ type: "string" }, true), "select", "options of the server make a select");
});

test("references and nullable types are followed, and a loop of them ends", () => {
  assert.equal(kindOf(resolve({ $ref: "#/$defs/Area", title: "Area" }, root)), "group");
  assert.equal(resolve({ $ref: "#/$defs/Area", title: "Mine" }, root).title, "Mine");
  const maybe = resolve({ anyOf: [{ type: "integer" }, { type: "null" }], title: "n" }, root);
  assert.deepEqual([maybe.type, maybe.nullable, maybe.title], ["integer", true, "n"]);
  const choice = resolve({ anyOf: [{ const: "a", title: "A" }, { const: "b", title: "B" }] }, root);
  assert.deepEqual([choice.enum, choice.enumNames], [["a", "b"], ["A", "B"]]);
  const loop = { $defs: { A: { $ref: "#/$defs/A" } } };
  assert.deepEqual(resolve({ $ref: "#/$defs/A" }, loop).type, undefined);
});

test("what is wrong is found by path, also inside a group", () => {
  const found = faultsOf(root, { name: "", area: { radius: 0 } });
  assert.deepEqual(Object.keys(found).sort(), ["area.radius", "name"]);
  assert.equal(found["area.radius"].key, "form.too_small");
  assert.deepEqual(faultsOf(root, { name: "x", area: { radius: 3 } }), {});
});

test("each limit has a sentence of its own", () => {
  /** @type {[any, any, string | null][]} */
  const cases = [
    [{ type: "integer" }, 1.5, "form.not_whole"],
    [{ type: "number" }, NaN, "form.not_number"],
    [{ type: "number", exclusiveMinimum: 0 }, 0, "form.not_above"],
    [{ type: "number", exclusiveMaximum: 1 }, 1, "form.not_below"],
    [{ type: "number", maximum: 1 }, 2, "form.too_big"],
    [{ type: "string", minLength: 2 }, "x", "form.too_short"],
    [{ type: "string", maxLength: 2 }, "héé", "form.too_long"],
    [{ type: "string", maxLength: 1 }, "🎈", null],
    [{ type: "string", pattern: "^a+$" }, "b", "form.bad_pattern"],
    [{ type: "string", pattern: "(?<bad" }, "b", null],
    [{ type: "string", "x-kind": "url" }, "javascript:alert(1)", "form.not_url"],
    [{ type: "string", "x-kind": "url" }, "http://localhost:1", null],
    [{ type: "array", minItems: 2, items: {} }, ["a"], "form.too_few"],
    [{ type: "array", items: { type: "integer" } }, [1, null], "form.missing"],
    [{ type: "boolean" }, false, null],
  ];
  for (const [property, value, key] of cases) {
    const found = faultsOf({ required: ["f"], properties: { f: property } }, { f: value });
    assert.equal(found.f?.key ?? null, key, JSON.stringify([property, value]));
  }
});

test("a secret the server holds is not missing, unless it is being removed", () => {
  const schema = { required: ["key"], properties: { key: { type: "string", "x-kind": "secret" } } };
  assert.ok(isSecret(schema.properties.key));
  assert.deepEqual(faultsOf(schema, {}, () => true), {});
  assert.equal(faultsOf(schema, { key: null }, () => false).key.key, "form.missing");
  assert.equal(faultsOf(schema, {}, () => false).key.key, "form.missing");
});

test("errors of the server find their fields", () => {
  assert.deepEqual(errorsByField([{ field: "a", message: "No." }, { field: "a", message: "Nor so." }, { field: "", message: "Hm." }]), { a: "No. Nor so.", "": "Hm." });
  assert.deepEqual(errorsByField({ a: "No." }), { a: "No." });
  assert.deepEqual(errorsByField(undefined), {});
});

test("a value is found by its path", () => {
  assert.equal(valueAt({ a: { b: 3 } }, "a.b"), 3);
  assert.equal(valueAt({}, "a.b"), undefined);
});
