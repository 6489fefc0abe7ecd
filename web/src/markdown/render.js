/**
 * Markdown blocks to HTML text. What comes out is not safe yet: sanitise.js is always the last step.
 *
 * Raw HTML is shown as text, except for a few inline tags without attributes. Images are never loaded by themselves, since
 * an address can carry data out; they become a button that names the host.
 */
import { Parser, Renderer } from "marked";

/** @typedef {import("./blocks.js").Block} Block */
/** @typedef {{image: (host: string) => string, copy: string}} Labels */

const INLINE_HTML = /^<\/?(?:br|sub|sup|kbd|mark|u|s|b|i|em|strong|small)\s*\/?>$/i;

/** @param {string} text */
export function escapeHtml(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;").replace(/'/g, "&#39;");
}

/** The language of a fence, reduced to what can be a language. @param {string | undefined} info */
export function fenceLanguage(info) {
  return (/^[a-z0-9+#._-]{1,30}(?=\s|$|[{,:])/i.exec(info?.trim() ?? "")?.[0] ?? "").toLowerCase();
}

/** @param {Labels} labels */
function makeRenderer(labels) {
  const renderer = new Renderer();
  renderer.html = ({ text }) => (INLINE_HTML.test(text.trim()) ? text : escapeHtml(text));
  renderer.code = ({ text, lang }) => {
    const language = fenceLanguage(lang);
    return (
      `<div class="code"><div class="code-head"><span>${escapeHtml(language)}</span>` +
      `<button type="button" data-act="copy-code">${escapeHtml(labels.copy)}</button></div>` +
      `<pre tabindex="0"><code data-lang="${escapeHtml(language)}">${escapeHtml(text)}</code></pre></div>`
    );
  };
  renderer.image = ({ href, text }) => {
    let host = "";
    try {
      const url = new URL(href);
      if (url.protocol === "https:" || url.protocol === "http:") host = url.host;
    } catch {
      // relative or broken: there is nothing to load, the text is all
    }
    if (!host) return `<span class="image-text">${escapeHtml(text)}</span>`;
    return `<a class="image-link" href="${escapeHtml(href)}" title="${escapeHtml(href)}">${escapeHtml(text || labels.image(host))} <span>${escapeHtml(host)}</span></a>`;
  };
  renderer.table = function (token) {
    const inner = Renderer.prototype.table.call(this, token);
    return `<div class="table" tabindex="0">${inner}</div>`;
  };
  renderer.checkbox = ({ checked }) => `<span class="check">${checked ? "☑" : "☐"}</span> `;
  return renderer;
}

/** @type {Map<string, Renderer>} */
const renderers = new Map();

/**
 * @param {Block} block @param {Labels} labels
 * @returns {string} unsafe HTML
 */
export function renderBlock(block, labels) {
  const key = `${labels.copy}\n${labels.image("")}`;
  let renderer = renderers.get(key);
  if (!renderer) renderers.set(key, (renderer = makeRenderer(labels)));
  if (block.token.type === "html") return `<p>${escapeHtml(block.token.raw.trim())}</p>`;
  return Parser.parse([block.token], { renderer, gfm: true });
}
