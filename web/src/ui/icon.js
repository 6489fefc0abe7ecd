/** `<sk-icon name="…">`: a Bootstrap icon by its name. Decorative unless it has a `label`. */
import { css, html } from "lit";
import core from "virtual:icons/core";
import shards from "virtual:icons/shards";
import { SkElement } from "./base.js";

const NS = "http://www.w3.org/2000/svg";

/** @type {Map<string, Promise<[string, Record<string, string>][] | null>>} */
const loading = new Map();

/** @param {string} name */
function load(name) {
  let found = loading.get(name);
  if (!found) {
    const shard = shards[name[0]];
    found = shard ? shard().then((m) => m.default[name] ?? null, () => (loading.delete(name), null)) : Promise.resolve(null);
    loading.set(name, found);
  }
  return found;
}

export class SkIcon extends SkElement {
  static properties = { name: {}, label: {} };

  constructor() {
    super();
    this.name = "";
    this.label = "";
    /** @private */ this._svg = document.createElementNS(NS, "svg");
    this._svg.setAttribute("viewBox", "0 0 16 16");
    this._svg.setAttribute("fill", "currentColor");
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("name")) void this._resolve();
    if (this.label) {
      this._svg.setAttribute("role", "img");
      this._svg.setAttribute("aria-label", this.label);
      this._svg.removeAttribute("aria-hidden");
    } else {
      this._svg.setAttribute("aria-hidden", "true");
      this._svg.removeAttribute("role");
      this._svg.removeAttribute("aria-label");
    }
  }

  /** @private */
  async _resolve() {
    const { name } = this;
    const known = core[name];
    if (known) return this._draw(known);
    const loaded = await load(name);
    if (name === this.name) this._draw(loaded ?? core.puzzle);
  }

  /** @private @param {[string, Record<string, string>][]} shapes */
  _draw(shapes) {
    this._svg.replaceChildren(
      ...shapes.map(([tag, attributes]) => {
        const node = document.createElementNS(NS, tag);
        for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
        return node;
      }),
    );
  }

  render() {
    return html`${this._svg}`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: inline-flex;
        flex: none;
        inline-size: var(--icon-size, 1.25rem);
        block-size: var(--icon-size, 1.25rem);
        align-items: center;
        justify-content: center;
        vertical-align: -0.25em;
      }
      svg {
        inline-size: 80%;
        block-size: 80%;
      }
    `,
  ];
}

customElements.define("sk-icon", SkIcon);
