/**
 * `<sk-table>`: rows with optional search, for lists of things.
 *
 * `columns`: `[{key, label, render?: (row) => unknown, numeric?, width?}]`; `rows`: any objects; `search`: the keys to look in.
 */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { t } from "../i18n/index.js";
import { SkElement } from "./base.js";

/** @typedef {{key: string, label: string, render?: (row: any) => unknown, numeric?: boolean}} Column */

export class SkTable extends SkElement {
  static properties = {
    columns: { attribute: false },
    rows: { attribute: false },
    search: { attribute: false },
    label: {},
    empty: {},
    rowKey: { attribute: "row-key" },
    _query: { state: true },
  };

  constructor() {
    super();
    /** @type {Column[]} */ this.columns = [];
    /** @type {any[]} */ this.rows = [];
    /** @type {string[]} */ this.search = [];
    this.label = "";
    this.empty = "";
    this.rowKey = "id";
    this._query = "";
  }

  render() {
    const words = this._query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = words.length
      ? this.rows.filter((row) => {
          const text = this.search.map((key) => String(row[key] ?? "")).join(" ").toLowerCase();
          return words.every((word) => text.includes(word));
        })
      : this.rows;
    return html`${this.search.length
        ? html`<input
            class="field"
            type="search"
            aria-label=${t("action.search")}
            placeholder=${t("action.search")}
            @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
          />`
        : nothing}
      <div class="scroll" tabindex="0" role="group" aria-label=${this.label || nothing}>
        <table>
          <thead>
            <tr>
              ${this.columns.map((c) => html`<th scope="col" class=${c.numeric ? "numeric" : ""}>${c.label}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${repeat(
              rows,
              (row) => row[this.rowKey],
              (row) => html`<tr>
                ${this.columns.map((c) => html`<td class=${c.numeric ? "numeric" : ""}>${c.render ? c.render(row) : (row[c.key] ?? "")}</td>`)}
              </tr>`,
            )}
          </tbody>
        </table>
        ${rows.length ? nothing : html`<p class="faint none">${this._query ? t("state.no_match") : this.empty}</p>`}
      </div>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      input {
        max-inline-size: 20rem;
      }
      .scroll {
        overflow-x: auto;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
      }
      table {
        inline-size: 100%;
        border-collapse: collapse;
        font-size: var(--size-s);
        font-variant-numeric: tabular-nums;
      }
      th,
      td {
        padding: var(--s2) var(--s4);
        text-align: start;
        vertical-align: middle;
        border-block-end: 1px solid var(--line);
      }
      th {
        font-weight: 600;
        color: var(--text-soft);
        white-space: nowrap;
      }
      tbody tr:last-child td {
        border-block-end: 0;
      }
      .numeric {
        text-align: end;
      }
      .none {
        padding: var(--s5);
        text-align: center;
      }
    `,
  ];
}

customElements.define("sk-table", SkTable);
