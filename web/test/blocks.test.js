import assert from "node:assert/strict";
import { test } from "node:test";
import { BlockSplitter } from "../src/markdown/blocks.js";
import { renderBlock } from "../src/markdown/render.js";

const labels = { image: (/** @type {string} */ host) => host, copy: "Copy" };

/** @param {BlockSplitter} splitter */
const html = (splitter) => splitter.blocks.map((block) => renderBlock(block, labels)).join("");

/** @param {string} text */
function atOnce(text) {
  const splitter = new BlockSplitter();
  splitter.update(text);
  return html(splitter);
}

const TEXTS = {
  paragraphs: "One two three.\n\nFour five.\nSix.\n\nSeven.",
  "headings of both kinds": "# A\n\ntext\n\nTitle\n===\n\nmore\n---\nend",
  "a loose and a tight list": "- a\n- b\n\n- c\n\n  more of c\n- d\n\nafter",
  "numbered lists that go on": "1. a\n2. b\n\n3. c\n\ntext\n\n7. x\n8. y\n",
  "nested lists": "- a\n  - b\n    - c\n\n      deep\n- d\n",
  "a fence": "before\n\n```js\nlet a = 1;\n\n# no heading\n- no list\n```\n\nafter",
  "a fence that never ends": "```\na\n\nb\n",
  "a longer fence around a shorter one": "````md\n```\ninner\n```\n````\ntext\n",
  "a table": "text\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n\nafter",
  "quotes": "> a\nlazy\n> b\n\n> c\n\ntext",
  "rules and stars": "a\n\n***\n\n**b** * c *d*\n\n---\n",
  "html": "<div>\n\n**x**\n\n</div>\n\ntext <b>b</b>\n",
  "tasks": "- [x] a\n- [ ] b\n",
  "indented code": "text\n\n    code\n\n    more\n\nend",
  "definitions before use": "[a]: https://a.example\n\nsee [a] and\n\nagain [a].\n",
  "line ends of Windows": "# a\r\n\r\n- b\r\n- c\r\n\r\nd\r\n",
  "not Latin": "# 标题\n\n段落一。\n\n- مرحبا\n- שלום\n\n🙂 end",
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`${name}: arriving by character gives the same page as arriving at once`, () => {
    const splitter = new BlockSplitter();
    for (let end = 1; end <= text.length; end++) splitter.update(text.slice(0, end));
    assert.equal(html(splitter), atOnce(text));
  });

  test(`${name}: a finished block never changes`, () => {
    const splitter = new BlockSplitter();
    /** @type {string[]} */
    let before = [];
    for (let end = 1; end <= text.length; end++) {
      splitter.update(text.slice(0, end));
      const now = splitter.done.map((block) => renderBlock(block, labels));
      assert.deepEqual(now.slice(0, before.length), before);
      before = now;
    }
  });
}

test("only the tail stays open in a long text", () => {
  const splitter = new BlockSplitter();
  const text = Array.from({ length: 400 }, (_, n) => `Paragraph ${n} with some words.`).join("\n\n");
  splitter.update(text);
  splitter.update(`${text}\n\nThe next one`);
  assert.ok(splitter.done.length >= 398);
  assert.ok(splitter.open.length <= 2);
});

test("another text starts anew and says so", () => {
  const splitter = new BlockSplitter();
  assert.equal(splitter.update("a\n\nb\n\nc"), true);
  assert.equal(splitter.update("x\n\ny"), false);
  assert.equal(html(splitter), atOnce("x\n\ny"));
});
