/** `<sk-diff>`: the changes of one file, with line numbers and the words that differ; long ones folded in the middle. */
import { css, html, nothing } from "lit";
import { t } from "../i18n/index.js";
import { SkElement } from "../ui/base.js";
import { layOut, parseDiff } from "./diff.js";

/** @typedef {import("./diff.js").Line} Line */

export class SkDiff extends SkElement {
  static properties = {
    diff: {},
    path: {},
    _whole: { state: true },
  };

  constructor() {
    super();
    this.diff = "";
    this.path = "";
    this._whole = false;
  }

  /** @private @param {Line} line */
  _line(line) {
    const sign = line.kind === "add" ? "+" : line.kind === "del" ? "−" : "";
    const word = line.kind === "add" ? t("diff.added") : line.kind === "del" ? t("diff.removed") : "";
    return html`<tr class=${line.kind}>
      <td class="no">${line.old ?? nothing}</td>
      <td class="no">${line.new ?? nothing}</td>
      <td class="sign">${word ? html`<span class="sr">${word}</span><span aria-hidden="true">${sign}</span>` : nothing}</td>
      <td class="text">${line.pieces.map((p) => (p.changed ? html`<mark>${p.text}</mark>` : p.text))}</td>
    </tr>`;
  }

  render() {
    const hunks = parseDiff(this.diff);
    if (!hunks.length) return html`<p class="faint none">${t("diff.empty")}</p>`;
    const rows = layOut(hunks, this._whole ? Infinity : undefined);
    // A new file has no old side: one column of numbers says as much.
    const fresh = hunks.every((h) => h.lines.every((l) => l.old === null));
    return html`<div class="scroll" tabindex="0" role="group" aria-label=${t("diff.of", { path: this.path })}>
      <table class=${fresh ? "fresh" : ""}>
        <tbody>
          ${rows.map((row) => {
            if (row.kind === "line") return this._line(row.line);
            if (row.kind === "gap") return html`<tr class="gap"><td colspan="4"><span aria-hidden="true">⋯</span> ${row.header}</td></tr>`;
            return html`<tr class="fold">
              <td colspan="4"><button class="btn plain small" @click=${() => (this._whole = true)}>${t("diff.more", { count: row.lines.length })}</button></td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      .scroll {
        overflow: auto;
        max-block-size: min(38rem, 70dvh);
        border: 1px solid var(--line);
        border-radius: var(--radius-s);
        background: var(--surface);
      }
      table {
        border-collapse: collapse;
        min-inline-size: 100%;
        font-family: var(--mono);
        font-size: 0.8125rem;
        line-height: 1.55;
        direction: ltr;
      }
      td {
        padding: 0 var(--s2);
        vertical-align: top;
      }
      .no {
        inline-size: 1%;
        min-inline-size: 2.25rem;
        text-align: right;
        color: var(--text-faint);
        font-size: var(--size-xs);
        font-variant-numeric: tabular-nums;
        user-select: none;
      }
      .fresh .no:first-child {
        display: none;
      }
      .sign {
        inline-size: 1%;
        user-select: none;
      }
      .text {
        white-space: pre-wrap;
        overflow-wrap: anywhere;
        tab-size: 4;
      }
      .add {
        background: var(--add);
      }
      .del {
        background: var(--del);
      }
      .add .no,
      .del .no {
        color: var(--text-soft);
      }
      mark {
        color: inherit;
        border-radius: 3px;
      }
      .add mark {
        background: var(--add-word);
      }
      .del mark {
        background: var(--del-word);
      }
      .note .text {
        color: var(--text-faint);
        font-style: italic;
      }
      .gap td,
      .fold td {
        background: var(--sunken);
        color: var(--text-soft);
        font-size: var(--size-xs);
      }
      .fold td {
        text-align: center;
        font-family: var(--font);
      }
      tr:first-child td {
        padding-block-start: var(--s1);
      }
      tr:last-child td {
        padding-block-end: var(--s1);
      }
      .none {
        padding: var(--s2) 0;
      }
    `,
  ];
}

customElements.define("sk-diff", SkDiff);
