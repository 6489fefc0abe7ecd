/** `<sk-plugin-access plugin .access>`: who may use a plugin: everyone by default or not, and exceptions per person. */
import { css, html } from "lit";
import { live } from "lit/directives/live.js";
import { repeat } from "lit/directives/repeat.js";
import { api } from "../../api/index.js";
import { i18n, t } from "../../i18n/index.js";
import { SkElement } from "../../ui/base.js";
import { toastError } from "../../ui/toast.js";
import { roleName } from "../users/roles.js";
import "../../ui/icon.js";
import "../../ui/switch.js";

/** @typedef {import("../../api/types.js").Access} Access */
/** @typedef {import("../../api/types.js").AccessUser} AccessUser */

/** With more people than this there is a box to find one. */
const SEARCH_FROM = 8;
const CHOICES = /** @type {const} */ ([null, true, false]);

export class SkPluginAccess extends SkElement {
  static properties = { plugin: {}, access: { attribute: false }, _busy: { state: true }, _query: { state: true } };

  constructor() {
    super();
    this.plugin = "";
    /** @type {Access} */ this.access = { default_on: true, users: [] };
    this._busy = false;
    this._query = "";
  }

  /** @private @param {{default_on?: boolean, users?: Record<string, boolean | null>}} change */
  async _put(change) {
    this._busy = true;
    try {
      this.access = await api.put(`/api/plugins/${encodeURIComponent(this.plugin)}/access`, change);
      this.emit("sk-access", this.access);
    } catch (error) {
      toastError(error);
      this.requestUpdate();
    }
    this._busy = false;
  }

  /** @private @param {boolean | null} choice */
  _words(choice) {
    if (choice === null) return t(this.access.default_on ? "access.default_on" : "access.default_off");
    return t(choice ? "access.allowed" : "access.denied");
  }

  render() {
    const words = this._query.toLowerCase().split(/\s+/).filter(Boolean);
    const users = this.access.users
      .filter((user) => words.every((word) => `${user.display_name} ${user.role}`.toLowerCase().includes(word)))
      .sort((a, b) => a.display_name.localeCompare(b.display_name, i18n.locale));
    return html`<sk-switch
        .label=${t("access.default")}
        .help=${t("access.default_help")}
        .checked=${live(this.access.default_on)}
        ?disabled=${this._busy}
        @change=${(/** @type {CustomEvent} */ e) => (e.stopPropagation(), this._put({ default_on: e.detail }))}
      ></sk-switch>
      ${this.access.users.length > SEARCH_FROM
        ? html`<input
            class="field"
            type="search"
            aria-label=${t("access.search")}
            placeholder=${t("access.search")}
            @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
          />`
        : ""}
      <ul>
        ${repeat(
          users,
          (user) => user.id,
          (user) =>
            html`<li>
              <span class="who">
                <span><span dir="auto">${user.display_name}</span> <span class="faint">${roleName(user.role)}</span></span>
                <span class=${user.allowed ? "may" : "not"}><sk-icon name=${user.allowed ? "check-circle" : "slash-circle"}></sk-icon>${t(user.allowed ? "access.may" : "access.may_not")}</span>
              </span>
              <select
                class="field"
                aria-label=${t("access.of", { name: user.display_name })}
                ?disabled=${this._busy}
                @change=${(/** @type {Event} */ e) => this._put({ users: { [String(user.id)]: CHOICES[/** @type {HTMLSelectElement} */ (e.target).selectedIndex] } })}
              >
                ${CHOICES.map((choice) => html`<option .selected=${live(user.explicit === choice)}>${this._words(choice)}</option>`)}
              </select>
            </li>`,
        )}
      </ul>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
        max-block-size: 24rem;
        overflow-y: auto;
      }
      li {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s1) var(--s4);
        padding-block: var(--s2);
        border-block-start: 1px solid var(--line);
        font-size: var(--size-s);
      }
      .who {
        flex: 1 1 9rem;
        display: flex;
        flex-direction: column;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      .may,
      .not {
        display: inline-flex;
        align-items: center;
        gap: var(--s1);
        font-size: var(--size-xs);
      }
      .may sk-icon {
        color: var(--done);
      }
      .not {
        color: var(--text-faint);
      }
      li sk-icon {
        --icon-size: 1rem;
      }
      select.field {
        inline-size: auto;
        flex: 0 1 14rem;
      }
    `,
  ];
}

customElements.define("sk-plugin-access", SkPluginAccess);
