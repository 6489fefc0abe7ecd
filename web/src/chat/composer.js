/**
 * `<sk-composer>`: where a person writes. Fires `sk-send` (detail: the text), `sk-stop`. Keeps the draft of each chat. A text
 * that begins with a slash opens the list of commands: arrows choose, Enter or Tab takes, Esc closes.
 */
import { css, html, nothing } from "lit";
import { t, tt } from "../i18n/index.js";
import { prefs } from "../core/prefs.js";
import { showKeys } from "../core/shortcuts.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { commandOf, matchingCommands, typedCommand } from "./command-menu.js";
import "../ui/icon.js";

const SAVE_MS = 250;

export class SkComposer extends SkElement {
  static properties = {
    draftKey: { attribute: false },
    running: { type: Boolean },
    stopping: { type: Boolean },
    disabled: { type: Boolean },
    blocked: { type: Boolean },
    placeholder: {},
    commands: { attribute: false },
    _filled: { state: true },
    _matches: { state: true },
    _at: { state: true },
    _command: { state: true },
  };

  constructor() {
    super();
    /** where the draft is kept; changing it swaps the text */ this.draftKey = "";
    this.running = false;
    this.stopping = false;
    this.disabled = false;
    /** writing is possible, sending is not, e.g. without a model */ this.blocked = false;
    this.placeholder = "";
    /** slash commands on offer @type {import("../api/types.js").Command[]} */ this.commands = [];
    this._filled = false;
    /** commands that fit what is typed; empty: the list is closed @type {import("../api/types.js").Command[]} */ this._matches = [];
    this._at = 0;
    /** the command the text begins with @type {import("../api/types.js").Command | null} */ this._command = null;
    /** @private the word the list was closed on by hand @type {string | null} */ this._dismissed = null;
    /** @private @type {ReturnType<typeof setTimeout> | undefined} */ this._saving = undefined;
    /** @private */ this._leave = () => this._save();
    new Watch(this, prefs);
  }

  /** @private @returns {HTMLTextAreaElement | null} */
  get _area() {
    return this.renderRoot.querySelector("textarea");
  }

  get value() {
    return this._area?.value ?? "";
  }

  set value(text) {
    const area = this._area;
    if (!area) return;
    area.value = text;
    this._changed();
  }

  focus() {
    this._area?.focus();
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("pagehide", this._leave);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("pagehide", this._leave);
    this._save();
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("commands") && this.hasUpdated) this._suggest();
    if (changed.has("draftKey") && this.hasUpdated) {
      const before = /** @type {string} */ (changed.get("draftKey"));
      this._save(before);
    }
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (!changed.has("draftKey")) return;
    const area = /** @type {HTMLTextAreaElement} */ (this._area);
    area.value = readDraft(this.draftKey);
    this._filled = area.value.trim() !== "";
    this._matches = [];
    this._command = commandOf(this.commands, area.value);
    this._grow();
  }

  /** The chat got its id: the draft follows. @param {string} key */
  rename(key) {
    this._save("");
    writeDraft(this.draftKey, "");
    writeDraft(key, this.value);
  }

  /** @private */
  _changed() {
    const filled = this.value.trim() !== "";
    if (filled !== this._filled) this._filled = filled;
    this._suggest();
    this._grow();
    clearTimeout(this._saving);
    this._saving = setTimeout(() => this._save(), SAVE_MS);
  }

  /** @private */
  _suggest() {
    const area = this._area;
    if (!area) return;
    const word = document.activeElement && this.shadowRoot?.activeElement === area ? typedCommand(area.value, area.selectionStart) : null;
    if (word !== this._dismissed) this._dismissed = null;
    const matches = word === null || this._dismissed !== null ? [] : matchingCommands(this.commands, word);
    const chosen = this._matches[this._at]?.name;
    this._matches = matches;
    this._at = Math.max(0, matches.findIndex((command) => command.name === chosen));
    if (matches.length && word === matches[0].name) this._at = 0;
    this._command = commandOf(this.commands, area.value);
  }

  /** @private */
  _closeList() {
    const area = this._area;
    this._dismissed = area ? typedCommand(area.value, area.selectionStart) : null;
    this._matches = [];
  }

  /** @private @param {import("../api/types.js").Command} command */
  _take(command) {
    const area = /** @type {HTMLTextAreaElement} */ (this._area);
    const rest = area.value.slice(area.selectionStart).trimStart();
    this.value = `/${command.name} ${rest}`;
    const caret = command.name.length + 2;
    area.focus();
    area.setSelectionRange(caret, caret);
    this._matches = [];
  }

  /** Keys of the open list. @private @param {KeyboardEvent} event @returns {boolean} whether the key was its */
  _listKeys(event) {
    const count = this._matches.length;
    if (!count || event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key === "ArrowDown") this._at = (this._at + 1) % count;
    else if (event.key === "ArrowUp") this._at = (this._at - 1 + count) % count;
    else if (event.key === "Escape") this._closeList();
    else if (event.key === "Tab" && !event.shiftKey) this._take(this._matches[this._at]);
    else if (event.key === "Enter" && !event.shiftKey) {
      // A name that is typed out needs no help: Enter means what it always means.
      const typed = typedCommand(this.value, this._area?.selectionStart ?? 0);
      if (typed === this._matches[this._at].name.toLowerCase()) {
        this._matches = [];
        return false;
      }
      this._take(this._matches[this._at]);
    } else return false;
    event.preventDefault();
    event.stopPropagation();
    void this.updateComplete.then(() => this.renderRoot.querySelector('[role="option"][aria-selected="true"]')?.scrollIntoView({ block: "nearest" }));
    return true;
  }

  /** @private @param {string} [key] */
  _save(key = this.draftKey) {
    clearTimeout(this._saving);
    if (key && this._area) writeDraft(key, this._area.value);
  }

  /** Grows with its text where the browser does not do it by itself. @private */
  _grow() {
    if (CSS.supports("field-sizing", "content")) return;
    const area = /** @type {HTMLTextAreaElement} */ (this._area);
    area.style.blockSize = "auto";
    area.style.blockSize = `${Math.min(area.scrollHeight, 260)}px`;
  }

  /** @private */
  _send() {
    const text = this.value;
    if (!text.trim() || this.disabled || this.blocked) return;
    if (!this.emit("sk-send", text)) return;
    this.value = "";
    this._save();
  }

  /** @private @param {KeyboardEvent} event */
  _keys(event) {
    // While an input method composes, Enter belongs to it. Safari reports its last Enter as key 229.
    if (event.isComposing || event.keyCode === 229) return;
    if (this._listKeys(event)) return;
    if (event.key !== "Enter" || event.shiftKey || event.altKey) return;
    const mod = event.metaKey || event.ctrlKey;
    const plainSends = prefs.get("sendKey") === "enter" && !matchMedia("(pointer: coarse)").matches;
    if (!mod && !plainSends) return;
    event.preventDefault();
    this._send();
  }

  render() {
    const hint =
      prefs.get("sendKey") === "enter" ? t("composer.hint_enter") : t("composer.hint_mod", { keys: showKeys("mod+enter") });
    const open = this._matches.length > 0;
    const hints = this._command?.hint && !open ? html`<p class="command"><code>/${this._command.name}</code> ${tt(this._command.hint)}</p>` : nothing;
    return html`${this._list()}
      <div class="box" @click=${(/** @type {MouseEvent} */ e) => e.target === e.currentTarget && this.focus()}>
        <textarea
          rows="1"
          dir="auto"
          aria-label=${t("composer.label")}
          aria-describedby="hint"
          role=${open ? "combobox" : nothing}
          aria-autocomplete="list"
          aria-haspopup=${open ? "listbox" : nothing}
          aria-expanded=${open ? "true" : nothing}
          aria-controls=${open ? "commands" : nothing}
          aria-activedescendant=${open ? `command-${this._at}` : nothing}
          placeholder=${this.placeholder || t("composer.placeholder")}
          enterkeyhint=${matchMedia("(pointer: coarse)").matches ? "enter" : "send"}
          ?disabled=${this.disabled}
          @input=${this._changed}
          @keydown=${this._keys}
          @keyup=${(/** @type {KeyboardEvent} */ e) => ["ArrowLeft", "ArrowRight", "Home", "End"].includes(e.key) && this._suggest()}
          @blur=${() => this._closeList()}
        ></textarea>
        ${hints}
        <div class="tools">
          <slot name="pills"></slot>
          <span class="space"></span>
          ${this.running
            ? html`<button class="round" ?disabled=${this.stopping} aria-label=${t("composer.stop")} title="${t("composer.stop")} (Esc)" @click=${() => this.emit("sk-stop")}>
                <sk-icon name="stop-fill"></sk-icon>
              </button>`
            : nothing}
          ${this.running && !this._filled
            ? nothing
            : html`<button
                class="round send"
                ?disabled=${!this._filled || this.disabled || this.blocked}
                aria-label=${this.running ? t("composer.queue") : t("composer.send")}
                title=${this.running ? t("composer.queue") : t("composer.send")}
                @click=${this._send}
              >
                <sk-icon name="arrow-up"></sk-icon>
              </button>`}
        </div>
      </div>
      <span id="hint" class="sr">${hint}</span>
      <span class="sr" role="status">${open ? t("composer.commands_found", { count: this._matches.length }) : ""}</span>`;
  }

  /** @private */
  _list() {
    if (!this._matches.length) return nothing;
    return html`<ul id="commands" role="listbox" aria-label=${t("composer.commands")}>
      ${this._matches.map(
        (command, at) =>
          html`<li
            id="command-${at}"
            role="option"
            aria-selected=${at === this._at ? "true" : "false"}
            @pointerdown=${(/** @type {Event} */ e) => e.preventDefault()}
            @pointermove=${() => (this._at = at)}
            @click=${() => this._take(command)}
          >
            <code>/${command.name}</code>
            <span class="title" dir="auto">${tt(command.title)}</span>
            ${command.hint ? html`<span class="faint" dir="auto">${tt(command.hint)}</span>` : nothing}
          </li>`,
      )}
    </ul>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
        position: relative;
      }
      ul {
        position: absolute;
        z-index: 20;
        inset-inline: 0;
        inset-block-end: calc(100% + var(--s1));
        list-style: none;
        margin: 0;
        padding: var(--s1);
        max-block-size: min(18rem, 45dvh);
        overflow-y: auto;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--float);
        box-shadow: var(--shadow);
      }
      li {
        display: flex;
        flex-wrap: wrap;
        align-items: baseline;
        gap: 0 var(--s3);
        min-block-size: var(--control);
        align-content: center;
        padding: var(--s1) var(--s3);
        border-radius: var(--radius-s);
        font-size: var(--size-s);
        line-height: 1.45;
        cursor: pointer;
      }
      li[aria-selected="true"] {
        background: var(--tint-strong);
      }
      code {
        font-family: var(--mono);
        font-size: 0.8125rem;
        font-weight: 600;
      }
      li .faint {
        font-size: var(--size-xs);
      }
      .command {
        padding: 0 var(--s4);
        color: var(--text-faint);
        font-size: var(--size-xs);
        cursor: text;
      }
      .box {
        border: 1px solid var(--line-strong);
        border-radius: var(--radius-l);
        background: var(--surface);
        cursor: text;
        transition: border-color var(--quick) var(--ease);
      }
      .box:has(textarea:focus-visible) {
        border-color: var(--focus);
      }
      textarea {
        display: block;
        inline-size: 100%;
        field-sizing: content;
        min-block-size: 1lh;
        max-block-size: min(16rem, 40dvh);
        padding: var(--s3) var(--s4) var(--s1);
        border: 0;
        background: none;
        resize: none;
        font-size: var(--size-m);
        line-height: 1.5;
      }
      textarea:focus-visible {
        outline: none;
      }
      textarea::placeholder {
        color: var(--text-faint);
        opacity: 1;
      }
      .tools {
        display: flex;
        align-items: center;
        gap: var(--s2);
        padding: var(--s1) var(--s2) var(--s2) var(--s2);
        cursor: default;
      }
      .space {
        flex: 1;
      }
      ::slotted(*) {
        min-inline-size: 0;
      }
      .round {
        display: inline-grid;
        place-items: center;
        flex: none;
        inline-size: var(--control);
        block-size: var(--control);
        padding: 0;
        border: 1px solid var(--line-strong);
        border-radius: 50%;
        background: var(--surface);
        cursor: pointer;
      }
      .round:hover {
        background: var(--tint);
      }
      .send {
        background: var(--accent);
        border-color: transparent;
        color: var(--on-accent);
      }
      .send:hover {
        background: var(--accent-hover);
      }
      .send:disabled {
        background: var(--tint-strong);
        color: var(--text-faint);
        cursor: default;
      }
    `,
  ];
}

customElements.define("sk-composer", SkComposer);

/** @param {string} key */
export function readDraft(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} key @param {string} text */
export function writeDraft(key, text) {
  try {
    if (text.trim()) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
  } catch {
    // storage is full or forbidden: the draft lives as long as the tab
  }
}
