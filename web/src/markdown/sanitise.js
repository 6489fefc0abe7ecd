/**
 * The last step before HTML reaches the page. An allow list of tags, attributes and link schemes; nothing that loads,
 * runs, submits or styles. `sk-markdown` is the only component that uses the result.
 */
import createDOMPurify from "dompurify";

const TAGS = [
  "a", "b", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "kbd", "li",
  "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
]; // prettier-ignore
const ATTRIBUTES = ["align", "class", "data-act", "data-lang", "href", "rel", "start", "tabindex", "target", "title", "type"];
/** Attributes that hold no address: the rule for links does not apply to them. */
const PLAIN = ATTRIBUTES.filter((name) => name !== "href");
const CLASSES = /^(?:code|code-head|table|check|image-link|image-text)$/;
const LINKS = /^(?:https?:|mailto:|tel:|\/(?!\/)|#)/i;

/**
 * @param {Window & typeof globalThis} window  the page's, or a test's
 * @returns {(html: string) => DocumentFragment}
 */
export function createSanitiser(window) {
  const purify = createDOMPurify(window);
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (!(node instanceof window.Element)) return;
    const kept = [...node.classList].filter((name) => CLASSES.test(name));
    if (kept.length) node.setAttribute("class", kept.join(" "));
    else node.removeAttribute("class");
    if (node.getAttribute("data-act") !== "copy-code") node.removeAttribute("data-act");
    if (node.tagName === "BUTTON") node.setAttribute("type", "button");
    if (node.tagName === "A") {
      const href = node.getAttribute("href") ?? "";
      if (!LINKS.test(href.trim())) {
        node.removeAttribute("href");
      } else if (!/^[/#]/.test(href.trim())) {
        node.setAttribute("target", "_blank");
        node.setAttribute("rel", "noopener noreferrer nofollow");
      } else {
        node.removeAttribute("target");
      }
    }
  });
  return (html) =>
    purify.sanitize(html, {
      ALLOWED_TAGS: TAGS,
      ALLOWED_ATTR: ATTRIBUTES,
      ALLOWED_URI_REGEXP: LINKS,
      ADD_URI_SAFE_ATTR: PLAIN,
      ALLOW_DATA_ATTR: false,
      ALLOW_ARIA_ATTR: false,
      RETURN_DOM_FRAGMENT: true,
    });
}
