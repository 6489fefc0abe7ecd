/** `<sk-palette>`: one box to go anywhere and do anything, on Ctrl/Cmd+K. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { t, tt } from "../i18n/index.js";
import { api } from "../api/index.js";
import { chatAgents } from "../chat/chat-agents.js";
import { app } from "../core/app-state.js";
import { navigate } from "../core/router.js";
import { allShortcuts, showKeys } from "../core/shortcuts.js";
import { fuzzy } from "../core/fuzzy.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import "../ui/icon.js";

/** @typedef {{id: string, label: string, kind: string, icon: string, keys?: string, run: () => unknown}} Entry */

export class SkPalette extends SkElement {
  static properties = { _query: { state: true }, _at: { state: true }, _open: { state: true }, _remote: { state: true } };

  constructor() {
    super();
    this._query = "";
    this._at = 0;
    this._open = false;
    /** @type {import("../api/types.js").ConversationInfo[]} */ this._remote = [];
    /** @private @type {ReturnType<typeof setTimeout> | undefined} */ this._timer = undefined;
    new Watch(this, app.agents);
  }

  show() {
    this._query = "";
    this._at = 0;
    this._remote = [];
    this._open = true;
    void this.updateComplete.then(() => {
      const dialog = /** @type {HTMLDialogElement} */ (this.renderRoot.querySelector("dialog"));
      if (!dialog.open) dialog.showModal();
      dialog.querySelector("input")?.focus();
    });
  }

  close() {
    this.renderRoot.querySelector("dialog")?.close();
  }

  /** @private @returns {Entry[]} */
  _entries() {
    /** @type {Entry[]} */
    const places = [
      { id: "p:inbox", label: t("nav.inbox"), kind: t("palette.page"), icon: "inbox", run: () => navigate("/inbox") },
      { id: "p:profile", label: t("nav.profile"), kind: t("palette.page"), icon: "person", run: () => navigate("/profile") },
      { id: "p:my-plugins", label: t("nav.my_plugins"), kind: t("palette.page"), icon: "puzzle", run: () => navigate("/profile/plugins") },
    ];
    if (app.can("models.manage")) places.push({ id: "p:models", label: t("nav.models"), kind: t("palette.page"), icon: "cpu", run: () => navigate("/models") });
    if (app.can("plugin.manage")) places.push({ id: "p:plugins", label: t("nav.plugins"), kind: t("palette.page"), icon: "puzzle", run: () => navigate("/plugins") });
    if (app.can("users.manage")) places.push({ id: "p:users", label: t("nav.users"), kind: t("palette.page"), icon: "people", run: () => navigate("/users") });
    for (const page of app.pages.data ?? []) {
      places.push({
        id: `p:${page.plugin}/${page.page_id}`,
        label: tt(page.title),
        kind: t("palette.page"),
        icon: page.icon || "puzzle",
        run: () => navigate(`/page/${page.plugin}/${page.page_id}`),
      });
    }
    /** @type {Entry[]} */
    const acts = allShortcuts()
      .filter((s) => s.id !== "palette")
      .map((s) => ({ id: `a:${s.id}`, label: t(s.label), kind: t("palette.action"), icon: "lightning", keys: s.keys, run: s.run }));
    const { offered } = chatAgents(app.agents.data, null);
    if (offered.length > 1) {
      for (const agent of offered) {
        const run = () => this.emit("sk-new-chat", agent.plugin === null ? null : agent.id);
        acts.push({ id: `g:${agent.id}`, label: t("palette.new_with", { agent: agent.name }), kind: t("palette.action"), icon: "pencil-square", run });
      }
    }
    const known = new Map(app.conversations.items.map((c) => [String(c.id), c]));
    for (const c of this._remote) known.set(String(c.id), c);
    /** @type {Entry[]} */
    const chats = [...known.values()]
      .filter((c) => !app.conversations.hidden.has(String(c.id)))
      .map((c) => ({ id: `c:${c.id}`, label: c.title || t("chat.untitled"), kind: t("palette.chat"), icon: "chat", run: () => navigate(`/c/${c.id}`) }));
    if (!this._query.trim()) return [...chats.slice(0, 6), ...places, ...acts];
    const scored = [...chats, ...places, ...acts].map((entry) => ({ entry, score: fuzzy(this._query, entry.label) })).filter((s) => s.score > 0);
    scored.sort((a, b) => b.score - a.score);
    // The server also searched inside the chats: what it found belongs here without its title matching.
    const shown = new Set(scored.map((s) => s.entry.id));
    const inside = chats.filter((c) => !shown.has(c.id) && this._remote.some((r) => `c:${r.id}` === c.id));
    return [...scored.map((s) => s.entry), ...inside].slice(0, 40);
  }

  /** @private @param {string} query */
  _type(query) {
    this._query = query;
    this._at = 0;
    clearTimeout(this._timer);
    if (!query.trim()) {
      this._remote = [];
      return;
    }
    this._timer = setTimeout(async () => {
      try {
        const page = await api.get("/api/conversations", { query: { q: query.trim(), limit: 15 } });
        if (query === this._query) this._remote = page.items;
      } catch {
        // offline: what is known here is enough
      }
    }, 180);
  }

  /** @private @param {Entry | undefined} entry */
  _run(entry) {
    if (!entry) return;
    this.close();
    // After the dialog gave the focus back, so that the act may move it.
    setTimeout(() => entry.run());
  }

  /** @private @param {KeyboardEvent} event @param {Entry[]} entries */
  _keys(event, entries) {
    event.stopPropagation();
    if (event.isComposing) return;
    if (event.key === "ArrowDown") this._at = Math.min(entries.length - 1, this._at + 1);
    else if (event.key === "ArrowUp") this._at = Math.max(0, this._at - 1);
    else if (event.key === "Enter") this._run(entries[this._at]);
    else return;
    event.preventDefault();
    void this.updateComplete.then(() => this.renderRoot.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }));
  }

  render() {
    if (!this._open) return nothing;
    const entries = this._entries();
    return html`<dialog
      aria-label=${t("palette.label")}
      @close=${() => (this._open = false)}
      @click=${(/** @type {Event} */ e) => e.target === e.currentTarget && this.close()}
    >
      <div class="box" @keydown=${(/** @type {KeyboardEvent} */ e) => this._keys(e, entries)}>
        <div class="top">
          <sk-icon name="search"></sk-icon>
          <input
            role="combobox"
            aria-expanded="true"
            aria-controls="results"
            aria-activedescendant=${entries.length ? `e${this._at}` : nothing}
            aria-label=${t("palette.label")}
            placeholder=${t("palette.placeholder")}
            autocomplete="off"
            spellcheck="false"
            .value=${this._query}
            @input=${(/** @type {Event} */ e) => this._type(/** @type {HTMLInputElement} */ (e.target).value)}
          />
        </div>
        <div id="results" role="listbox" aria-label=${t("palette.label")}>
          ${repeat(
            entries,
            (entry) => entry.id,
            (entry, i) => html`<div id="e${i}" role="option" aria-selected=${i === this._at ? "true" : "false"} @pointermove=${() => (this._at = i)} @click=${() => this._run(entry)}>
              <sk-icon name=${entry.icon}></sk-icon><span class="name" dir="auto">${entry.label}</span>
              ${entry.keys ? html`<kbd>${showKeys(entry.keys)}</kbd>` : html`<span class="kind">${entry.kind}</span>`}
            </div>`,
          )}
          ${entries.length ? nothing : html`<p class="faint">${t("state.no_match")}</p>`}
        </div>
      </div>
    </dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      dialog {
        inline-size: min(36rem, calc(100vw - 1.5rem));
        margin-block-start: 12dvh;
        padding: 0;
        border: 1px solid var(--line);
        border-radius: var(--radius-l);
        background: var(--float);
        color: var(--text);
        box-shadow: var(--shadow);
        overflow: hidden;
      }
      dialog::backdrop {
        background: var(--scrim);
      }
      .top {
        display: flex;
        align-items: center;
        gap: var(--s3);
        padding: 0 var(--s4);
        border-block-end: 1px solid var(--line);
        color: var(--text-soft);
      }
      input {
        flex: 1;
        min-block-size: 3.25rem;
        border: 0;
        outline: 0;
        background: none;
        color: var(--text);
        font-size: var(--size-m);
      }
      input:focus-visible {
        outline: none;
      }
      input::placeholder {
        color: var(--text-faint);
        opacity: 1;
      }
      #results {
        max-block-size: min(24rem, 60dvh);
        overflow-y: auto;
        padding: var(--s2);
      }
      [role="option"] {
        display: flex;
        align-items: center;
        gap: var(--s3);
        min-block-size: 2.5rem;
        padding: 0 var(--s3);
        border-radius: var(--radius-s);
        font-size: var(--size-s);
        cursor: pointer;
      }
      [role="option"] sk-icon {
        color: var(--text-faint);
      }
      [aria-selected="true"] {
        background: var(--tint);
      }
      .name {
        flex: 1;
        min-inline-size: 0;
        overflow: hidden;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .kind {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      p {
        padding: var(--s4);
        text-align: center;
      }
    `,
  ];
}

customElements.define("sk-palette", SkPalette);
