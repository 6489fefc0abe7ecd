/**
 * `<sk-approval .request>`: a person decides. It says who asks, to do what, to which thing, and why, and shows the effect.
 * Answered elsewhere, it changes by itself. Keys while it has the focus: A allows once, D denies, E edits, → opens more.
 */
import { css, html, nothing } from "lit";
import { api, ApiError } from "../api/index.js";
import { i18n, t, tt } from "../i18n/index.js";
import { SkElement, isEditing } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toolIcon } from "./tool-icon.js";
import "../ui/icon.js";
import "./diff-view.js";

/** @typedef {import("../api/types.js").HumanRequest} HumanRequest */

/** An answer by key needs the card to have been in view for a moment, so that a key meant for something else never allows. */
const SETTLE_MS = 350;

export class SkApproval extends SkElement {
  static properties = {
    request: { attribute: false },
    showConversation: { type: Boolean },
    selected: { type: Boolean, reflect: true },
    level: { type: Number },
    _busy: { state: true },
    _problem: { state: true },
    _more: { state: true },
    _note: { state: true },
    _edited: { state: true },
  };

  constructor() {
    super();
    /** @type {HumanRequest} */ this.request = /** @type {any} */ (null);
    /** link to the conversation, where the card stands outside of it */ this.showConversation = false;
    this.selected = false;
    /** of its heading */ this.level = 4;
    /** @type {string} */ this._busy = "";
    this._problem = "";
    this._more = false;
    this._note = "";
    /** the arguments as the person changes them @type {string | null} */ this._edited = null;
    /** @private */ this._shown = 0;
  }

  connectedCallback() {
    super.connectedCallback();
    this._shown = performance.now();
    this.addEventListener("keydown", this._keys);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.removeEventListener("keydown", this._keys);
  }

  /** @param {FocusOptions} [options] */
  focus(options) {
    /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("article"))?.focus(options);
  }

  /** @private @param {KeyboardEvent} event */
  _keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || isEditing()) return;
    if (this.answerByKey(event.key)) {
      event.preventDefault();
      event.stopPropagation();
    }
  };

  /** @param {string} key @returns {boolean} whether the key meant something here */
  answerByKey(key) {
    if (this.request?.status !== "pending") return false;
    if (performance.now() - this._shown < SETTLE_MS) return false;
    const choices = this.request.choices;
    if (key === "a" || key === "A") {
      const choice = choices.find((c) => c.allow);
      if (choice) void this.answer(choice.id);
    } else if (key === "d" || key === "D") {
      const choice = choices.find((c) => !c.allow);
      if (choice) void this.answer(choice.id);
    } else if (key === "e" || key === "E") void this._edit();
    else if (key === "ArrowRight" || key === "ArrowLeft") {
      this._more = key === (getComputedStyle(this).direction === "rtl" ? "ArrowLeft" : "ArrowRight");
    } else return false;
    return true;
  }

  /** @private */
  async _edit() {
    this._more = true;
    this._edited ??= JSON.stringify(this.request.arguments, null, 2);
    await this.updateComplete;
    /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("#arguments"))?.focus();
  }

  /** Allow once, with the arguments as they were changed. @private */
  async _allowEdited() {
    const choice = this.request.choices.find((c) => c.allow);
    if (!choice) return;
    try {
      const changed = JSON.parse(this._edited ?? "");
      if (!changed || typeof changed !== "object" || Array.isArray(changed)) throw new TypeError("not an object");
      await this.answer(choice.id, changed);
    } catch {
      this._problem = t("approval.bad_arguments");
    }
  }

  /** @param {string} choice @param {Record<string, any>} [changed]  arguments in place of the model's */
  async answer(choice, changed) {
    if (this._busy) return;
    this._busy = choice;
    this._problem = "";
    const takesNote = this.request.choices.find((c) => c.id === choice)?.note;
    const note = takesNote ? this._note.trim() : "";
    try {
      this.request = await api.post(`/api/requests/${this.request.id}/answer`, { choice, ...(note ? { note } : {}), ...(changed ? { arguments: changed } : {}) });
      this.emit("sk-answered", this.request);
    } catch (error) {
      if (error instanceof ApiError && error.code === "already_answered") {
        if (error.body.request) this.request = error.body.request;
        this.emit("sk-answered", this.request);
      }
      this._problem = describeError(error);
    }
    this._busy = "";
  }

  /** @private @param {HumanRequest["choices"][number]} choice */
  _label(choice) {
    const key = `choice.${choice.id}`;
    const known = t(key);
    return known !== key ? known : tt(choice.label);
  }

  /** Have what expired asked again; nothing is allowed by that. @private */
  async _raise() {
    if (this._busy) return;
    this._busy = "raise";
    this._problem = "";
    try {
      this.request = await api.post(`/api/requests/${this.request.id}/raise`);
      this.emit("sk-raised", this.request);
    } catch (error) {
      this._problem = describeError(error);
    }
    this._busy = "";
  }

  /** @private */
  _answered() {
    const { request } = this;
    const allowed = request.answer?.allow ?? false;
    const key =
      request.status === "answered"
        ? allowed
          ? request.answer?.choice === "allow_conversation"
            ? "approval.allowed_conversation"
            : "approval.allowed"
          : "approval.denied"
        : `approval.${request.status}`;
    return html`<article class="answered" aria-label=${t(key)}>
      <sk-icon class=${allowed ? "done" : "fail"} name=${allowed ? "check-circle" : "x-circle"}></sk-icon>
      <span class="words">
        <strong>${t(key)}</strong>
        <span class="soft" dir="auto">${tt(request.title)}${request.path ? html` · <code>${request.path}</code>` : nothing}</span>
        ${request.answer?.note ? html`<span class="soft">“${request.answer.note}”</span>` : nothing}
      </span>
      ${this.showConversation ? html`<a href="/c/${request.conversation}">${request.conversation_title || t("chat.untitled")}</a>` : nothing}
      ${this._problem ? html`<p class="problem" role="alert">${this._problem}</p>` : nothing}
      ${request.status === "expired"
        ? html`<button class="btn small" ?disabled=${this._busy !== ""} aria-busy=${this._busy ? "true" : nothing} @click=${this._raise}>
            <sk-icon name="arrow-repeat"></sk-icon>${t("approval.raise")}
          </button>`
        : nothing}
    </article>`;
  }

  render() {
    const { request } = this;
    if (!request) return nothing;
    if (request.status !== "pending") return this._answered();
    const changes = request.details?.changes ?? [];
    const allow = request.choices.filter((c) => c.allow);
    const deny = request.choices.filter((c) => !c.allow);
    const noteChoice = request.choices.find((c) => c.note);
    const risk = request.details?.risk;
    const thing = changes.length ? "" : request.path || "";
    return html`<article tabindex="-1" aria-labelledby="who" aria-keyshortcuts="A D E">
      <header>
        <sk-icon name=${toolIcon(request.icon)}></sk-icon>
        <p id="who" role="heading" aria-level=${this.level}><span class="agent" dir="auto">${request.agent || t("approval.assistant")}</span> ${t("approval.asks")} <span dir="auto">${tt(request.title) || request.tool}</span></p>
        ${risk === "high" ? html`<span class="chip fail"><sk-icon name="exclamation-triangle"></sk-icon>${t("approval.risk_high")}</span>` : nothing}
      </header>
      ${thing ? html`<p class="thing"><code>${thing}</code></p>` : nothing}
      ${!changes.length && !thing && request.summary && request.summary !== request.details?.command
        ? html`<p class="thing" dir="auto">${request.summary}</p>`
        : nothing}
      ${request.details?.command ? html`<pre class="raw command" tabindex="0" aria-label=${t("approval.command")}>${request.details.command}</pre>` : nothing}
      ${request.why ? html`<blockquote dir="auto"><span class="sr">${t("approval.why")}: </span>${request.why}</blockquote>` : nothing}
      ${changes.map(
        (change) => html`<div class="change">
          <p class="file">
            <code>${change.path}</code>
            <span class="soft">${t(`change.${change.kind}`)}</span>
            <span class="counts"
              >${change.added ? html`<span class="plus">+${i18n.number(change.added)}</span>` : nothing}
              ${change.removed ? html`<span class="minus">−${i18n.number(change.removed)}</span>` : nothing}</span
            >
          </p>
          <sk-diff .diff=${change.diff} .path=${change.path}></sk-diff>
          ${change.truncated ? html`<p class="faint">${t("diff.truncated")}</p>` : nothing}
        </div>`,
      )}
      ${request.reason ? html`<p class="faint reason">${t("approval.reason", { reason: tt(request.reason) })}</p>` : nothing}
      ${this._more
        ? html`<div class="more">
            ${noteChoice
              ? html`<label for="note">${t("approval.note")}</label>
                  <textarea
                    id="note"
                    class="field"
                    rows="2"
                    .value=${this._note}
                    placeholder=${t("approval.note_hint")}
                    @input=${(/** @type {Event} */ e) => (this._note = /** @type {HTMLTextAreaElement} */ (e.target).value)}
                    @keydown=${(/** @type {KeyboardEvent} */ e) => {
                      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void this.answer(noteChoice.id);
                    }}
                  ></textarea>`
              : nothing}
            ${this._edited === null
              ? html`<details>
                  <summary>${t("approval.arguments", { tool: request.tool })}</summary>
                  <pre class="raw" tabindex="0">${JSON.stringify(request.arguments, null, 2)}</pre>
                  <button class="btn small" @click=${this._edit}><sk-icon name="pencil"></sk-icon>${t("approval.edit")}</button>
                </details>`
              : html`<label for="arguments">${t("approval.arguments", { tool: request.tool })}</label>
                  <textarea
                    id="arguments"
                    class="field code"
                    rows="6"
                    spellcheck="false"
                    aria-describedby="arguments-help"
                    .value=${this._edited}
                    @input=${(/** @type {Event} */ e) => (this._edited = /** @type {HTMLTextAreaElement} */ (e.target).value)}
                  ></textarea>
                  <p class="faint" id="arguments-help">${t("approval.edit_help")}</p>
                  <div class="edit-acts">
                    <button class="btn small primary" ?disabled=${this._busy !== ""} @click=${this._allowEdited}>${t("approval.allow_edited")}</button>
                    <button class="btn small" @click=${() => (this._edited = null)}>${t("action.discard")}</button>
                  </div>`}
          </div>`
        : nothing}
      ${this._problem ? html`<p class="problem" role="alert">${this._problem}</p>` : nothing}
      <footer>
        ${allow.map(
          (c, i) =>
            html`<button class="btn ${i ? "" : "primary"}" ?disabled=${this._busy !== ""} aria-busy=${this._busy === c.id ? "true" : nothing} @click=${() => this.answer(c.id)}>
              ${this._label(c)}${i ? nothing : html`<kbd aria-hidden="true">A</kbd>`}
            </button>`,
        )}
        ${deny.map(
          (c) =>
            html`<button class="btn" ?disabled=${this._busy !== ""} aria-busy=${this._busy === c.id ? "true" : nothing} @click=${() => this.answer(c.id)}>
              ${this._more && this._note.trim() && c.note ? t("approval.deny_note") : this._label(c)}<kbd aria-hidden="true">D</kbd>
            </button>`,
        )}
        <button
          class="btn plain icon toggle"
          aria-expanded=${this._more ? "true" : "false"}
          aria-label=${t("approval.more")}
          title=${t("approval.more")}
          @click=${() => (this._more = !this._more)}
        >
          <span class="label">${t("approval.more")}</span><sk-icon name=${this._more ? "chevron-up" : "chevron-down"}></sk-icon>
        </button>
        <span class="tail faint">
          ${this.showConversation ? html`<a href="/c/${request.conversation}">${request.conversation_title || t("chat.untitled")}</a>` : nothing}
          ${request.expires_at ? html`<span>${t("approval.expires", { when: i18n.relative(request.expires_at) })}</span>` : nothing}
        </span>
      </footer>
    </article>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        container-type: inline-size;
      }
      article {
        border: 1px solid var(--line);
        border-inline-start: 3px solid var(--wait);
        border-radius: var(--radius-m);
        background: var(--surface);
        padding: var(--s4);
        display: flex;
        flex-direction: column;
        gap: var(--s3);
      }
      article:focus {
        outline: none;
      }
      article:focus-visible,
      :host([selected]) article {
        outline: 2px solid var(--focus);
        outline-offset: 1px;
      }
      header {
        display: flex;
        align-items: flex-start;
        gap: var(--s2);
      }
      header > sk-icon {
        color: var(--wait);
        margin-block-start: 0.1rem;
      }
      #who {
        flex: 1;
        font-size: var(--size-m);
        font-weight: 600;
        line-height: 1.45;
        overflow-wrap: anywhere;
      }
      .chip sk-icon {
        --icon-size: 1rem;
      }
      code {
        font-family: var(--mono);
        font-size: 0.875em;
        overflow-wrap: anywhere;
      }
      .thing {
        overflow-wrap: anywhere;
      }
      blockquote {
        margin: 0;
        padding-inline-start: var(--s3);
        border-inline-start: 2px solid var(--line);
        color: var(--text-soft);
        font-size: var(--size-s);
        max-block-size: 8rem;
        overflow-y: auto;
        white-space: pre-line;
        overflow-wrap: anywhere;
      }
      .file {
        display: flex;
        flex-wrap: wrap;
        align-items: baseline;
        gap: 0 var(--s2);
        font-size: var(--size-s);
        margin-block-end: var(--s1);
      }
      .file code {
        font-weight: 600;
      }
      .counts {
        display: inline-flex;
        gap: var(--s2);
        font-variant-numeric: tabular-nums;
        font-weight: 600;
      }
      .plus {
        color: var(--done);
      }
      .minus {
        color: var(--fail);
      }
      .reason {
        line-height: 1.45;
      }
      .more {
        display: flex;
        flex-direction: column;
        gap: var(--s2);
      }
      label,
      summary {
        font-size: var(--size-s);
        font-weight: 550;
      }
      summary {
        cursor: pointer;
        font-weight: 400;
        color: var(--text-soft);
        padding-block: var(--s1);
      }
      .code {
        font-family: var(--mono);
        font-size: 0.8125rem;
        field-sizing: content;
        max-block-size: 24rem;
      }
      .edit-acts {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2);
      }
      details .btn {
        margin-block-start: var(--s2);
      }
      .problem {
        color: var(--fail);
        font-size: var(--size-s);
      }
      footer {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: var(--s2);
      }
      footer kbd {
        background: none;
        border-color: currentColor;
        color: inherit;
        opacity: 0.75;
        padding: 0 0.3rem;
        line-height: 1.3;
      }
      @media (pointer: coarse) {
        footer kbd {
          display: none;
        }
      }
      .toggle .label {
        display: none;
      }
      /* It stands in a row of its own there, where an arrow alone says little. */
      @container (max-width: 25rem) {
        .toggle.toggle {
          inline-size: auto;
          padding-inline: var(--s2);
        }
        .toggle .label {
          display: inline;
        }
      }
      .tail {
        margin-inline-start: auto;
        display: flex;
        flex-wrap: wrap;
        gap: 0 var(--s3);
        font-size: var(--size-xs);
      }
      .answered {
        flex-flow: row wrap;
        align-items: center;
        gap: var(--s2);
        padding: var(--s3) var(--s4);
        border-inline-start-width: 1px;
        border-inline-start-color: var(--line);
        font-size: var(--size-s);
      }
      .answered .words {
        flex: 1 1 14rem;
        display: flex;
        flex-wrap: wrap;
        gap: 0 var(--s2);
        overflow-wrap: anywhere;
      }
      .done {
        color: var(--done);
      }
      .fail {
        color: var(--fail);
      }
      @media (max-width: 40rem) {
        article {
          padding: var(--s3);
        }
        footer .btn:not(.icon) {
          flex: 1 1 auto;
        }
      }
    `,
  ];
}

customElements.define("sk-approval", SkApproval);
