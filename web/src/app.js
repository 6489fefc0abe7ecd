/** `<skald-app>`: the whole app. Sign-in and set-up first, then the shell: side bar, page, and the one chat element. */
import { css, html, nothing } from "lit";
import { i18n, t } from "./i18n/index.js";
import { app } from "./core/app-state.js";
import { prefs, watchTheme } from "./core/prefs.js";
import { currentRoute, navigate, parseRoute, router, setLeaveQuestion } from "./core/router.js";
import { addShortcut, listen } from "./core/shortcuts.js";
import { Watch } from "./core/watch.js";
import { SkElement, isEditing } from "./ui/base.js";
import { confirmDialog, toast } from "./ui/index.js";
import "./chat/chat.js";
import "./pages/sign-in.js";
import "./shell/help.js";
import "./shell/palette.js";
import "./shell/side-bar.js";

const WIDE = matchMedia("(min-width: 64.01rem)");
const NARROW = matchMedia("(max-width: 47.99rem)");
const SIDE = { min: 208, max: 420 };
const DOCK = { min: 320, max: 680 };

/** Pages load when first opened. @type {Record<string, () => Promise<unknown>>} */
const PAGES = {
  inbox: () => import("./pages/inbox.js"),
  models: () => import("./pages/models.js"),
  plugins: () => import("./pages/plugins.js"),
  plugin: () => import("./pages/plugin-detail.js"),
  users: () => import("./pages/users.js"),
  profile: () => import("./pages/profile.js"),
  "my-plugins": () => import("./pages/my-plugins.js"),
  page: () => import("./pages/plugin-host.js"),
};

export class SkaldApp extends SkElement {
  static properties = {
    _drawer: { state: true },
    _sheet: { state: true },
    _conversation: { state: true },
    _loaded: { state: true },
    _failedPage: { state: true },
  };

  constructor() {
    super();
    /** the side bar is open over the page */ this._drawer = false;
    /** the docked chat is open over the page */ this._sheet = false;
    /** what the chat element shows @type {string | null} */ this._conversation = null;
    /** @type {Set<string>} */ this._loaded = new Set();
    this._failedPage = "";
    /** @private */ this._title = "";
    new Watch(this, app);
    new Watch(this, app.conversations);
    new Watch(this, router, ["change"], () => this._routed());
    new Watch(this, prefs);
    /** @private */ this._redraw = () => this.requestUpdate();
    /** @private */ this._shortcuts = false;
  }

  connectedCallback() {
    super.connectedCallback();
    WIDE.addEventListener("change", this._redraw);
    NARROW.addEventListener("change", this._redraw);
    this._routed();
    this.addEventListener("sk-page-title", (event) => this._setTitle(/** @type {CustomEvent} */ (event).detail));
    setLeaveQuestion(() => confirmDialog({ heading: t("leave.title"), text: t("leave.text"), confirm: t("leave.leave"), danger: true }));
    listen(isEditing);
    this._addShortcuts();
    app.addEventListener("server-restarted", () => void this._newVersion());
    void app.start();
  }

  /** Offer a newer version of the app; drafts are kept over the reload. @private */
  async _newVersion() {
    try {
      const page = await (await fetch("/", { cache: "no-store" })).text();
      const script = /src="(\/assets\/app-[^"]+)"/.exec(page)?.[1];
      if (!script || script === new URL(import.meta.url).pathname || document.querySelector(`script[src="${CSS.escape(script)}"]`)) return;
      toast(t("page.new_version"), { ms: 600_000, action: { label: t("action.reload"), run: () => location.reload() } });
    } catch {
      // not reached: the next restart or reload tells
    }
  }

  /** @private @returns {import("./chat/chat.js").SkChat | null} */
  get _chat() {
    return this.renderRoot.querySelector("sk-chat");
  }

  /** @private */
  _addShortcuts() {
    /** @param {() => unknown} run */
    const ready = (run) => () => (app.phase === "ready" && !app.expired ? run() : false);
    /** @param {string} id @param {string} keys @param {string} label @param {() => unknown} run @param {boolean} [always] */
    const add = (id, keys, label, run, always = true) => addShortcut({ id, keys, label, run: ready(run), always });
    add("new", "mod+shift+o", "keys.new", () => this._newChat());
    add("palette", "mod+k", "keys.palette", () => /** @type {any} */ (this.renderRoot.querySelector("sk-palette"))?.show());
    add("side", "mod+shift+s", "keys.side", () => this._toggleSide());
    add("focus", "shift+escape", "keys.focus", () => this._focusChat());
    add("copy-answer", "mod+shift+c", "keys.copy_answer", () => this._chat?.copyLastAnswer());
    add("copy-code", "mod+shift+;", "keys.copy_code", () => this._chat?.copyLastCode());
    add("regenerate", "mod+shift+e", "keys.regenerate", () => this._chat?.regenerateLast());
    add("approval", "mod+shift+y", "keys.approval", () => this._focusApproval());
    add("stop", "escape", "keys.stop", () => this._escape());
    add("settings", "mod+,", "keys.settings", () => navigate("/profile"));
    add("help", "?", "keys.help", () => /** @type {any} */ (this.renderRoot.querySelector("sk-help"))?.show(), false);
  }

  /** @private what Esc ends: an open drawer or sheet, else the running turn */
  _escape() {
    if (this._drawer) this._drawer = false;
    else if (this._sheet) this._sheet = false;
    else return this._chat?.stop() ?? false;
    return true;
  }

  /** @private */
  _focusChat() {
    if (currentRoute().name !== "chat" && !this._dockShown()) {
      if (WIDE.matches) prefs.set("dockOpen", true);
      else this._sheet = true;
    }
    void this.updateComplete.then(() => this._chat?.focusComposer());
  }

  /** @private */
  _focusApproval() {
    const turns = [...(this._chat?.renderRoot.querySelectorAll("sk-turn") ?? [])];
    const card = /** @type {any} */ (turns.map((turn) => turn.shadowRoot?.querySelector("sk-approval")).findLast(Boolean));
    if (!card) return navigate("/inbox");
    card.scrollIntoView({ block: "nearest" });
    card.focus();
  }

  /** @private @param {string | null} [agent]  whom it is with, when not with the main one */
  _newChat(agent = null) {
    this._drawer = false;
    this._conversation = null;
    this._chat?.reset(agent);
    void navigate("/");
    void this.updateComplete.then(() => this._chat?.focusComposer());
  }

  /** A new chat beside the page. @private */
  _newDocked() {
    this._conversation = null;
    this._chat?.reset();
    void this.updateComplete.then(() => this._chat?.focusComposer());
  }

  /** @private */
  _toggleSide() {
    if (NARROW.matches) this._drawer = !this._drawer;
    else prefs.set("sideOpen", !prefs.get("sideOpen"));
  }

  /** @private */
  _dockShown() {
    return WIDE.matches ? prefs.get("dockOpen") : this._sheet;
  }

  /** @private */
  _routed() {
    const route = currentRoute();
    this._drawer = false;
    this._sheet = false;
    if (route.name === "chat") {
      const id = route.params.id ?? null;
      if (id !== this._conversation) {
        this._conversation = id;
        if (id === null) this._chat?.reset();
      }
      this._setTitle("");
    }
    const load = PAGES[route.name];
    if (load && !this._loaded.has(route.name)) {
      load().then(
        () => {
          this._loaded = new Set(this._loaded).add(route.name);
          this._failedPage = "";
        },
        () => (this._failedPage = route.name),
      );
    }
    if (app.phase === "ready") this._settleRoute();
  }

  /** Once signed in, the set-up and sign-in addresses lead home. @private */
  _settleRoute() {
    const { name } = currentRoute();
    if (name === "setup" || name === "login") void navigate("/", { replace: true });
  }

  /** @private @param {string} title */
  _setTitle(title) {
    this._title = title;
    this._documentTitle();
  }

  /** @private */
  _documentTitle() {
    const chat = currentRoute().name === "chat" && this._conversation !== null ? app.conversations.find(this._conversation)?.title : "";
    const name = this._title || chat || "";
    const waiting = app.pendingCount ? `(${i18n.number(app.pendingCount)}) ` : "";
    document.title = `${waiting}${name ? `${name} · ` : ""}Skald`;
  }

  updated() {
    this._documentTitle();
    if (app.phase !== "ready") return;
    this._settleRoute();
    this._remember();
  }

  /** The dock opens with the chat that was open before a reload. @private */
  _remember() {
    const key = `skald.last.${app.me?.id}`;
    try {
      if (this._remembered !== key) {
        this._remembered = key;
        const last = sessionStorage.getItem(key);
        if (last && this._conversation === null && currentRoute().name !== "chat") this._conversation = last;
      }
      if (this._conversation === null) sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, this._conversation);
    } catch {
      // no storage: the dock starts with a new chat
    }
  }

  /** @private */
  _remembered = "";

  /** @private @param {PointerEvent} event @param {"side" | "dock"} which */
  _drag(event, which) {
    const handle = /** @type {HTMLElement} */ (event.currentTarget);
    handle.setPointerCapture(event.pointerId);
    const limits = which === "side" ? SIDE : DOCK;
    const rtl = getComputedStyle(this).direction === "rtl";
    const fromLeft = (which === "side") !== rtl;
    /** @param {PointerEvent} e */
    const move = (e) => {
      const width = fromLeft ? e.clientX : innerWidth - e.clientX;
      prefs.set(which === "side" ? "sideWidth" : "dockWidth", Math.round(Math.max(limits.min, Math.min(limits.max, width))));
    };
    handle.addEventListener("pointermove", move);
    handle.addEventListener("lostpointercapture", () => handle.removeEventListener("pointermove", move), { once: true });
  }

  /** @private @param {KeyboardEvent} event @param {"side" | "dock"} which */
  _nudge(event, which) {
    const towardsEnd = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!towardsEnd) return;
    event.preventDefault();
    const key = which === "side" ? "sideWidth" : "dockWidth";
    const limits = which === "side" ? SIDE : DOCK;
    const grow = which === "side" ? towardsEnd : -towardsEnd;
    prefs.set(key, Math.max(limits.min, Math.min(limits.max, prefs.get(key) + 16 * grow)));
  }

  /** @private @param {"side" | "dock"} which */
  _handle(which) {
    const limits = which === "side" ? SIDE : DOCK;
    return html`<div
      class="handle ${which}"
      role="separator"
      tabindex="0"
      aria-orientation="vertical"
      aria-label=${t(which === "side" ? "side.resize" : "dock.resize")}
      aria-valuenow=${prefs.get(which === "side" ? "sideWidth" : "dockWidth")}
      aria-valuemin=${limits.min}
      aria-valuemax=${limits.max}
      @pointerdown=${(/** @type {PointerEvent} */ e) => this._drag(e, which)}
      @keydown=${(/** @type {KeyboardEvent} */ e) => this._nudge(e, which)}
    ></div>`;
  }

  /** @private */
  _page() {
    const route = currentRoute();
    if (route.name === "chat") return nothing;
    if (this._failedPage === route.name) {
      return html`<sk-empty icon="wifi-off" .text=${t("page.not_loaded")}><button class="btn" @click=${() => location.reload()}>${t("action.reload")}</button></sk-empty>`;
    }
    if (PAGES[route.name] && !this._loaded.has(route.name)) return html`<div class="loading"><sk-skeleton shape="cards" lines="4"></sk-skeleton></div>`;
    switch (route.name) {
      case "inbox":
        return html`<sk-inbox-page></sk-inbox-page>`;
      case "models":
        return html`<sk-models-page></sk-models-page>`;
      case "plugins":
        return html`<sk-plugins-page></sk-plugins-page>`;
      case "plugin":
        return html`<sk-plugin-detail .pluginId=${route.params.id}></sk-plugin-detail>`;
      case "users":
        return html`<sk-users-page></sk-users-page>`;
      case "my-plugins":
        return html`<sk-my-plugins-page .pluginId=${route.params.id ?? null}></sk-my-plugins-page>`;
      case "profile":
        return html`<sk-profile-page></sk-profile-page>`;
      case "page":
        return html`<sk-plugin-host .plugin=${route.params.plugin} .page=${route.params.page}></sk-plugin-host>`;
      default:
        return html`<sk-page .title=${t("page.unknown_title")}>
          <sk-empty icon="signpost-split" .text=${t("page.unknown")}><a class="btn" href="/">${t("page.home")}</a></sk-empty>
        </sk-page>`;
    }
  }

  render() {
    if (app.phase === "start") return html`<div class="start" role="status"><span class="sr">${t("state.loading")}</span></div>`;
    if (app.phase === "unreachable") {
      return html`<main class="alone">
        <sk-empty icon="wifi-off" .text=${t("start.unreachable")}><button class="btn" @click=${() => app.start()}>${t("action.try_again")}</button></sk-empty>
      </main>`;
    }
    if (app.phase === "setup") return html`<sk-setup-page></sk-setup-page>`;
    if (app.phase === "login") return html`<sk-login-page></sk-login-page>`;
    const route = currentRoute();
    const onChat = route.name === "chat";
    const narrow = NARROW.matches;
    const rail = !narrow && !prefs.get("sideOpen");
    const dock = !onChat && this._dockShown();
    const overlay = !onChat && !WIDE.matches;
    return html`<div class="shell ${onChat ? "on-chat" : "on-page"} ${rail ? "rail" : ""} ${dock ? "dock" : ""}">
        ${narrow && this._drawer ? html`<div class="scrim" @click=${() => (this._drawer = false)}></div>` : nothing}
        <nav class="side ${this._drawer ? "open" : ""}" aria-label=${t("side.label")} ?inert=${narrow && !this._drawer}>
          <a class="skip" href="#main" @click=${(/** @type {Event} */ e) => (e.preventDefault(), this._skip())}>${t("page.skip")}</a>
          <sk-side-bar
            ?rail=${rail}
            ?drawer=${narrow}
            .current=${this._conversation}
            @sk-toggle-side=${this._toggleSide}
            @sk-prefetch=${(/** @type {CustomEvent} */ e) => void PAGES[parseRoute(e.detail).name]?.().catch(() => undefined)}
            @sk-new-chat=${() => this._newChat()}
            @sk-palette=${() => /** @type {any} */ (this.renderRoot.querySelector("sk-palette"))?.show()}
            @sk-help=${() => /** @type {any} */ (this.renderRoot.querySelector("sk-help"))?.show()}
          ></sk-side-bar>
          ${narrow || rail ? nothing : this._handle("side")}
        </nav>
        <main id="main" tabindex="-1" ?hidden=${onChat} ?inert=${(narrow && this._drawer) || (overlay && this._sheet)}>
          <div class="bar">
            ${narrow ? this._menuButton() : nothing}
            <span class="space"></span>
            ${dock && WIDE.matches
              ? nothing
              : html`<button class="btn plain" @click=${() => this._focusChat()}><sk-icon name="chat"></sk-icon><span>${t("dock.open")}</span></button>`}
          </div>
          <div class="page">${this._page()}</div>
        </main>
        ${overlay && this._sheet ? html`<div class="scrim" @click=${() => (this._sheet = false)}></div>` : nothing}
        <div class="chat" role=${onChat ? "main" : "complementary"} aria-label=${t("dock.label")} ?hidden=${!onChat && !dock} ?inert=${narrow && this._drawer}>
          ${!onChat && WIDE.matches ? this._handle("dock") : nothing}
          <sk-chat
            .conversationId=${this._conversation}
            ?docked=${!onChat}
            .active=${onChat || dock}
            @sk-conversation=${(/** @type {CustomEvent} */ e) => this._conversationSet(e.detail)}
          >
            ${onChat && narrow ? html`<span slot="start">${this._menuButton()}</span>` : nothing}
            ${onChat
              ? narrow
                ? html`<button slot="end" class="btn plain icon" aria-label=${t("chat.new")} title=${t("chat.new")} @click=${this._newChat}><sk-icon name="pencil-square"></sk-icon></button>`
                : nothing
              : html`<span slot="end" class="dock-acts">
                  <button class="btn plain icon small" aria-label=${t("chat.new")} title=${t("chat.new")} @click=${() => this._newDocked()}>
                    <sk-icon name="pencil-square"></sk-icon>
                  </button>
                  <a class="btn plain icon small" href=${this._conversation === null ? "/" : `/c/${this._conversation}`} aria-label=${t("dock.expand")} title=${t("dock.expand")}>
                    <sk-icon name="arrows-angle-expand"></sk-icon>
                  </a>
                  <button
                    class="btn plain icon small"
                    aria-label=${t("dock.close")}
                    title=${t("dock.close")}
                    @click=${() => {
                      if (WIDE.matches) prefs.set("dockOpen", false);
                      else this._sheet = false;
                    }}
                  >
                    <sk-icon name="x-lg"></sk-icon>
                  </button>
                </span>`}
          </sk-chat>
        </div>
      </div>
      <sk-palette @sk-new-chat=${(/** @type {CustomEvent} */ e) => this._newChat(e.detail)}></sk-palette>
      <sk-help></sk-help>
      ${app.expired ? html`<sk-relogin></sk-relogin>` : nothing}`;
  }

  /** @private */
  _menuButton() {
    return html`<button class="btn plain icon menu" aria-label=${t("side.open")} title=${t("side.open")} aria-expanded=${this._drawer ? "true" : "false"} @click=${() => (this._drawer = true)}>
      <sk-icon name="list"></sk-icon>${app.pendingCount ? html`<span class="menu-dot"></span>` : nothing}
    </button>`;
  }

  /** @private */
  _skip() {
    if (currentRoute().name === "chat") this._chat?.focusComposer();
    else /** @type {HTMLElement} */ (this.renderRoot.querySelector("#main")).focus();
  }

  /** The chat element changed what it shows. @private @param {string | null} id */
  _conversationSet(id) {
    this._conversation = id;
    if (currentRoute().name === "chat") void navigate(id === null ? "/" : `/c/${id}`, { replace: true });
  }

  willUpdate() {
    // Widths are the person's own; set through the object model, since the CSP allows no style attributes.
    this.style.setProperty("--side-width", `${prefs.get("sideWidth")}px`);
    this.style.setProperty("--dock-width", `${prefs.get("dockWidth")}px`);
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        block-size: 100%;
      }
      .start {
        block-size: 100%;
      }
      .alone {
        display: grid;
        place-items: center;
        block-size: 100%;
      }
      .shell {
        display: grid;
        block-size: 100%;
        grid-template: minmax(0, 1fr) / var(--side-width) minmax(0, 1fr);
      }
      .shell.rail {
        grid-template-columns: 3.5rem minmax(0, 1fr);
      }
      .shell.on-page.dock {
        grid-template-columns: var(--side-width) minmax(0, 1fr) minmax(0, var(--dock-width));
      }
      .shell.on-page.dock.rail {
        grid-template-columns: 3.5rem minmax(0, 1fr) minmax(0, var(--dock-width));
      }
      .skip {
        position: fixed;
        z-index: 70;
        inset-block-start: var(--s2);
        inset-inline-start: var(--s2);
        padding: var(--s2) var(--s4);
        border-radius: var(--radius-s);
        background: var(--float);
        box-shadow: var(--shadow);
        translate: 0 -200%;
      }
      .skip:focus {
        translate: 0 0;
      }
      .side {
        position: relative;
        min-inline-size: 0;
        min-block-size: 0;
      }
      main {
        display: flex;
        flex-direction: column;
        min-inline-size: 0;
        min-block-size: 0;
        outline: none;
      }
      .bar {
        display: flex;
        align-items: center;
        gap: var(--s2);
        padding: var(--s1) var(--s3);
        padding-block-start: max(var(--s1), env(safe-area-inset-top));
        min-block-size: var(--bar);
      }
      .dock .bar {
        display: none;
      }
      .space {
        flex: 1;
      }
      .page {
        flex: 1;
        min-block-size: 0;
        overflow-y: auto;
        scrollbar-gutter: stable;
      }
      .loading {
        max-inline-size: 56rem;
        margin: var(--s12) auto;
        padding-inline: var(--s6);
      }
      .chat {
        position: relative;
        min-inline-size: 0;
        min-block-size: 0;
      }
      .on-page .chat {
        border-inline-start: 1px solid var(--line);
      }
      .dock-acts {
        display: inline-flex;
      }
      .handle {
        position: absolute;
        z-index: 5;
        inset-block: 0;
        inline-size: 9px;
        cursor: col-resize;
        touch-action: none;
      }
      .handle.side {
        inset-inline-end: -5px;
      }
      .handle.dock {
        inset-inline-start: -5px;
      }
      .handle:hover,
      .handle:focus-visible {
        background: linear-gradient(to right, transparent 3px, var(--focus) 3px 6px, transparent 6px);
        outline: none;
      }
      .scrim {
        position: fixed;
        z-index: 29;
        inset: 0;
        background: var(--scrim);
      }
      .menu {
        position: relative;
      }
      .menu-dot {
        position: absolute;
        inset-block-start: 0.5rem;
        inset-inline-end: 0.45rem;
        inline-size: 0.5rem;
        block-size: 0.5rem;
        border-radius: 50%;
        background: var(--accent);
      }
      @media (max-width: 64rem) {
        .shell.on-page.dock,
        .shell.on-page {
          grid-template-columns: var(--side-width) minmax(0, 1fr);
        }
        .shell.on-page.rail,
        .shell.on-page.dock.rail {
          grid-template-columns: 3.5rem minmax(0, 1fr);
        }
        .dock .bar {
          display: flex;
        }
        .on-page .chat {
          position: fixed;
          z-index: 30;
          inset-block: 0;
          inset-inline-end: 0;
          inline-size: min(28rem, 100vw);
          background: var(--ground);
          box-shadow: var(--shadow);
        }
      }
      @media (max-width: 47.99rem) {
        .shell.shell.shell {
          grid-template-columns: minmax(0, 1fr);
        }
        .side {
          position: fixed;
          z-index: 30;
          inset-block: 0;
          inset-inline-start: 0;
          inline-size: min(20rem, 86vw);
          translate: -105% 0;
          transition: translate var(--quick) var(--ease);
        }
        :host(:dir(rtl)) .side {
          translate: 105% 0;
        }
        .side.open.open {
          translate: 0 0;
          box-shadow: var(--shadow);
        }
        .on-page .chat {
          inline-size: 100vw;
          inset-block-start: 0;
        }
      }
    `,
  ];
}

watchTheme();
customElements.define("skald-app", SkaldApp);
