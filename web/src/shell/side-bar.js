/** `<sk-side-bar>`: new chat, search, conversations, inbox, pages, me. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { i18n, t, tt } from "../i18n/index.js";
import { api } from "../api/index.js";
import { app } from "../core/app-state.js";
import { currentRoute, navigate, router } from "../core/router.js";
import { Watch } from "../core/watch.js";
import { deleteConversation } from "../chat/chat.js";
import { confirmDialog } from "../ui/dialog.js";
import { toastError } from "../ui/toast.js";
import { showKeys } from "../core/shortcuts.js";
import { SkElement } from "../ui/base.js";
import "../ui/icon.js";
import "../ui/menu.js";

/** @typedef {import("../api/types.js").ConversationInfo} ConversationInfo */

const SEARCH_MS = 220;
const HOVER_MS = 160;

export class SkSideBar extends SkElement {
  static properties = {
    rail: { type: Boolean, reflect: true },
    drawer: { type: Boolean, reflect: true },
    current: { attribute: false },
    _query: { state: true },
    _found: { state: true },
    _searching: { state: true },
    _renaming: { state: true },
  };

  constructor() {
    super();
    /** only icons */ this.rail = false;
    /** over the page, on small screens */ this.drawer = false;
    /** the conversation on screen @type {string | null} */ this.current = null;
    this._query = "";
    /** @type {ConversationInfo[] | null} */ this._found = null;
    this._searching = false;
    /** @type {string | null} */ this._renaming = null;
    /** @private @type {ReturnType<typeof setTimeout> | undefined} */ this._timer = undefined;
    /** @private @type {ReturnType<typeof setTimeout> | undefined} */ this._hover = undefined;
    new Watch(this, app);
    new Watch(this, app.conversations);
    new Watch(this, app.pages);
    new Watch(this, router);
  }

  focusSearch() {
    const input = /** @type {HTMLInputElement | null} */ (this.renderRoot.querySelector('input[type="search"]'));
    input?.focus();
    input?.select();
  }

  /** @private @param {string} query */
  _search(query) {
    this._query = query;
    clearTimeout(this._timer);
    if (!query.trim()) {
      this._found = null;
      return;
    }
    this._timer = setTimeout(async () => {
      this._searching = true;
      try {
        const page = await api.get("/api/conversations", { query: { q: query.trim(), limit: 50 } });
        if (query === this._query) this._found = page.items;
      } catch (error) {
        toastError(error);
      }
      this._searching = false;
    }, SEARCH_MS);
  }

  /** @private Pinned, today, yesterday, this week, and by month. @param {ConversationInfo[]} items */
  _groups(items) {
    /** @type {Map<string, ConversationInfo[]>} */
    const groups = new Map();
    const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
    for (const info of items) {
      const date = info.updated_at;
      const name = info.pinned
        ? t("side.pinned")
        : date >= midnight
          ? t("side.today")
          : date >= midnight - 86_400
            ? t("side.yesterday")
            : date >= midnight - 7 * 86_400
              ? t("side.week")
              : new Intl.DateTimeFormat(i18n.locale, { month: "long", year: "numeric" }).format(date * 1000);
      groups.set(name, [...(groups.get(name) ?? []), info]);
    }
    const pinned = groups.get(t("side.pinned"));
    return [...(pinned ? [[t("side.pinned"), pinned]] : []), ...[...groups].filter(([name]) => name !== t("side.pinned"))];
  }

  /** @private @param {ConversationInfo} info */
  _items(info) {
    const id = String(info.id);
    return [
      { label: t("chat.rename"), icon: "pencil", run: () => this._startRename(id) },
      { label: info.pinned ? t("chat.unpin") : t("chat.pin"), icon: info.pinned ? "pin-angle-fill" : "pin-angle", run: () => app.patchConversation(id, { pinned: !info.pinned }).catch(toastError) },
      { label: t("chat.delete"), icon: "trash", danger: true, divider: true, run: () => deleteConversation(id) },
    ];
  }

  /** @private @param {string} id */
  _startRename(id) {
    this._renaming = id;
    void this.updateComplete.then(() => {
      const input = /** @type {HTMLInputElement | null} */ (this.renderRoot.querySelector(".rename"));
      input?.focus();
      input?.select();
    });
  }

  /** @private @param {ConversationInfo} info @param {string} title */
  _rename(info, title) {
    if (this._renaming === null) return;
    this._renaming = null;
    if (title.trim() && title.trim() !== info.title) app.patchConversation(String(info.id), { title: title.trim() }).catch(toastError);
  }

  /** A pointer that rests on a chat is about to open it. @private @param {string} id */
  _prefetch(id) {
    clearTimeout(this._hover);
    if (id !== this.current && app.online) this._hover = setTimeout(() => app.open(id), HOVER_MS);
  }

  /** @private @param {ConversationInfo} info */
  _badge(info) {
    if (info.state === "waiting") return html`<span class="chip wait" title=${t("side.needs_you")}><sk-icon name="hand-index-thumb"></sk-icon>${t("side.needs_you")}</span>`;
    if (info.state === "running") return html`<span class="busy" role="img" aria-label=${t("side.running")} title=${t("side.running")}></span>`;
    if (info.unread) return html`<span class="dot" role="img" aria-label=${t("side.unread")} title=${t("side.unread")}></span>`;
    return nothing;
  }

  /** @private @param {ConversationInfo} info */
  _row(info) {
    const id = String(info.id);
    const on = this.current === id && currentRoute().name === "chat";
    if (this._renaming === id) {
      return html`<li>
        <input
          class="field rename"
          aria-label=${t("chat.title_label")}
          maxlength="200"
          .value=${info.title}
          @keydown=${(/** @type {KeyboardEvent} */ e) => {
            if (e.isComposing) return;
            if (e.key === "Enter") this._rename(info, /** @type {HTMLInputElement} */ (e.target).value);
            if (e.key === "Escape") {
              e.stopPropagation();
              this._renaming = null;
            }
          }}
          @blur=${(/** @type {Event} */ e) => this._rename(info, /** @type {HTMLInputElement} */ (e.target).value)}
        />
      </li>`;
    }
    return html`<li class=${on ? "on" : ""}>
      <a class="item" href="/c/${id}" aria-current=${on ? "page" : nothing} @pointerenter=${() => this._prefetch(id)} @pointerleave=${() => clearTimeout(this._hover)}>
        <span class="text" dir="auto" title=${info.title}>${info.title || t("chat.untitled")}</span>${this._badge(info)}
      </a>
      <sk-menu small align="end" .label=${t("side.menu_of", { title: info.title || t("chat.untitled") })} .items=${this._items(info)}></sk-menu>
    </li>`;
  }

  /** @private @param {string} href @param {string} icon @param {string} label @param {number} [count] */
  _link(href, icon, label, count = 0) {
    const on = location.pathname === href || (href !== "/" && location.pathname.startsWith(`${href}/`));
    return html`<a class="item nav" href=${href} @pointerenter=${() => this.emit("sk-prefetch", href)} aria-current=${on ? "page" : nothing} title=${this.rail ? label : nothing}>
      <sk-icon name=${icon}></sk-icon><span class="text">${label}</span>
      ${count ? html`<span class="count"><span aria-hidden="true">${i18n.number(count)}</span><span class="sr">${t("side.waiting", { count })}</span></span>` : nothing}
    </a>`;
  }

  /** @private */
  async _signOut() {
    const waiting = app.outbox?.entries.filter((e) => e.state === "pending").length ?? 0;
    if (waiting && !(await confirmDialog({ heading: t("me.sign_out"), text: t("me.sign_out_waiting", { count: waiting }), confirm: t("me.sign_out"), danger: true }))) return;
    await app.signOut();
    void navigate("/login", { replace: true });
  }

  render() {
    const { me } = app;
    if (!me) return nothing;
    const list = app.conversations;
    const searching = this._query.trim() !== "";
    const items = (searching ? (this._found ?? []) : list.items).filter((c) => !list.hidden.has(String(c.id)));
    const pages = app.pages.data ?? [];
    const initial = (me.display_name || me.username).trim().slice(0, 1).toUpperCase();
    return html`<div class="bar">
      <div class="top">
        <a class="brand" href="/" aria-label=${t("side.home")}><span class="name">Skald</span></a>
        <button class="btn plain icon" aria-label=${t("side.toggle")} title="${t("side.toggle")} (${showKeys("mod+shift+s")})" @click=${() => this.emit("sk-toggle-side")}>
          <sk-icon name=${this.drawer ? "x-lg" : "layout-sidebar"}></sk-icon>
        </button>
      </div>
      <button class="item nav new" title="${t("chat.new")} (${showKeys("mod+shift+o")})" @click=${() => this.emit("sk-new-chat")}>
        <sk-icon name="pencil-square"></sk-icon><span class="text">${t("chat.new")}</span>
      </button>
      ${this.rail
        ? html`<button class="item nav" aria-label=${t("action.search")} title="${t("action.search")} (${showKeys("mod+k")})" @click=${() => this.emit("sk-palette")}>
            <sk-icon name="search"></sk-icon>
          </button>`
        : html`<div class="search">
            <sk-icon name="search"></sk-icon>
            <input
              type="search"
              aria-label=${t("side.search")}
              placeholder=${t("side.search")}
              .value=${this._query}
              @input=${(/** @type {Event} */ e) => this._search(/** @type {HTMLInputElement} */ (e.target).value)}
              @keydown=${(/** @type {KeyboardEvent} */ e) => {
                if (e.key === "Escape" && this._query) {
                  e.stopPropagation();
                  this._search("");
                }
              }}
            />
            <kbd aria-hidden="true">${showKeys("mod+k")}</kbd>
          </div>`}
      <div class="list" @scroll=${(/** @type {Event} */ e) => this._scrolled(/** @type {HTMLElement} */ (e.target))}>
        ${this.rail
          ? nothing
          : searching
            ? html`<h2>${this._searching && !this._found ? t("state.loading") : t("side.results", { count: items.length })}</h2>
                <ul>${repeat(items, (c) => c.id, (c) => this._row(c))}</ul>`
            : !list.loaded && !list.error
              ? html`<sk-skeleton shape="lines" lines="7"></sk-skeleton>`
              : list.error && !list.items.length
                ? html`<p class="faint hint">${t("side.failed")} <button class="btn small" @click=${() => list.load()}>${t("action.try_again")}</button></p>`
                : items.length
                  ? this._groups(items).map(
                      ([name, group]) =>
                        html`<h2>${name}</h2>
                          <ul>${repeat(/** @type {ConversationInfo[]} */ (group), (c) => c.id, (c) => this._row(c))}</ul>`,
                    )
                  : html`<p class="faint hint">${t("side.empty")}</p>`}
      </div>
      <div class="bottom">
        ${this._link("/inbox", "inbox", t("nav.inbox"), app.pendingCount)}
        ${pages
          .toSorted((a, b) => a.priority - b.priority)
          .map((page) => this._link(`/page/${page.plugin}/${page.page_id}`, page.icon || "puzzle", tt(page.title)))}
        ${app.can("models.manage") ? this._link("/models", "cpu", t("nav.models")) : nothing}
        ${app.can("plugin.manage") ? this._link("/plugins", "puzzle", t("nav.plugins")) : nothing}
        ${app.can("users.manage") ? this._link("/users", "people", t("nav.users")) : nothing}
        <sk-menu
          class="me"
          .label=${this.rail ? me.display_name : ""}
          .items=${[
            { label: t("nav.profile"), icon: "person", hint: showKeys("mod+,"), run: () => navigate("/profile") },
            { label: t("nav.my_plugins"), icon: "puzzle", run: () => navigate("/profile/plugins") },
            { label: t("nav.shortcuts"), icon: "keyboard", hint: "?", run: () => this.emit("sk-help") },
            { label: t("me.sign_out"), icon: "box-arrow-right", divider: true, run: () => this._signOut() },
          ]}
        >
          <span slot="trigger" class="item nav">
            <span class="avatar" aria-hidden="true">${initial}</span><span class="text" dir="auto">${me.display_name || me.username}</span>
            <sk-icon class="more" name="three-dots"></sk-icon>
          </span>
        </sk-menu>
      </div>
    </div>`;
  }

  /** @private @param {HTMLElement} list */
  _scrolled(list) {
    if (list.scrollHeight - list.scrollTop - list.clientHeight < 400 && !this._query) void app.conversations.more();
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        block-size: 100%;
        background: var(--side);
        border-inline-end: 1px solid var(--line);
      }
      .bar {
        display: flex;
        flex-direction: column;
        block-size: 100%;
        padding: var(--s2);
        padding-block-start: max(var(--s2), env(safe-area-inset-top));
        padding-block-end: max(var(--s2), env(safe-area-inset-bottom));
        gap: 2px;
      }
      .top {
        display: flex;
        align-items: center;
        justify-content: space-between;
        padding-inline-start: var(--s3);
        margin-block-end: var(--s1);
      }
      .brand {
        text-decoration: none;
        color: var(--text);
        font-weight: 650;
        font-size: 1.0625rem;
        letter-spacing: -0.01em;
        border-radius: 4px;
      }
      .item {
        display: flex;
        align-items: center;
        gap: var(--s2);
        inline-size: 100%;
        min-block-size: var(--control);
        padding: 0 var(--s2) 0 var(--s3);
        border: 0;
        border-radius: var(--radius-s);
        background: none;
        color: var(--text);
        font-size: var(--size-s);
        line-height: 1.3;
        text-align: start;
        text-decoration: none;
        cursor: pointer;
      }
      .item.nav sk-icon {
        color: var(--text-soft);
      }
      .item:hover,
      li:hover,
      li:focus-within {
        background: var(--tint);
      }
      .item[aria-current],
      li.on {
        background: var(--tint-strong);
      }
      .item.nav[aria-current] {
        background: var(--accent-soft);
        color: var(--accent-text);
        font-weight: 550;
      }
      .item.nav[aria-current] sk-icon {
        color: var(--accent-text);
      }
      li .item,
      li .item:hover,
      li .item[aria-current] {
        background: none;
      }
      .text {
        flex: 1;
        min-inline-size: 0;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .search {
        position: relative;
        display: flex;
        align-items: center;
        margin-block: var(--s1);
      }
      .search sk-icon {
        position: absolute;
        inset-inline-start: var(--s3);
        color: var(--text-soft);
        pointer-events: none;
      }
      .search kbd {
        position: absolute;
        inset-inline-end: var(--s2);
        pointer-events: none;
      }
      .search:focus-within kbd {
        display: none;
      }
      @media (pointer: coarse) {
        .search kbd {
          display: none;
        }
      }
      input[type="search"] {
        inline-size: 100%;
        min-block-size: var(--control);
        padding: 0 var(--s3) 0 2.5rem;
        border: 1px solid transparent;
        border-radius: var(--radius-s);
        background: var(--tint);
        font-size: var(--size-s);
        outline-offset: -1px;
      }
      @media (pointer: coarse) {
        input[type="search"] {
          font-size: var(--size-m);
        }
      }
      input[type="search"]::placeholder {
        color: var(--text-faint);
        opacity: 1;
      }
      .list {
        flex: 1;
        min-block-size: 0;
        overflow-y: auto;
        margin-inline: calc(-1 * var(--s1));
        padding-inline: var(--s1);
        padding-block-end: var(--s3);
      }
      h2 {
        padding: var(--s4) var(--s3) var(--s1);
        color: var(--text-faint);
        font-size: var(--size-xs);
        font-weight: 550;
        line-height: 1.4;
      }
      .list h2:first-child {
        padding-block-start: var(--s2);
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
      }
      li {
        display: flex;
        align-items: center;
        border-radius: var(--radius-s);
      }
      li sk-menu {
        flex: none;
        margin-inline-end: 2px;
        opacity: 0;
        inline-size: 0;
        overflow: hidden;
      }
      li:hover sk-menu,
      li:focus-within sk-menu {
        opacity: 1;
        inline-size: auto;
        overflow: visible;
      }
      @media (hover: none) {
        li sk-menu {
          opacity: 1;
          inline-size: auto;
          overflow: visible;
        }
      }
      .hint {
        padding: var(--s3);
      }
      .dot {
        flex: none;
        inline-size: 0.5rem;
        block-size: 0.5rem;
        border-radius: 50%;
        background: var(--accent);
      }
      .busy {
        flex: none;
        inline-size: 0.8rem;
        block-size: 0.8rem;
        border: 2px solid var(--run);
        border-inline-end-color: transparent;
        border-radius: 50%;
        animation: spin 0.9s linear infinite;
      }
      @keyframes spin {
        to {
          rotate: 360deg;
        }
      }
      .chip sk-icon {
        --icon-size: 0.9rem;
      }
      .count {
        min-inline-size: 1.375rem;
        padding: 0.05rem 0.4rem;
        border-radius: 999px;
        background: var(--accent);
        color: var(--on-accent);
        font-size: var(--size-xs);
        font-weight: 600;
        text-align: center;
        font-variant-numeric: tabular-nums;
      }
      .bottom {
        display: flex;
        flex-direction: column;
        gap: 2px;
        padding-block-start: var(--s2);
        border-block-start: 1px solid var(--line);
      }
      .me {
        display: block;
      }
      .avatar {
        display: grid;
        place-items: center;
        flex: none;
        inline-size: 1.5rem;
        block-size: 1.5rem;
        margin-inline-start: -0.125rem;
        border-radius: 50%;
        background: var(--accent-soft);
        color: var(--accent-text);
        font-size: var(--size-xs);
        font-weight: 650;
      }
      .more {
        --icon-size: 1rem;
      }
      :host([rail]) .text,
      :host([rail]) .brand,
      :host([rail]) .more {
        display: none;
      }
      :host([rail]) .top {
        padding: 0;
      }
      :host([rail]) .item {
        position: relative;
        justify-content: center;
        padding: 0;
      }
      :host([rail]) .count {
        position: absolute;
        inset-block-start: 0;
        inset-inline-end: 0;
        min-inline-size: 1.1rem;
        padding: 0 0.25rem;
      }
    `,
  ];
}

customElements.define("sk-side-bar", SkSideBar);
