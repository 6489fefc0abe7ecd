/** `<sk-plan .plan>`: what a change would do, before anyone agrees to it: packages, rights, contributions, data, warnings. */
import { css, html, nothing } from "lit";
import { t } from "../../i18n/index.js";
import { SkElement } from "../../ui/base.js";
import { broughtBy, capabilityChips, dataList, keepsSomething, partStyles } from "./parts.js";
import "../../ui/states.js";

/** @typedef {import("../../api/types.js").Plan} Plan */
/** @typedef {import("../../api/types.js").JobAct} JobAct */

export class SkPlan extends SkElement {
  static properties = { plan: { attribute: false }, act: {} };

  constructor() {
    super();
    /** @type {Plan} */ this.plan = /** @type {any} */ (null);
    /** @type {JobAct} */ this.act = "install";
  }

  /** @private */
  _packages() {
    const { changes } = this.plan;
    if (!changes.length) return html`<p class="faint">${t("plan.no_packages")}</p>`;
    return html`<table>
      <thead>
        <tr><th scope="col">${t("plan.package")}</th><th scope="col">${t("plan.now")}</th><th scope="col">${t("plan.then")}</th></tr>
      </thead>
      <tbody>
        ${changes.map(
          (change) =>
            html`<tr>
              <td><code>${change.name}</code></td>
              <td>${change.from ?? html`<span class="faint">—<span class="sr">${t("plan.absent")}</span></span>`}</td>
              <td>
                ${change.to === null
                  ? html`<span class="chip fail"><sk-icon name="dash-lg"></sk-icon>${t("plan.removed")}</span>`
                  : html`${change.to} ${change.from === null ? html`<span class="chip run"><sk-icon name="plus-lg"></sk-icon>${t("plan.new")}</span>` : nothing}`}
              </td>
            </tr>`,
        )}
      </tbody>
    </table>`;
  }

  /** @private @param {"added" | "removed"} way */
  _contributes(way) {
    const groups = broughtBy(this.plan.contributes?.[way] ?? {});
    if (!groups.length) return nothing;
    return html`<h3>${t(way === "added" ? "plan.adds" : "plan.takes")}</h3>
      <ul class="lines">
        ${groups.map(({ label, items, code }) => html`<li><span class="faint">${label}</span> ${items.map((item, i) => html`${i ? ", " : ""}${code ? html`<code>${item}</code>` : item}`)}</li>`)}
      </ul>`;
  }

  render() {
    const { plan } = this;
    if (!plan) return nothing;
    const added = plan.capabilities?.added ?? [];
    const removed = plan.capabilities?.removed ?? [];
    const data = plan.data && keepsSomething(plan.data) ? plan.data : null;
    return html`${(plan.warnings ?? []).map((warning) => html`<sk-notice tone="wait">${warning}</sk-notice>`)}
      ${plan.restart_needed ? html`<sk-notice tone="wait" icon="arrow-repeat">${t("plan.restart")}</sk-notice>` : nothing}
      ${data && this.act === "purge" ? html`<div class="gone"><h3>${t("plan.data_goes")}</h3>${dataList(data)}</div>` : nothing}
      ${data && this.act === "uninstall" ? html`<sk-notice icon="archive">${t("plan.data_stays")}</sk-notice>` : nothing}
      ${this.act === "purge" && !data ? html`<p class="faint">${t("plan.no_data")}</p>` : nothing}
      <h3>${t("plan.packages")}</h3>
      ${this._packages()}
      ${plan.changes.some((c) => c.to !== null)
        ? html`<p class="faint hashes"><sk-icon name=${plan.hashes ? "patch-check" : "exclamation-triangle"}></sk-icon>${plan.hashes ? t("plan.hashes") : t("plan.no_hashes")}</p>`
        : nothing}
      ${added.length ? html`<h3>${t("plan.rights_added")}</h3>${capabilityChips(added)}` : nothing}
      ${removed.length ? html`<h3>${t("plan.rights_removed")}</h3>${capabilityChips(removed)}` : nothing}
      ${this._contributes("added")} ${this._contributes("removed")}`;
  }

  static styles = [
    ...SkElement.styles,
    partStyles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
        font-size: var(--size-s);
      }
      h3 {
        font-size: var(--size-s);
        font-weight: 650;
        margin-block-start: var(--s2);
      }
      table {
        inline-size: 100%;
        border-collapse: collapse;
        font-variant-numeric: tabular-nums;
      }
      th,
      td {
        padding: var(--s1) var(--s2) var(--s1) 0;
        text-align: start;
        border-block-end: 1px solid var(--line);
        overflow-wrap: anywhere;
      }
      th {
        font-weight: 550;
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      .lines {
        list-style: none;
        margin: 0;
        padding: 0;
        overflow-wrap: anywhere;
      }
      .hashes {
        display: flex;
        gap: var(--s2);
        font-size: var(--size-xs);
      }
      .hashes sk-icon {
        --icon-size: 1rem;
      }
      .gone {
        padding: var(--s3) var(--s4);
        border-radius: var(--radius-m);
        background: var(--fail-soft);
      }
      .gone h3 {
        margin-block: 0 var(--s2);
      }
    `,
  ];
}

customElements.define("sk-plan", SkPlan);
