/** Code colours, loaded when the first fence with a known language is finished. Nodes are built, never HTML. */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const languages = {
  bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, markdown, php, python, ruby, rust, sql,
  swift, typescript, xml, yaml,
}; // prettier-ignore
for (const [name, grammar] of Object.entries(languages)) hljs.registerLanguage(name, grammar);
hljs.registerAliases(["console", "shell", "zsh", "sh"], { languageName: "bash" });

const MAX_CHARS = 60_000;

/**
 * @param {string} code @param {string} language
 * @returns {DocumentFragment | null} null when the language is unknown or the code too long
 */
export function highlight(code, language) {
  if (!language || code.length > MAX_CHARS || !hljs.getLanguage(language)) return null;
  const result = hljs.highlight(code, { language, ignoreIllegals: true });
  const fragment = document.createDocumentFragment();
  build(/** @type {any} */ (result)._emitter.rootNode, fragment);
  return fragment;
}

/** @param {{scope?: string, children: any[]}} node @param {Node} into */
function build(node, into) {
  for (const child of node.children) {
    if (typeof child === "string") {
      into.appendChild(document.createTextNode(child));
    } else if (child.scope && !child.scope.startsWith("language:")) {
      const span = document.createElement("span");
      span.className = child.scope
        .split(".")
        .map((/** @type {string} */ part, /** @type {number} */ i) => (i ? part : `hl-${part}`))
        .join(" ");
      build(child, span);
      into.appendChild(span);
    } else {
      build(child, into);
    }
  }
}
