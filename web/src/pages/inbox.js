/**
 * `<sk-inbox-page>`: everything that waits for the person, what they answered, and what nobody answered in time. Keys: J/K
 * move, A allow, D deny.
 */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { api, onEvent } from "../api/index.js";
import { i18n, t } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { Resource, Watch } from "../core/watch.js";
import { SkElement, isEditing } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toast } from "../ui/toast.js";
import "../chat/approval-card.js";
import "../ui/page.js";
import "../ui/states.js";

/**
 * @typedef {import("../api/types.js").HumanRequest} HumanRequest
 * @typedef {"pending" | "answered" | "missed"} Filter
 */

/** What each list but the first holds. @type {Record<"answered" | "missed", HumanRequest["status"][]>} */
const SHOWN = { answered: ["answered"], missed: ["expired", "raised", "cancelled"] };

export class SkInboxPage extends SkElement {
  static properties = { _filter: { state: true }, _at: { state: true }, _recent: { state: true } };

  constructor() {
    super();
    /** @type {Filter} */ this._filter = "pending";
    /** id of the selected request @type {string | null} */ this._at = null;
    /** answered while the page was open: they stay where they were @type {Map<string, HumanRequest>} */ this._recent = new Map();
    /** @private */ this._past = new Resource(async () => /** @type {HumanRequest[]} */ ((await api.get("/api/inbox")).items.filter((/** @type {HumanRequest} */ r) => r.status !== "pending")));
    new Watch(this, app.inbox);
    new Watch(this, this._past);
    new Watch(this, app);
    /** @private @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    document.addEventListener("keydown", this._keys);
    void app.inbox.load();
    this._off = [onEvent("inbox_changed", () => this._filter !== "pending" && void this._past.load())];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    document.removeEventListener("keydown", this._keys);
    for (const off of this._off) off();
  }

  /** @private @returns {HumanRequest[]} */
  _items() {
    const { _filter: filter } = this;
    if (filter !== "pending") return (this._past.data ?? []).filter((r) => SHOWN[filter].includes(r.status));
    const pending = app.inbox.data ?? [];
    const ids = new Set(pending.map((r) => String(r.id)));
    const kept = [...this._recent.values()].filter((r) => !ids.has(String(r.id)));
    return [...pending, ...kept].sort((a, b) => a.created_at - b.created_at);
  }

  /** @private @param {KeyboardEvent} event */
  _keys = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isEditing()) return;
    // A key meant for the chat beside the page is none for the inbox.
    if (event.composedPath().some((node) => node instanceof Element && node.localName === "sk-chat")) return;
    const items = this._items();
    const index = items.findIndex((r) => String(r.id) === this._at);
    const key = event.key.toLowerCase();
    if (key === "j" || key === "k") {
      const to = key === "j" ? Math.min(items.length - 1, index + 1) : Math.max(0, index - 1);
      this._select(items[to]);
    } else if (key === "a" || key === "d" || event.key === "ArrowRight" || event.key === "ArrowLeft") {
      // The first press shows what the next one would answer.
      if (this._at === null) this._select(items.find((r) => r.status === "pending"));
      else if (!this._card()?.answerByKey(event.key)) return;
    } else return;
    event.preventDefault();
  };

  /** @private @returns {import("../chat/approval-card.js").SkApproval | null} */
  _card() {
    return this._at === null ? null : this.renderRoot.querySelector(`sk-approval[data-id="${CSS.escape(this._at)}"]`);
  }

  /** @private @param {HumanRequest | undefined} request */
  _select(request) {
    if (!request) return;
    this._at = String(request.id);
    void this.updateComplete.then(() => {
      this._card()?.focus({ preventScroll: true });
      this._card()?.scrollIntoView({ block: "nearest" });
    });
  }

  /** @private @param {HumanRequest} request */
  _wasAnswered(request) {
    if (this._filter !== "pending") return;
    this._recent = new Map(this._recent).set(String(request.id), request);
    const items = this._items();
    const index = items.findIndex((r) => String(r.id) === String(request.id));
    const next = items.slice(index + 1).find((r) => r.status === "pending") ?? items.find((r) => r.status === "pending" && String(r.id) !== String(request.id));
    if (this._at === String(request.id) && next) this._select(next);
    void app.inbox.load();
  }

  /** @private */
  _wasRaised() {
    toast(t("inbox.raised"), { tone: "done" });
    void app.inbox.load();
    void this._past.load();
  }

  /** @private @param {Filter} filter */
  _show(filter) {
    this._filter = filter;
    this._at = null;
    this._recent = new Map();
    if (filter !== "pending") void this._past.load();
  }

  render() {
    const resource = this._filter === "pending" ? app.inbox : this._past;
    /** @type {[Filter, string][]} */
    const filters = [
      ["pending", t("inbox.pending")],
      ["answered", t("inbox.answered")],
      ["missed", t("inbox.missed")],
    ];
    const items = this._items();
    return html`<sk-page .title=${t("nav.inbox")} .purpose=${t("inbox.purpose")}>
      <div class="tabs" role="group" aria-label=${t("inbox.filter")}>
        ${filters.map(
          ([id, label]) =>
            html`<button class="btn small ${this._filter === id ? "on" : "plain"}" aria-pressed=${this._filter === id ? "true" : "false"} @click=${() => this._show(id)}>
              ${label}${id === "pending" ? html` <span class="n">${i18n.number(app.pendingCount)}</span>` : nothing}
            </button>`,
        )}
        <span class="faint keys"
          ><span><kbd>J</kbd> <kbd>K</kbd> ${t("inbox.keys_move")}</span> <span><kbd>A</kbd> ${t("inbox.keys_allow")}</span> <span><kbd>D</kbd> ${t("inbox.keys_deny")}</span></span
        >
      </div>
      ${resource.error && !items.length
        ? html`<sk-error .text=${describeError(resource.error)} .retry=${() => resource.load()}></sk-error>`
        : resource.data === null
          ? html`<sk-skeleton shape="cards" lines="3"></sk-skeleton>`
          : items.length
            ? html`<ul>
                ${repeat(
                  items,
                  (r) => r.id,
                  (r) => html`<li>
                    <sk-approval
                      data-id=${String(r.id)}
                      .request=${r}
                      .showConversation=${true}
                      .level=${2}
                      ?selected=${this._at === String(r.id)}
                      @sk-answered=${(/** @type {CustomEvent} */ e) => this._wasAnswered(e.detail)}
                      @sk-raised=${this._wasRaised}
                      @focusin=${() => (this._at = String(r.id))}
                    ></sk-approval>
                  </li>`,
                )}
              </ul>`
            : html`<sk-empty icon=${this._filter === "pending" ? "check2-circle" : "inbox"} .text=${this._filter === "pending" ? t("inbox.clear") : this._filter === "missed" ? t("inbox.none_missed") : t("inbox.none_answered")}>
                ${this._filter === "pending" ? html`<a class="btn" href="/">${t("inbox.to_chat")}</a>` : nothing}
              </sk-empty>`}
    </sk-page>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      .tabs {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
      }
      .on {
        background: var(--tint-strong);
        border-color: transparent;
      }
      @media (max-width: 30rem) {
        .tabs {
          gap: var(--s1);
        }
        .tabs .btn {
          padding-inline: var(--s2);
        }
      }
      .n {
        font-variant-numeric: tabular-nums;
        color: var(--text-soft);
      }
      .keys {
        display: flex;
        flex-wrap: wrap;
        gap: 0 var(--s3);
        margin-inline-start: auto;
        font-size: var(--size-xs);
      }
      @media (hover: none) {
        .keys {
          display: none;
        }
      }
      ul {
        list-style: none;
        margin: 0;
        padding: 0;
        display: flex;
        flex-direction: column;
        gap: var(--s4);
      }
    `,
  ];
}

customElements.define("sk-inbox-page", SkInboxPage);
