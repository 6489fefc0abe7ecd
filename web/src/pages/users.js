/** `<sk-users-page>`: the accounts of this instance, for those who manage them. */
import { css, html, nothing } from "lit";
import { live } from "lit/directives/live.js";
import { repeat } from "lit/directives/repeat.js";
import { api, onReconnect } from "../api/index.js";
import { i18n, t } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { confirmDialog } from "../ui/dialog.js";
import { describeError } from "../ui/states.js";
import { toast, toastError } from "../ui/toast.js";
import { ROLES, roleName } from "./users/roles.js";
import "../ui/menu.js";
import "../ui/page.js";
import "../ui/states.js";
import "./users/dialogs.js";

/** @typedef {import("../api/types.js").User} User */

const SEARCH_FROM = 8;

export class SkUsersPage extends SkElement {
  static properties = { _dialog: { state: true }, _user: { state: true }, _query: { state: true }, _busy: { state: true } };

  constructor() {
    super();
    /** @type {"" | "add" | "password" | "delete"} */ this._dialog = "";
    /** @type {User | null} */ this._user = null;
    this._query = "";
    /** id of the account that is being changed */ this._busy = "";
    /** @private */ this._users = new Resource(async () => /** @type {User[]} */ (await api.get("/api/users")));
    new Watch(this, this._users);
    new Watch(this, app);
    /** @private */ this._off = () => {};
  }

  connectedCallback() {
    super.connectedCallback();
    if (app.can("users.manage")) void this._users.load();
    this._off = onReconnect(() => app.can("users.manage") && void this._users.load());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._off();
  }

  /** @private @param {User} user */
  _isMe(user) {
    return String(user.id) === String(app.me?.id);
  }

  /** @private @param {User} user @param {Partial<User>} change */
  async _patch(user, change) {
    this._busy = String(user.id);
    try {
      const fresh = await api.patch(`/api/users/${user.id}`, change, { timeout: 120_000 });
      this._users.set((this._users.data ?? []).map((u) => (u.id === fresh.id ? fresh : u)));
    } catch (error) {
      toastError(error);
      this.requestUpdate();
      void this._users.load();
    }
    this._busy = "";
  }

  /** @private @param {User} user */
  async _deactivate(user) {
    const name = user.display_name || user.username;
    if (await confirmDialog({ heading: t("users.off_of", { name }), text: t("users.off_text"), confirm: t("users.off"), danger: true })) await this._patch(user, { active: false });
  }

  /** @private @param {"add" | "password" | "delete"} dialog @param {User | null} user */
  _ask(dialog, user) {
    this._user = user;
    this._dialog = dialog;
  }

  /** @private */
  _done() {
    const words = { add: "users.added", password: "users.password_set", delete: "users.deleted" };
    const dialog = this._dialog;
    this._dialog = "";
    if (dialog) toast(t(words[dialog]), { tone: "done", ms: 3000 });
    void this._users.load();
  }

  /** @private @param {User} user @returns {import("../ui/menu.js").MenuItem[]} */
  _items(user) {
    const me = this._isMe(user);
    return [
      { label: t("users.reset"), icon: "key", disabled: user.encrypted, help: user.encrypted ? t("users.reset_encrypted") : undefined, run: () => this._ask("password", user) },
      user.active
        ? { label: t("users.off"), icon: "slash-circle", disabled: me, help: me ? t("users.not_yourself") : undefined, run: () => this._deactivate(user) }
        : { label: t("users.on"), icon: "check-circle", run: () => this._patch(user, { active: true }) },
      { label: t("users.delete"), icon: "trash", danger: true, divider: true, disabled: me, help: me ? t("users.not_yourself") : undefined, run: () => this._ask("delete", user) },
    ];
  }

  /** @private @param {User} user @param {string[]} roles */
  _row(user, roles) {
    const me = this._isMe(user);
    const name = user.display_name || user.username;
    return html`<li class=${user.active ? "" : "off"}>
      <span class="avatar" aria-hidden="true">${name.trim().slice(0, 1).toUpperCase()}</span>
      <div class="who">
        <p class="name"><strong dir="auto">${name}</strong> ${me ? html`<span class="chip">${t("users.you")}</span>` : nothing} ${user.active ? nothing : html`<span class="chip wait"><sk-icon name="slash-circle"></sk-icon>${t("users.inactive")}</span>`}</p>
        <p class="faint">
          <span>${user.username}</span>
          <span><sk-icon name=${user.encrypted ? "lock-fill" : "lock"}></sk-icon>${t(user.encrypted ? "users.is_encrypted" : "users.is_plain")}</span>
          ${user.created_at ? html`<span>${t("users.since", { when: i18n.date(user.created_at) })}</span>` : nothing}
        </p>
      </div>
      <select
        class="field"
        aria-label=${t("users.role_of", { name })}
        ?disabled=${this._busy === String(user.id)}
        @change=${(/** @type {Event} */ e) => this._patch(user, { role: /** @type {HTMLSelectElement} */ (e.target).value })}
      >
        ${roles.map((role) => html`<option value=${role} .selected=${live(role === user.role)}>${roleName(role)}</option>`)}
      </select>
      <sk-menu align="end" .label=${t("users.menu_of", { name })} .items=${this._items(user)}></sk-menu>
    </li>`;
  }

  /** @private */
  _content() {
    const { data, error } = this._users;
    if (error && !data) return html`<sk-error .text=${describeError(error)} .retry=${() => this._users.load()}></sk-error>`;
    if (!data) return html`<sk-skeleton shape="rows" lines="4"></sk-skeleton>`;
    const roles = [...new Set([...ROLES, ...data.map((user) => user.role)])];
    const words = this._query.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = data.filter((user) => words.every((word) => `${user.username} ${user.display_name} ${roleName(user.role)}`.toLowerCase().includes(word)));
    return html`${data.length > SEARCH_FROM
        ? html`<input
            class="field search"
            type="search"
            aria-label=${t("users.search")}
            placeholder=${t("users.search")}
            .value=${this._query}
            @input=${(/** @type {Event} */ e) => (this._query = /** @type {HTMLInputElement} */ (e.target).value)}
          />`
        : nothing}
      <ul>
        ${repeat(
          shown,
          (user) => user.id,
          (user) => this._row(user, roles),
        )}
      </ul>
      ${shown.length ? nothing : html`<sk-empty icon="search" .text=${t("state.no_match")}></sk-empty>`}
      ${data.length === 1 ? html`<sk-empty icon="people" .text=${t("users.only_you")}><button class="btn" @click=${() => this._ask("add", null)}>${t("users.add")}</button></sk-empty>` : nothing}`;
  }

  /** @private */
  _openDialog() {
    const close = () => (this._dialog = "");
    const roles = [...new Set([...ROLES, ...(this._users.data ?? []).map((user) => user.role)])];
    if (this._dialog === "add") return html`<sk-user-add .roles=${roles} @sk-done=${this._done} @sk-close=${close}></sk-user-add>`;
    if (this._dialog === "password") return html`<sk-user-password .user=${this._user} @sk-done=${this._done} @sk-close=${close}></sk-user-password>`;
    if (this._dialog === "delete") return html`<sk-user-delete .user=${this._user} @sk-done=${this._done} @sk-close=${close}></sk-user-delete>`;
    return nothing;
  }

  render() {
    if (!app.can("users.manage")) {
      return html`<sk-page .title=${t("nav.users")}><sk-empty icon="shield-lock" .text=${t("users.not_allowed")}><a class="btn" href="/">${t("page.home")}</a></sk-empty></sk-page>`;
    }
    return html`<sk-page .title=${t("nav.users")} .purpose=${t("users.purpose")}>
        <sk-button slot="action" variant="primary" icon="person-plus" @click=${() => this._ask("add", null)}>${t("users.add")}</sk-button>
        ${this._content()}
      </sk-page>
      ${this._openDialog()}`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      .search {
        max-inline-size: 22rem;
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
      }
      ul:empty {
        display: none;
      }
      li {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2) var(--s3);
        padding: var(--s3) var(--s4);
        font-size: var(--size-s);
        line-height: 1.5;
      }
      li + li {
        border-block-start: 1px solid var(--line);
      }
      .avatar {
        display: inline-grid;
        place-items: center;
        flex: none;
        inline-size: 2.25rem;
        block-size: 2.25rem;
        border-radius: 50%;
        background: var(--accent-soft);
        color: var(--accent-text);
        font-weight: 600;
      }
      .off .avatar {
        background: var(--tint);
        color: var(--text-faint);
      }
      .who {
        flex: 1 1 11rem;
        min-inline-size: 0;
        overflow-wrap: anywhere;
      }
      .name {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
      }
      strong {
        font-weight: 600;
      }
      .who .faint {
        display: flex;
        flex-wrap: wrap;
        gap: 0 var(--s3);
        font-size: var(--size-xs);
      }
      .who .faint span {
        display: inline-flex;
        align-items: center;
        gap: var(--s1);
      }
      li sk-icon {
        --icon-size: 0.9rem;
      }
      select.field {
        inline-size: auto;
        flex: 0 1 9rem;
      }
      @media (max-width: 30rem) {
        .who {
          flex-basis: calc(100% - 3.5rem);
        }
        select.field {
          flex: 1;
        }
      }
    `,
  ];
}

customElements.define("sk-users-page", SkUsersPage);
