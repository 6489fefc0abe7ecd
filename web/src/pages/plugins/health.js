/** `<sk-plugin-health plugin>`: runs a plugin's own checks and shows what each said. Nothing is drawn when it has none. */
import { css, html, nothing } from "lit";
import { api } from "../../api/index.js";
import { i18n, t, tt } from "../../i18n/index.js";
import { Resource, Watch } from "../../core/watch.js";
import { SkElement } from "../../ui/base.js";
import { describeError } from "../../ui/states.js";
import "../../ui/button.js";
import "../../ui/icon.js";
import "../../ui/page.js";

/** @typedef {import("../../api/types.js").HealthResult} HealthResult */

export class SkPluginHealth extends SkElement {
  static properties = { plugin: {}, running: { type: Boolean } };

  constructor() {
    super();
    this.plugin = "";
    /** the plugin runs; checks of one that does not say nothing */ this.running = false;
    /** @private */ this._checks = new Resource(
      async () => /** @type {HealthResult[]} */ (await api.post(`/api/plugins/${encodeURIComponent(this.plugin)}/health`, {}, { timeout: 60_000 })),
    );
    new Watch(this, this._checks);
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("plugin")) this._checks.clear();
    this.hidden = !this.running || (!this._checks.error && !this._checks.data?.length);
    if ((changed.has("plugin") || changed.has("running")) && this.plugin && this.running) void this._checks.load();
  }

  render() {
    const { data, error, loading } = this._checks;
    if (!this.running || (!error && !data?.length)) return nothing;
    return html`<sk-card .heading=${t("health.title")}>
      <div role="status">
        ${error
          ? html`<p class="bad">${describeError(error)}</p>`
          : html`<ul>
              ${(data ?? []).map(
                (check) =>
                  html`<li>
                    <sk-icon class=${check.ok ? "good" : "bad"} name=${check.ok ? "check-circle" : "exclamation-circle"} .label=${t(check.ok ? "health.ok" : "health.bad")}></sk-icon>
                    <span class="what"><strong>${tt(check.title) || check.id}</strong>${check.text ? html` <span class="soft">${tt(check.text)}</span>` : nothing}</span>
                    <span class="faint ms">${i18n.duration(check.ms)}</span>
                  </li>`,
              )}
            </ul>`}
      </div>
      <sk-button slot="actions" icon="arrow-clockwise" ?busy=${loading} @click=${() => this._checks.load()}>${t("health.again")}</sk-button>
    </sk-card>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s2);
        font-size: var(--size-s);
      }
      li {
        display: flex;
        gap: var(--s2);
        overflow-wrap: anywhere;
      }
      .what {
        flex: 1;
        min-inline-size: 0;
      }
      strong {
        font-weight: 550;
      }
      .good {
        color: var(--done);
      }
      .bad {
        color: var(--fail);
      }
      .ms {
        font-size: var(--size-xs);
        font-variant-numeric: tabular-nums;
      }
    `,
  ];
}

customElements.define("sk-plugin-health", SkPluginHealth);
