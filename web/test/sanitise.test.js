import assert from "node:assert/strict";
import { test } from "node:test";
import { JSDOM } from "jsdom";
import { BlockSplitter } from "../src/markdown/blocks.js";
import { renderBlock } from "../src/markdown/render.js";
import { createSanitiser } from "../src/markdown/sanitise.js";

const { window } = new JSDOM("");
const sanitise = createSanitiser(/** @type {any} */ (window));
const labels = { image: (/** @type {string} */ host) => `Image at ${host}`, copy: "Copy" };

/** Markdown to what the page would hold. @param {string} text */
function shown(text) {
  const splitter = new BlockSplitter();
  splitter.update(text);
  const div = window.document.createElement("div");
  for (const block of splitter.blocks) div.append(sanitise(renderBlock(block, labels)));
  return div;
}

const HOSTILE = {
  "a javascript link": "[x](javascript:alert(1))",
  "a javascript link in capitals with a tab": "[x](JaVa\tScRiPt:alert(1))",
  "an encoded javascript link": "[x](&#106;avascript:alert(1))",
  "a data address": "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
  "a vbscript link": "[x](vbscript:msgbox)",
  "a file link": "[x](file:///etc/passwd)",
  "an autolink": "<javascript:alert(1)>",
  "a reference link": "[x][y]\n\n[y]: javascript:alert(1)",
  "a raw script": "<script>alert(1)</script>",
  "a raw script in a paragraph": "hi <script>alert(1)</script> there",
  "an image with a handler": "<img src=x onerror=alert(1)>",
  "a drawing with a handler": "<svg onload=alert(1)><script>alert(1)</script></svg>",
  "a drawing inside a paragraph": "a <svg><animate onbegin=alert(1) attributeName=x></svg> b",
  "a frame": "<iframe src=https://evil.example></iframe>",
  "a form": "<form action=https://evil.example><input name=p></form>",
  "a style": "<style>*{background:url(https://evil.example)}</style>",
  "an inline style": '<b style="background:url(https://evil.example)">x</b>',
  "a math element": "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
  "an allowed tag with a handler": "<kbd onclick=alert(1)>x</kbd>",
  "a fence whose info is markup": '```"><img src=x onerror=alert(1)>\ncode\n```',
  "a fence whose code is markup": "```html\n<img src=x onerror=alert(1)>\n```",
  "a title with markup": '[x](https://ok.example "a\\"><img src=x onerror=alert(1)>")',
  "an image title with markup": '![a\\"><script>alert(1)</script>](https://ok.example/x.png "\\"><script>alert(1)</script>")',
  "a table cell with markup": "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
  "a heading with markup": "# <img src=x onerror=alert(1)>",
};

const ELEMENTS = /^(?:A|B|BLOCKQUOTE|BR|BUTTON|CODE|DEL|DIV|EM|H[1-6]|HR|I|KBD|LI|MARK|OL|P|PRE|S|SMALL|SPAN|STRONG|SUB|SUP|TABLE|TBODY|TD|TH|THEAD|TR|U|UL)$/;

for (const [name, text] of Object.entries(HOSTILE)) {
  test(`${name} does nothing`, () => {
    const page = shown(text);
    for (const element of page.querySelectorAll("*")) {
      assert.match(element.tagName, ELEMENTS);
      for (const { name: attribute, value } of element.attributes) {
        assert.doesNotMatch(attribute, /^(?:on|src|style|srcset|action|formaction|xlink|id|name)/i);
        if (attribute === "href") assert.match(value, /^(?:https?:|mailto:|tel:|\/(?!\/)|#)/i);
      }
    }
  });
}

test("raw HTML stays readable as text", () => {
  assert.match(shown("<script>alert(1)</script>").textContent ?? "", /<script>alert\(1\)<\/script>/);
  assert.match(shown("use a <div> here").textContent ?? "", /use a <div> here/);
});

test("a remote image becomes a link that names the host and loads nothing", () => {
  const page = shown("![chart](https://evil.example/p.png?q=secret)");
  assert.equal(page.querySelector("img"), null);
  assert.equal(page.querySelector("a")?.getAttribute("href"), "https://evil.example/p.png?q=secret");
  assert.match(page.textContent ?? "", /evil\.example/);
});

test("a link to elsewhere opens apart and tells nothing", () => {
  const link = shown("[x](https://ok.example/a)").querySelector("a");
  assert.equal(link?.getAttribute("target"), "_blank");
  assert.match(link?.getAttribute("rel") ?? "", /noopener/);
});

test("a protocol-relative link is no link of the app", () => {
  assert.equal(shown("[x](//evil.example)").querySelector("a")?.hasAttribute("href"), false);
});

test("code keeps its language and every character", () => {
  const code = shown("```python title=x\nif a < b & c: print(\"'\")\n```").querySelector("code");
  assert.equal(code?.getAttribute("data-lang"), "python");
  assert.equal(code?.textContent?.trimEnd(), "if a < b & c: print(\"'\")");
});

test("a table keeps its alignment, a list its start", () => {
  assert.equal(shown("| a | b |\n|---|--:|\n| 1 | 2 |").querySelectorAll("td")[1].getAttribute("align"), "right");
  assert.equal(shown("4. four\n5. five").querySelector("ol")?.getAttribute("start"), "4");
});

test("the sanitiser alone refuses what the renderer would never write", () => {
  const div = window.document.createElement("div");
  div.append(sanitise('<a href="javascript:alert(1)" onclick="x">a</a><img src=x onerror=y><button data-act="submit" formaction="//e" class="evil code">b</button><p id="x" style="x">c</p>'));
  assert.equal(div.innerHTML, '<a>a</a><button class="code" type="button">b</button><p>c</p>');
});
