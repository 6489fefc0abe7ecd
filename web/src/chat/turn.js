/** `<sk-turn .view>`: what a person said and everything done about it. */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { i18n, t, tt } from "../i18n/index.js";
import { SkElement } from "../ui/base.js";
import { toast } from "../ui/toast.js";
import { siblingsOf } from "./turns.js";
import "../markdown/markdown.js";
import "../ui/icon.js";
import "../ui/menu.js";
import "../ui/states.js";
import "./activity.js";
import "./approval-card.js";

/**
 * @typedef {import("../api/types.js").Message} Message
 * @typedef {import("./turns.js").TurnView} TurnView
 * @typedef {import("./turns.js").Part} Part
 * @typedef {import("./conversation.js").Conversation} Conversation
 */

/** @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("action.copied"), { ms: 1800 });
  } catch {
    toast(t("error.clipboard"), { tone: "fail" });
  }
}

export class SkTurn extends SkElement {
  static properties = {
    view: { attribute: false },
    model: { attribute: false },
    last: { type: Boolean, reflect: true },
    running: { type: Boolean },
    requests: { attribute: false },
    outcome: { attribute: false },
    number: { type: Number },
    _editing: { state: true },
    _details: { state: true },
  };

  constructor() {
    super();
    /** @type {TurnView} */ this.view = /** @type {any} */ (null);
    /** @type {Conversation} */ this.model = /** @type {any} */ (null);
    this.last = false;
    this.running = false;
    /** the conversation's requests; a new map when one changed @type {Map<string, import("../api/types.js").HumanRequest>} */ this.requests = new Map();
    /** @type {import("./conversation.js").Outcome | null} */ this.outcome = null;
    this.number = 0;
    /** @type {string | null} */ this._editing = null;
    this._details = false;
  }

  /** Begin to edit what the person said. */
  edit() {
    if (!this.view.prompt) return;
    this._editing = this.view.prompt.content;
    void this.updateComplete.then(() => {
      const area = /** @type {HTMLTextAreaElement | null} */ (this.renderRoot.querySelector("textarea"));
      area?.focus();
      area?.setSelectionRange(area.value.length, area.value.length);
    });
  }

  /** @private @param {string} act @param {object} [detail] */
  _act(act, detail = {}) {
    this.emit("sk-turn-act", { act, ...detail });
  }

  /** @private */
  _saveEdit() {
    const content = (this._editing ?? "").trim();
    const { prompt } = this.view;
    this._editing = null;
    if (!prompt || !content || content === prompt.content) return;
    this._act("edit", { message: prompt.id, content });
  }

  /** The text of the whole answer. */
  get answerText() {
    return this.view.answers
      .map((m) => m.content.trim())
      .filter(Boolean)
      .join("\n\n");
  }

  /** @private @param {Message} message */
  _branches(message) {
    const { ids, at } = siblingsOf(message);
    if (ids.length < 2) return nothing;
    return html`<span class="branches" role="group" aria-label=${t("branch.label")}>
      <button class="btn plain icon small" ?disabled=${at === 0 || this.running} aria-label=${t("branch.previous")} title=${t("branch.previous")} @click=${() => this._act("head", { message: ids[at - 1] })}>
        <sk-icon class="flip" name="chevron-left"></sk-icon>
      </button>
      <span class="count">${i18n.number(at + 1)}/${i18n.number(ids.length)}</span>
      <button
        class="btn plain icon small"
        ?disabled=${at === ids.length - 1 || this.running}
        aria-label=${t("branch.next")}
        title=${t("branch.next")}
        @click=${() => this._act("head", { message: ids[at + 1] })}
      >
        <sk-icon class="flip" name="chevron-right"></sk-icon>
      </button>
    </span>`;
  }

  /** @private @param {string} icon @param {string} label @param {() => unknown} run @param {boolean} [disabled] */
  _button(icon, label, run, disabled = false) {
    return html`<button class="btn plain icon small" aria-label=${label} title=${label} ?disabled=${disabled} @click=${run}><sk-icon name=${icon}></sk-icon></button>`;
  }

  /** @private */
  _prompt() {
    const { prompt } = this.view;
    if (!prompt) return nothing;
    if (prompt.role === "agent" || prompt.synthetic) {
      return html`<div class="delivered">
        <p class="faint"><sk-icon name=${prompt.role === "agent" ? "robot" : "info-circle"}></sk-icon>${t(prompt.role === "agent" ? "chat.from_agent" : "chat.from_system")}</p>
        <sk-markdown .text=${prompt.content}></sk-markdown>
      </div>`;
    }
    return html`<div class="said">
      ${this._editing !== null
        ? html`<div class="editor">
            <label class="sr" for="edit">${t("chat.edit_label")}</label>
            <textarea
              id="edit"
              class="field"
              rows="3"
              dir="auto"
              .value=${this._editing}
              @input=${(/** @type {Event} */ e) => (this._editing = /** @type {HTMLTextAreaElement} */ (e.target).value)}
              @keydown=${(/** @type {KeyboardEvent} */ e) => {
                if (e.isComposing) return;
                if (e.key === "Escape") {
                  e.stopPropagation();
                  this._editing = null;
                } else if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) this._saveEdit();
              }}
            ></textarea>
            <p class="faint">${t("chat.edit_help")}</p>
            <div class="row">
              <button class="btn small" @click=${() => (this._editing = null)}>${t("action.cancel")}</button>
              <button class="btn small primary" ?disabled=${!this._editing.trim() || this.running} @click=${this._saveEdit}>${t("chat.edit_send")}</button>
            </div>
          </div>`
        : html`<div class="bubble" dir="auto">${prompt.content}</div>`}
      ${prompt.attachments?.length
        ? html`<ul class="files">
            ${prompt.attachments.map((a) => html`<li class="chip"><sk-icon name="paperclip"></sk-icon>${a.name}</li>`)}
          </ul>`
        : nothing}
      ${this._editing === null
        ? html`<div class="acts end" role="group" aria-label=${t("chat.your_actions")}>
            ${this._branches(prompt)} ${this._button("copy", t("action.copy"), () => copyText(prompt.content))}
            ${this._button("pencil", t("chat.edit"), () => this.edit(), this.running)}
            ${this._button("trash", t("chat.delete_turn"), () => this._act("delete", { message: prompt.id }), this.running)}
          </div>`
        : nothing}
    </div>`;
  }

  /** @private @param {Part} part */
  _part(part) {
    if (part.kind === "activity") {
      return html`<sk-activity
        .steps=${part.steps}
        ?live=${this.last && this.running}
        .startedAt=${this.last && this.running ? (this.model.turn?.started_at ?? null) : null}
      ></sk-activity>`;
    }
    if (part.kind === "marker") return this._marker(part.marker);
    const text = part.live ? part.live.content : (part.message?.content ?? "");
    return html`<sk-markdown class="answer" .text=${text} ?streaming=${part.live !== null}></sk-markdown>`;
  }

  /** @private @param {import("./conversation.js").Marker} marker */
  _marker(marker) {
    const { data } = marker;
    if (marker.kind === "compaction") {
      return html`<p class="divider"><span>${t("chat.compacted", { before: data.messages_before, after: data.messages_after })}</span></p>`;
    }
    if (marker.kind === "fallback") {
      return html`<p class="faint aside"><sk-icon name="shuffle"></sk-icon><span>${t("chat.fallback", { from: data.from, to: data.to, reason: data.reason })}</span></p>`;
    }
    return html`<sk-notice tone=${data.level === "error" ? "fail" : data.level === "warning" ? "wait" : "info"}>
      ${tt(data.text)} ${data.action ? html`<a slot="action" class="btn small" href=${safeRoute(data.action.route)}>${tt(data.action.label)}</a>` : nothing}
    </sk-notice>`;
  }

  /** @private how the turn stands, in words; nothing while text flows */
  _status() {
    if (!this.last || !this.running) return nothing;
    const { live } = this.model;
    if (live?.content) return nothing;
    const activity = this.view.parts.find((p) => p.kind === "activity");
    // The activity line already says it, unless text has been written below it since.
    if (activity && activity === this.view.parts.at(-1)) return nothing;
    if (activity?.kind === "activity" && activity.steps.some((s) => s.kind === "call" && s.call.state === "awaiting")) return nothing;
    const running = activity?.kind === "activity" ? activity.steps.findLast((s) => s.kind === "call" && s.call.state === "running") : null;
    const words = running?.kind === "call" ? tt(running.call.title) || running.call.name : t("activity.thinking");
    return html`<p class="status"><span class="pulse" aria-hidden="true"></span>${words}</p>`;
  }

  /** @private the end of a turn that did not go well: cause, what to do, details */
  _trouble() {
    if (this.last && this.running) return nothing;
    const final = this.view.answers.at(-1) ?? null;
    const outcome = this.last ? this.outcome : null;
    const error = final?.error ?? (final ? null : this.view.prompt?.error) ?? outcome?.error ?? null;
    const ended = outcome?.outcome ?? error?.kind ?? "";
    const stopped = ended === "aborted" || ended === "cancelled";
    const interrupted = ended === "interrupted";
    const partial = final?.status === "partial";
    const failed = !stopped && !interrupted && (final?.status === "failed" || ended === "error" || error !== null);
    const unanswered = this.last && !final && this.view.prompt?.role === "user";
    if (!failed && !partial && !stopped && !interrupted && !unanswered) return nothing;
    const acts = this.last
      ? html`${partial ? html`<button class="btn small" @click=${() => this._act("continue")}>${t("turn.continue")}</button>` : nothing}
          <button class="btn small" @click=${() => this._act("retry")}><sk-icon name="arrow-clockwise"></sk-icon>${t("turn.retry")}</button>`
      : nothing;
    if (failed) {
      return html`<sk-error .text=${tt(error?.message) || t("turn.failed")} .details=${error?.detail ?? ""}>
        <span class="row">${acts}</span>
      </sk-error>`;
    }
    const words = stopped ? t("turn.stopped") : unanswered && !interrupted ? t("turn.unanswered") : t("turn.interrupted");
    // A turn that is about to begin looks unanswered for a moment; the words wait that long.
    return html`<p class="ended ${unanswered && !stopped && !interrupted ? "late" : ""}"><sk-icon name=${stopped ? "stop-circle" : "exclamation-triangle"}></sk-icon><span>${words}</span>${acts}</p>`;
  }

  /** @private @param {Message} message */
  _facts(message) {
    const usage = this.view.answers.reduce(
      (sum, m) => ({ input: sum.input + (m.usage?.input_tokens ?? 0), output: sum.output + (m.usage?.output_tokens ?? 0), ms: sum.ms + (m.duration_ms ?? 0), cost: sum.cost + (m.usage?.cost_usd ?? 0) }),
      { input: 0, output: 0, ms: 0, cost: 0 },
    );
    /** @type {[string, string][]} */
    const facts = [
      [t("details.model"), message.model || "—"],
      [t("details.when"), i18n.dateTime(message.created_at)],
      [t("details.time"), usage.ms ? i18n.duration(usage.ms) : "—"],
      [t("details.tokens_in"), i18n.number(usage.input)],
      [t("details.tokens_out"), i18n.number(usage.output)],
    ];
    if (usage.cost) facts.push([t("details.cost"), i18n.number(usage.cost, { style: "currency", currency: "USD", maximumFractionDigits: 4 })]);
    return html`<dl>${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
  }

  /** @private */
  _answerActs() {
    const { answers } = this.view;
    const final = answers.at(-1);
    if (!final || (this.last && this.running)) return nothing;
    // The whole turn is answered anew, so the first message of the answer is the one that gets a sibling.
    const first = answers[0];
    const branched = answers.find((m) => siblingsOf(m).ids.length > 1);
    return html`<div class="acts" role="group" aria-label=${t("chat.answer_actions")}>
        ${branched ? this._branches(branched) : nothing}
        ${this.answerText ? this._button("copy", t("action.copy"), () => copyText(this.answerText)) : nothing}
        ${this._button("arrow-clockwise", t("chat.regenerate"), () => this._act("regenerate", { message: first.id }), this.running)}
        <button
          class="btn plain icon small"
          aria-label=${t("action.details")}
          title=${t("action.details")}
          aria-expanded=${this._details ? "true" : "false"}
          @click=${() => (this._details = !this._details)}
        >
          <sk-icon name="info-circle"></sk-icon>
        </button>
      </div>
      ${this._details ? this._facts(final) : nothing}`;
  }

  render() {
    const { view } = this;
    if (!view) return nothing;
    const calls = new Set(view.answers.flatMap((m) => m.calls.map((c) => String(c.id))));
    const pending = [...this.requests.values()].filter((r) => r.status === "pending" && (calls.has(String(r.call_id)) || (this.last && !this.model.findCall(r.call_id))));
    const answering = view.parts.length > 0 || (this.last && this.running) || view.answers.length > 0;
    return html`${view.prompt ? html`<h3 class="sr">${t("chat.you_said")}</h3>` : nothing} ${this._prompt()}
      ${answering
        ? html`<div class="answers">
            <h3 class="sr">${t("chat.answer_heading")}</h3>
            ${repeat(
              view.parts,
              (part) => part.key,
              (part) => this._part(part),
            )}
            ${repeat(
              pending,
              (request) => request.id,
              (request) => html`<sk-approval .request=${request}></sk-approval>`,
            )}
            ${this._status()} ${this._trouble()} ${this._answerActs()}
          </div>`
        : this._trouble()}`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        content-visibility: auto;
        contain-intrinsic-size: auto 220px;
        padding-block: var(--s3);
      }
      :host([last]) {
        content-visibility: visible;
      }
      .said {
        display: flex;
        flex-direction: column;
        align-items: flex-end;
        gap: 2px;
      }
      .bubble {
        max-inline-size: min(85%, 36rem);
        padding: var(--s2) var(--s4);
        border-radius: var(--radius-l);
        border-end-end-radius: 4px;
        background: var(--tint);
        white-space: pre-wrap;
        overflow-wrap: anywhere;
      }
      .editor {
        inline-size: 100%;
        display: flex;
        flex-direction: column;
        gap: var(--s2);
        padding: var(--s3);
        border-radius: var(--radius-l);
        background: var(--tint);
      }
      .editor textarea {
        field-sizing: content;
        min-block-size: 5rem;
        max-block-size: 20rem;
        font-size: var(--size-m);
        line-height: var(--leading);
      }
      .row {
        display: inline-flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      .editor .row {
        justify-content: flex-end;
      }
      .files {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1);
        list-style: none;
        margin: 0;
        padding: 0;
      }
      .files sk-icon {
        --icon-size: 1rem;
      }
      .delivered {
        border-inline-start: 2px solid var(--line);
        padding-inline-start: var(--s4);
        margin-block-end: var(--s3);
        color: var(--text-soft);
      }
      .delivered p {
        display: flex;
        gap: var(--s2);
        align-items: center;
      }
      .answers {
        display: flex;
        flex-direction: column;
        gap: var(--s3);
        min-inline-size: 0;
      }
      .acts {
        display: flex;
        align-items: center;
        gap: 2px;
        min-block-size: 1.875rem;
        margin-inline-start: calc(-1 * var(--s2));
        opacity: 0;
        transition: opacity var(--quick) var(--ease);
      }
      .acts.end {
        margin-inline: 0 calc(-1 * var(--s1));
      }
      .acts .btn {
        color: var(--text-faint);
      }
      .acts .btn:hover:not(:disabled) {
        color: var(--text);
      }
      .acts .btn:disabled {
        background: none;
      }
      .acts sk-icon {
        --icon-size: 1.125rem;
      }
      :host(:hover) .acts,
      :host(:focus-within) .acts,
      :host([last]) .answers .acts,
      .acts:has(.branches) {
        opacity: 1;
      }
      @media (hover: none) {
        .acts {
          opacity: 1;
        }
      }
      .branches {
        display: inline-flex;
        align-items: center;
        color: var(--text-faint);
      }
      .count {
        font-size: var(--size-xs);
        font-variant-numeric: tabular-nums;
        min-inline-size: 1.75rem;
        text-align: center;
      }
      :host(:dir(rtl)) .flip {
        scale: -1 1;
      }
      .status,
      .ended,
      .aside {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
        color: var(--text-soft);
        font-size: var(--size-s);
      }
      .ended > sk-icon {
        color: var(--wait);
      }
      .late {
        animation: appear 1ms 1.2s both;
      }
      @keyframes appear {
        from {
          opacity: 0;
          visibility: hidden;
        }
      }
      .pulse {
        inline-size: 0.5rem;
        block-size: 0.5rem;
        margin-inline: 0.3rem;
        border-radius: 50%;
        background: var(--run);
        animation: pulse 1.3s ease-in-out infinite;
      }
      @keyframes pulse {
        50% {
          opacity: 0.3;
          scale: 0.8;
        }
      }
      .divider {
        display: flex;
        align-items: center;
        gap: var(--s3);
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      .divider::before,
      .divider::after {
        content: "";
        flex: 1;
        border-block-start: 1px solid var(--line);
      }
      dl {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1) var(--s6);
        margin: 0;
        padding: var(--s3) var(--s4);
        border-radius: var(--radius-s);
        background: var(--tint);
        font-size: var(--size-s);
        font-variant-numeric: tabular-nums;
      }
      dt {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      dd {
        margin: 0;
        overflow-wrap: anywhere;
      }
    `,
  ];
}

/** A route from the server leads within the app or nowhere. @param {string} route */
export function safeRoute(route) {
  return /^\/(?!\/)/.test(route ?? "") ? route : "/";
}

customElements.define("sk-turn", SkTurn);
