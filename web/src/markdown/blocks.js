/**
 * Cuts growing Markdown into blocks, so that a block once finished is never parsed or drawn again.
 *
 * A block is finished when a later block has begun and its first line is complete: from then on, nothing that arrives
 * can change it. Only the open tail is lexed on each update.
 */
import { Lexer } from "marked";

/**
 * @typedef {import("marked").Token} Token
 * @typedef {{token: Token, links: import("marked").Links}} Block
 */

const OPTIONS = { gfm: true, breaks: false };

export class BlockSplitter {
  constructor() {
    /** @type {Block[]} */
    this.done = [];
    /** @type {Block[]} the tail: blocks that may still change */
    this.open = [];
    /** the text so far */
    this.source = "";
    /** @private where the tail starts in `source` */ this._at = 0;
    /** @private link definitions of finished blocks @type {import("marked").Links} */ this._links = {};
  }

  /**
   * @param {string} source  the whole text; when it does not continue what came before, all starts anew
   * @returns {boolean} false when everything started anew
   */
  update(source) {
    source = source.replace(/\r\n?/g, "\n");
    let continued = true;
    if (!source.startsWith(this.source)) {
      continued = false;
      this.done = [];
      this._at = 0;
      this._links = {};
    }
    this.source = source;
    const lexer = new Lexer(OPTIONS);
    Object.assign(lexer.tokens.links, this._links);
    const tail = source.slice(this._at);
    const tokens = lexer.lex(tail);
    const links = lexer.tokens.links;
    // How many tokens are finished: those before a later block whose first line is complete.
    let finished = 0;
    let following = tail.length;
    for (let i = tokens.length - 1; i > 0; i--) {
      following -= tokens[i].raw.length;
      if (tokens[i].type === "space") continue;
      if (tail.slice(following).trimStart().includes("\n")) {
        finished = i;
        break;
      }
    }
    if (finished > 0 && !exact(tokens, tail)) finished = 0;
    for (const token of tokens.slice(0, finished)) {
      this._at += token.raw.length;
      if (token.type === "def") this._links = { ...links };
      if (shown(token)) this.done.push({ token, links });
    }
    this.open = tokens
      .slice(finished)
      .filter(shown)
      .map((token) => ({ token, links }));
    return continued;
  }

  /** All blocks, in order. */
  get blocks() {
    return [...this.done, ...this.open];
  }
}

/** @param {Token} token */
function shown(token) {
  return token.type !== "space" && token.type !== "def";
}

/** The lexer normalises line ends and tabs; offsets are only good when its raw texts add up to the source. @param {Token[]} tokens @param {string} tail */
function exact(tokens, tail) {
  let length = 0;
  for (const token of tokens) length += token.raw.length;
  return length === tail.length;
}
