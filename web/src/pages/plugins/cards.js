/** The cards of the catalog: one for an installed plugin, one for what the index offers. */
import { css, html, nothing } from "lit";
import { live } from "lit/directives/live.js";
import { i18n, t, tt } from "../../i18n/index.js";
import { capabilityChips, hasUpdate, iconOf, isBarred, publisher, reasonOf, seconds, stateChip } from "./parts.js";
import "../../ui/switch.js";

/**
 * @typedef {import("../../api/types.js").Plugin} Plugin
 * @typedef {import("../../api/types.js").Available} Available
 */

const MOST_CHIPS = 3;

/** The version line: installed, and where they differ running and latest. @param {Plugin} plugin */
function versions(plugin) {
  const running = plugin.running_version && plugin.running_version !== plugin.version ? plugin.running_version : "";
  return html`<span
    >${plugin.version}${running ? html` · ${t("plug.running_version", { version: running })}` : nothing}${hasUpdate(plugin)
      ? html` · ${t("plug.latest_version", { version: plugin.latest_version ?? "" })}`
      : nothing}</span
  >`;
}

/**
 * @param {Plugin} plugin
 * @param {{entry: Available | null, busy: boolean, toggle: (on: boolean) => void, upgrade: () => void}} options
 *   `entry`: what the index says of it
 */
export function installedCard(plugin, { entry, busy, toggle, upgrade }) {
  const title = tt(plugin.title) || plugin.id;
  const reason = reasonOf(plugin);
  const size = plugin.size || entry?.versions.find((v) => v.version === plugin.version)?.size || 0;
  const released = seconds(entry?.versions.find((v) => v.version === (entry.latest || plugin.version))?.released_at);
  return html`<div class="head">
      <span class="tile"><sk-icon name=${iconOf(plugin.id, plugin.contributes)}></sk-icon></span>
      <div class="words">
        <h2><a href="/plugins/${plugin.id}" dir="auto">${title}</a></h2>
        <p class="faint">${publisher({ author: plugin.author, bundled: plugin.bundled, verified: entry?.verified })}</p>
      </div>
      <sk-switch
        hide-label
        .label=${t("plug.switch", { plugin: title })}
        .checked=${live(plugin.enabled)}
        ?disabled=${busy || isBarred(plugin)}
        @change=${(/** @type {CustomEvent} */ e) => toggle(e.detail)}
      ></sk-switch>
    </div>
    <p class="soft" dir="auto">${tt(plugin.summary)}</p>
    ${reason ? html`<p class=${plugin.error || plugin.state !== "needs_config" ? "bad" : "wait"}>${reason}</p>` : nothing}
    ${plugin.restart_needed ? html`<p class="wait">${t("plug.restart")}</p>` : nothing}
    ${plugin.capabilities.length ? capabilityChips(plugin.capabilities, MOST_CHIPS) : nothing}
    <div class="foot">
      ${busy ? html`<span class="chip run"><sk-icon name="arrow-repeat"></sk-icon>${t("plug.working")}</span>` : stateChip(plugin)}
      <span class="faint facts">${versions(plugin)}${size ? html` · ${i18n.bytes(size)}` : nothing}${released ? html` · ${i18n.date(released)}` : nothing}</span>
      ${hasUpdate(plugin)
        ? html`<button class="btn small" aria-label=${t("plug.upgrade_of", { plugin: title })} @click=${upgrade}><sk-icon name="arrow-up-circle"></sk-icon>${t("plug.upgrade")}</button>`
        : nothing}
    </div>`;
}

/**
 * @param {Available} entry
 * @param {{advice: boolean, install: () => void}} options
 */
export function availableCard(entry, { advice, install }) {
  const title = tt(entry.title) || entry.name;
  const version = entry.versions.find((v) => v.version === entry.latest);
  const released = seconds(version?.released_at);
  return html`<div class="head">
      <span class="tile"><sk-icon name="box-seam"></sk-icon></span>
      <div class="words">
        <h2 dir="auto">${title}</h2>
        <p class="faint">${publisher(entry)}</p>
      </div>
    </div>
    <p class="soft" dir="auto">${tt(entry.summary)}</p>
    ${entry.blocked ? html`<p class="bad">${t("plug.blocked_because", { reason: entry.blocked })}</p>` : nothing}
    <div class="foot">
      ${entry.installed ? html`<span class="chip done"><sk-icon name="check-circle"></sk-icon>${t("plug.installed_version", { version: entry.installed })}</span>` : nothing}
      ${entry.blocked ? html`<span class="chip fail"><sk-icon name="slash-circle"></sk-icon>${t("plug.state.blocked")}</span>` : nothing}
      <span class="faint facts"
        >${entry.latest}${version?.size ? html` · ${i18n.bytes(version.size)}` : nothing}${released ? html` · ${i18n.date(released)}` : nothing}${entry.license
          ? html` · ${entry.license}`
          : nothing}</span
      >
      ${entry.blocked || entry.installed === entry.latest
        ? nothing
        : html`<button
            class="btn small ${entry.installed ? "" : "primary"}"
            aria-label=${t(entry.installed ? "plug.upgrade_of" : "plug.install_of", { plugin: title })}
            @click=${install}
          >
            <sk-icon name=${advice ? "terminal" : entry.installed ? "arrow-up-circle" : "download"}></sk-icon>${t(entry.installed ? "plug.upgrade" : "plug.install")}
          </button>`}
    </div>`;
}

export const cardStyles = css`
  .cards {
    list-style: none;
    margin: 0;
    padding: 0;
    display: grid;
    grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr));
    gap: var(--s3);
  }
  .cards > li {
    display: flex;
    flex-direction: column;
    gap: var(--s2);
    min-inline-size: 0;
    padding: var(--s4);
    border: 1px solid var(--line);
    border-radius: var(--radius-m);
    background: var(--surface);
    font-size: var(--size-s);
    line-height: 1.5;
    overflow-wrap: anywhere;
  }
  .head {
    display: flex;
    align-items: flex-start;
    gap: var(--s3);
  }
  .words {
    flex: 1;
    min-inline-size: 0;
  }
  .words p {
    font-size: var(--size-xs);
  }
  h2 {
    font-size: var(--size-m);
    font-weight: 600;
    line-height: var(--leading-tight);
  }
  h2 a {
    color: var(--text);
    text-decoration: none;
  }
  h2 a:hover {
    text-decoration: underline;
  }
  .foot {
    display: flex;
    flex-wrap: wrap;
    align-items: center;
    gap: var(--s2);
    margin-block-start: auto;
    padding-block-start: var(--s1);
    min-block-size: 1.875rem;
  }
  .facts {
    flex: 1 1 8rem;
    font-size: var(--size-xs);
    font-variant-numeric: tabular-nums;
  }
  .bad {
    color: var(--fail);
  }
  .wait {
    color: var(--wait);
  }
`;
