import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const css = await readFile(new URL("../src/styles/tokens.css", import.meta.url), "utf8");

/** @typedef {[number, number, number]} Rgb */

/** oklch to linear sRGB, by the matrices of CSS Color 4; out of gamut is clipped. @param {number} l @param {number} c @param {number} h @returns {Rgb} */
function linear(l, c, h) {
  const a = c * Math.cos((h * Math.PI) / 180);
  const b = c * Math.sin((h * Math.PI) / 180);
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map((v) => v ** 3);
  return /** @type {Rgb} */ (
    [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z].map((v) => Math.min(1, Math.max(0, v)))
  );
}

/** Relative luminance of WCAG 2. @param {Rgb} rgb */
const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;

/** @param {Rgb} one @param {Rgb} two */
function contrast(one, two) {
  const [dark, light] = [luminance(one), luminance(two)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** @type {Record<"light" | "dark", Map<string, Rgb>>} */
const themes = { light: new Map(), dark: new Map() };
for (const [, name, light, dark] of css.matchAll(/--([a-z-]+): light-dark\(oklch\(([^()]+)\), oklch\(([^()]+)\)\)/g)) {
  if (light.includes("/")) continue;
  themes.light.set(name, linear(.../** @type {[number, number, number]} */ (light.split(" ").map(Number))));
  themes.dark.set(name, linear(.../** @type {[number, number, number]} */ (dark.split(" ").map(Number))));
}

const GROUNDS = ["ground", "side", "surface", "float", "sunken", "tint"];
/** @type {[string, string[]][]} text and the grounds it stands on */
const PAIRS = [
  ["text", [...GROUNDS, "tint-strong", "accent-soft", "wait-soft", "done-soft", "fail-soft", "run-soft", "add", "del", "add-word", "del-word"]],
  ["text-soft", [...GROUNDS, "tint-strong", "wait-soft", "fail-soft", "add", "del"]],
  ["text-faint", [...GROUNDS, "tint-strong"]],
  ["accent-text", [...GROUNDS, "accent-soft", "fail-soft", "wait-soft"]],
  ["on-accent", ["accent", "accent-hover"]],
  ["wait", ["ground", "surface", "side", "tint", "tint-strong", "wait-soft"]],
  ["done", ["ground", "surface", "float", "done-soft"]],
  ["fail", ["ground", "surface", "float", "tint", "fail-soft"]],
  ["run", ["ground", "surface", "run-soft"]],
  ...["keyword", "string", "number", "title", "type", "comment"].map((name) => /** @type {[string, string[]]} */ ([`code-${name}`, ["sunken"]])),
];
/** @type {[string, string[]][]} edges and marks a person must see */
const EDGES = [
  ["line-strong", ["ground", "surface", "float"]],
  ["focus", GROUNDS],
  ["accent", ["ground", "surface", "side"]],
];

for (const [theme, tokens] of Object.entries(themes)) {
  for (const [pairs, least] of /** @type {[typeof PAIRS, number][]} */ ([[PAIRS, 4.5], [EDGES, 3]])) {
    for (const [front, grounds] of pairs) {
      test(`${theme}: ${front} stands out from what is behind it by ${least}`, () => {
        for (const ground of grounds) {
          const [a, b] = [tokens.get(front), tokens.get(ground)];
          assert.ok(a && b, `no token ${a ? ground : front}`);
          const ratio = contrast(a, b);
          assert.ok(ratio >= least, `${front} on ${ground}: ${ratio.toFixed(2)}`);
        }
      });
    }
  }
}

test("black on white is 21, so the sums are right", () => {
  assert.equal(contrast(linear(0, 0, 0), linear(1, 0, 0)).toFixed(1), "21.0");
});

test("colours are written nowhere but in the tokens", async () => {
  const { readdir } = await import("node:fs/promises");
  const src = new URL("../src/", import.meta.url);
  for (const name of await readdir(src, { recursive: true })) {
    if (!/\.(js|css)$/.test(name) || name.endsWith("tokens.css")) continue;
    const text = await readFile(new URL(name, src), "utf8");
    assert.doesNotMatch(text, /(?:color|background|border[a-z-]*|fill|stroke|outline|shadow): *(?:#[0-9a-f]{3,8}|rgba?\(|hsla?\(|oklch\()/i, name);
  }
});
