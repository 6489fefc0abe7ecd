import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";
import { I18n } from "../src/i18n/core.js";

const src = new URL("../src/", import.meta.url);
/** @param {string} locale */
const read = async (locale) => JSON.parse(await readFile(new URL(`i18n/${locale}.json`, src), "utf8"));
const bundles = { en: await read("en"), it: await read("it"), fr: await read("fr") };

const sources = (await readdir(src, { recursive: true })).filter((name) => name.endsWith(".js"));
const code = (await Promise.all(sources.map((name) => readFile(new URL(name, src), "utf8")))).join("\n");

/** @param {any} text */
const placeholders = (text) => [...new Set(JSON.stringify(text).match(/\{\w+\}/g) ?? [])].sort();

for (const locale of /** @type {const} */ (["it", "fr"])) {
  test(`${locale} has the texts of English, no more and no fewer`, () => {
    assert.deepEqual(Object.keys(bundles[locale]).sort(), Object.keys(bundles.en).sort());
  });

  test(`${locale} fills in the same names`, () => {
    for (const [key, text] of Object.entries(bundles.en)) assert.deepEqual(placeholders(bundles[locale][key]), placeholders(text), key);
  });
}

test("every plural has each form its language needs", () => {
  for (const [locale, bundle] of Object.entries(bundles)) {
    const forms = new Intl.PluralRules(locale).resolvedOptions().pluralCategories;
    for (const [key, text] of Object.entries(bundle)) {
      if (typeof text === "string") assert.notEqual(text, "", key);
      else for (const form of forms) assert.ok(text[form], `${locale} ${key} lacks ${form}`);
    }
  }
});

test("every text the sources name exists", () => {
  const named = [...code.matchAll(/\bt\(\s*"([a-z0-9_.]+)"/g), ...code.matchAll(/\?\s*"([a-z]+\.[a-z0-9_]+)"/g), ...code.matchAll(/:\s*"((?:approval|live|chat|hello|keys|side|dock)\.[a-z0-9_]+)"/g)].map((m) => m[1]);
  assert.ok(named.length > 200);
  for (const key of named) if (!/\.js$/.test(key)) assert.ok(key in bundles.en, `no text ${key}`);
});

test("every text is used", () => {
  const prefixes = [...code.matchAll(/`([a-z_.]+[._])\$\{/g)].map((m) => m[1]);
  for (const key of Object.keys(bundles.en)) {
    assert.ok(code.includes(`"${key}"`) || prefixes.some((prefix) => key.startsWith(prefix)), `text ${key} is never used`);
  }
});

test("texts are short and plain: no exclamation marks, no oops", () => {
  for (const bundle of Object.values(bundles)) for (const [key, text] of Object.entries(bundle)) assert.doesNotMatch(JSON.stringify(text), /!|oops/i, key);
});

test("numbers choose the plural and are written in the language", () => {
  const i18n = new I18n({ a: { one: "{count} thing", other: "{count} things" }, b: "{name} has {n}" });
  assert.deepEqual([i18n.t("a", { count: 1 }), i18n.t("a", { count: 2500 })], ["1 thing", "2,500 things"]);
  i18n.use("it", { a: { one: "{count} cosa", many: "{count} cose", other: "{count} cose" } });
  assert.equal(i18n.t("a", { count: 25000 }), "25.000 cose");
  assert.equal(i18n.t("b", { name: "{n}", n: 3 }), "{n} has 3");
});

test("an unknown key shows itself, a plugin's plain text stays, its key is found", () => {
  const i18n = new I18n({});
  assert.equal(i18n.t("no.such"), "no.such");
  i18n.add("en", { "plugin.notes.title": "Notes" });
  assert.deepEqual([i18n.tt("plugin.notes.title"), i18n.tt("My page"), i18n.tt(null)], ["Notes", "My page", ""]);
});

test("a plugin cannot replace a text of the app", () => {
  const i18n = new I18n({ "choice.deny": "Deny" });
  i18n.add("en", { "choice.deny": "Allow" });
  assert.equal(i18n.t("choice.deny"), "Deny");
});

test("times read well", () => {
  const i18n = new I18n({});
  assert.deepEqual([300, 12_300, 125_000, 3_720_000].map((ms) => i18n.duration(ms)), ["0.3 sec", "12 sec", "2 min 5 sec", "1 hr 2 min"]);
  assert.equal(i18n.relative(1000, 1000 * 1000 + 3 * 60_000), "3 minutes ago");
  assert.equal(i18n.bytes(1_117_320_768), "1.1 GB");
});
