/** `<sk-command-line text>`: a command to run elsewhere, with a button that copies it. */
import { css, html } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";
import { toast } from "./toast.js";
import "./icon.js";

export class SkCommandLine extends SkElement {
  static properties = { text: {} };

  constructor() {
    super();
    this.text = "";
  }

  /** @private */
  async _copy() {
    try {
      await navigator.clipboard.writeText(this.text);
      toast(t("action.copied"), { ms: 1800 });
    } catch {
      toast(t("error.clipboard"), { tone: "fail" });
    }
  }

  render() {
    return html`<pre class="raw" tabindex="0" aria-label=${t("command.label")}>${this.text}</pre>
      <button type="button" class="btn small" @click=${this._copy}><sk-icon name="copy"></sk-icon>${t("command.copy")}</button>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-wrap: wrap;
        align-items: flex-start;
        gap: var(--s2);
      }
      pre.raw {
        flex: 1 1 16rem;
        min-inline-size: 0;
        padding-block: var(--s2);
      }
      button sk-icon {
        --icon-size: 0.9rem;
      }
    `,
  ];
}

customElements.define("sk-command-line", SkCommandLine);
