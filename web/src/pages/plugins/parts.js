/** How a plugin is shown: its state, publisher, icon, capabilities and what it brings. Shared by catalog, detail and dialogs. */
import { css, html, nothing } from "lit";
import { i18n, t, tt } from "../../i18n/index.js";
import { api } from "../../api/index.js";
import { app } from "../../core/app-state.js";
import "../../ui/icon.js";

/**
 * @typedef {import("../../api/types.js").Plugin} Plugin
 * @typedef {import("../../api/types.js").Available} Available
 * @typedef {import("../../api/types.js").Contributes} Contributes
 * @typedef {import("../../api/types.js").PluginData} PluginData
 */

/** @type {Record<import("../../api/types.js").PluginState, [string, string]>} */
const STATE_TONES = {
  running: ["done", "check-circle"],
  starting: ["run", "arrow-repeat"],
  discovered: ["", "circle"],
  disabled: ["", "circle"],
  stopped: ["", "stop-circle"],
  needs_config: ["wait", "sliders"],
  failed: ["fail", "exclamation-circle"],
  incompatible: ["fail", "x-octagon"],
  blocked: ["fail", "slash-circle"],
};

/** The state as icon and word. @param {Plugin} plugin */
export function stateChip(plugin) {
  const [tone, icon] = STATE_TONES[plugin.state] ?? ["", "question-circle"];
  return html`<span class="chip ${tone}"><sk-icon name=${icon}></sk-icon>${t(`plug.state.${plugin.state}`)}</span>`;
}

/** @param {string} phase */
export function phaseName(phase) {
  const key = `plug.phase.${phase}`;
  const known = t(key);
  return known === key ? phase : known;
}

/** Why it does not run, in one sentence; "" when it does. @param {Plugin} plugin */
export function reasonOf(plugin) {
  if (plugin.error) return `${t("plug.failed_in", { phase: phaseName(plugin.error.phase) })} ${tt(plugin.error.message)}`;
  return tt(plugin.problems[0]);
}

/** Whether it needs a person. @param {Plugin} plugin */
export function inTrouble(plugin) {
  return ["failed", "incompatible", "blocked", "needs_config"].includes(plugin.state) || plugin.problems.length > 0 || Boolean(plugin.error);
}

/** It cannot be enabled as it is. @param {Plugin} plugin */
export function isBarred(plugin) {
  return !plugin.enabled && (plugin.state === "incompatible" || plugin.state === "blocked");
}

/** A newer version can be installed. @param {Plugin} plugin */
export function hasUpdate(plugin) {
  return Boolean(plugin.latest_version) && plugin.latest_version !== plugin.version;
}

/**
 * @param {string} id @param {boolean} on
 * @returns {Promise<Plugin>}
 */
export function switchPlugin(id, on) {
  return api.post(`/api/plugins/${encodeURIComponent(id)}/${on ? "enable" : "disable"}`, {}, { timeout: 120_000 });
}

/** The icon of its page, else one for the kind of thing it brings. @param {string} id @param {Contributes} [contributes] */
export function iconOf(id, contributes = {}) {
  const page = app.pages.data?.find((p) => p.plugin === id && p.icon);
  if (page) return page.icon;
  if (contributes.providers?.length) return "cpu";
  if (contributes.hooks?.some((hook) => hook === "skald_gate" || hook === "skald_before_tool")) return "shield-check";
  if (contributes.pages?.length) return "window";
  if (contributes.agents?.length) return "robot";
  if (contributes.tools?.length) return "tools";
  if (contributes.commands?.length) return "slash-square";
  return "puzzle";
}

/** Who made it, and whether that is known to be true. @param {{author: string, bundled?: boolean, verified?: boolean}} thing */
export function publisher({ author, bundled = false, verified = false }) {
  return html`<span class="by"
    >${author || t("plug.no_author")}${bundled
      ? html`<span class="mark" title=${t("plug.bundled_help")}><sk-icon name="patch-check-fill"></sk-icon>${t("plug.bundled")}</span>`
      : verified
        ? html`<span class="mark" title=${t("plug.verified_help")}><sk-icon name="patch-check-fill"></sk-icon>${t("plug.verified")}</span>`
        : nothing}</span
  >`;
}

/** What a plan, which names it by its id alone, may be about. @param {string} id */
function capabilityTitle(id) {
  const key = `plug.may_${id}`;
  const known = t(key);
  return known === key ? id : known;
}

/** @param {{id: string, title: string}[] | string[]} capabilities @param {number} [most] */
export function capabilityChips(capabilities, most = Infinity) {
  const shown = capabilities.slice(0, most);
  const more = capabilities.length - shown.length;
  return html`<ul class="chips" aria-label=${t("plug.may")}>
    ${shown.map((c) => html`<li class="chip"><sk-icon name="key"></sk-icon>${typeof c === "string" ? capabilityTitle(c) : tt(c.title) || c.id}</li>`)}
    ${more > 0 ? html`<li class="chip">${t("plug.more", { count: more })}</li>` : nothing}
  </ul>`;
}

/** When an index entry was released, in seconds, whatever form the index has. @param {number | string | null | undefined} at */
export function seconds(at) {
  if (typeof at === "number") return at;
  const parsed = at ? Date.parse(at) : NaN;
  return Number.isFinite(parsed) ? parsed / 1000 : null;
}

/** The kinds of things a plugin brings, in the order they are told. */
const KINDS = /** @type {const} */ (["tools", "commands", "pages", "agents", "providers", "services", "mounts", "cli", "hooks"]);
const CODE = new Set(["tools", "hooks", "commands", "cli"]);

/**
 * What it brings, by kind; empty kinds are left out.
 * @param {Contributes} contributes
 * @returns {{kind: string, label: string, items: string[], code: boolean}[]}
 */
export function broughtBy(contributes) {
  const groups = KINDS.map((kind) => ({
    kind,
    label: t(`plug.kind.${kind}`),
    items: (contributes[kind] ?? []).map((name) => (kind === "commands" ? `/${name}` : name)),
    code: CODE.has(kind),
  })).filter(({ items }) => items.length);
  const routes = Number(contributes.routes ?? 0);
  return routes ? [...groups, { kind: "routes", label: t("plug.kind.routes"), items: [i18n.number(routes)], code: false }] : groups;
}

/** @param {PluginData} data */
export function keepsSomething(data) {
  return data.tables.length > 0 || data.values > 0 || data.secrets > 0 || data.files > 0;
}

/** What is kept of a plugin: tables with rows, settings, secrets, files. @param {PluginData} data */
export function dataList(data) {
  return html`<ul class="data">
    ${data.tables.map(
      (table) =>
        html`<li>
          <sk-icon name="table"></sk-icon
          ><span
            ><code>${table.name}</code>, ${table.bucket === "owner" ? t("plug.data_per_user") : t("plug.data_shared")}${table.rows === null
              ? nothing
              : html`, ${t("plug.data_rows", { count: table.rows })}`}</span
          >
        </li>`,
    )}
    ${data.values ? html`<li><sk-icon name="sliders"></sk-icon>${t("plug.data_values", { count: data.values })}</li>` : nothing}
    ${data.secrets ? html`<li><sk-icon name="key"></sk-icon>${t("plug.data_secrets", { count: data.secrets })}</li>` : nothing}
    ${data.files ? html`<li><sk-icon name="folder"></sk-icon>${t("plug.data_files", { size: i18n.bytes(data.files) })}</li>` : nothing}
  </ul>`;
}

/** The look of the above, for `static styles`. */
export const partStyles = css`
  .by {
    display: inline-flex;
    flex-wrap: wrap;
    align-items: center;
    gap: 0 var(--s2);
  }
  .mark {
    display: inline-flex;
    align-items: center;
    gap: 0.2rem;
    color: var(--done);
    white-space: nowrap;
  }
  .mark sk-icon,
  .chip sk-icon {
    --icon-size: 0.9rem;
  }
  .chips {
    list-style: none;
    margin: 0;
    padding: 0;
    display: flex;
    flex-wrap: wrap;
    gap: var(--s1);
  }
  .chips .chip {
    white-space: normal;
    overflow-wrap: anywhere;
  }
  .data {
    list-style: none;
    margin: 0;
    padding: 0;
    display: flex;
    flex-direction: column;
    gap: var(--s1);
    font-size: var(--size-s);
  }
  .data li {
    display: flex;
    gap: var(--s2);
    overflow-wrap: anywhere;
  }
  .data sk-icon {
    --icon-size: 1rem;
    margin-block-start: 0.2rem;
    color: var(--text-faint);
  }
  code {
    font-family: var(--mono);
    font-size: 0.8125rem;
    overflow-wrap: anywhere;
  }
  .tile {
    display: inline-grid;
    place-items: center;
    flex: none;
    inline-size: 2.5rem;
    block-size: 2.5rem;
    border-radius: var(--radius-s);
    background: var(--tint);
    color: var(--text-soft);
  }
  .tile sk-icon {
    --icon-size: 1.25rem;
  }
`;
