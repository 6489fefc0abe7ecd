/** `<sk-composer>`: where a person writes. Fires `sk-send` (detail: the text), `sk-stop`. Keeps the draft of each chat. */
import { css, html, nothing } from "lit";
import { t } from "../i18n/index.js";
import { prefs } from "../core/prefs.js";
import { showKeys } from "../core/shortcuts.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
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
    _filled: { state: true },
  };

  constructor() {
    super();
    /** where the draft is kept; changing it swaps the text */ this.draftKey = "";
    this.running = false;
    this.stopping = false;
    this.disabled = false;
    /** writing is possible, sending is not, e.g. without a model */ this.blocked = false;
    this.placeholder = "";
    this._filled = false;
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
    this._grow();
    clearTimeout(this._saving);
    this._saving = setTimeout(() => this._save(), SAVE_MS);
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
    return html`<div class="box" @click=${(/** @type {MouseEvent} */ e) => e.target === e.currentTarget && this.focus()}>
        <textarea
          rows="1"
          dir="auto"
          aria-label=${t("composer.label")}
          aria-describedby="hint"
          placeholder=${this.placeholder || t("composer.placeholder")}
          enterkeyhint=${matchMedia("(pointer: coarse)").matches ? "enter" : "send"}
          ?disabled=${this.disabled}
          @input=${this._changed}
          @keydown=${this._keys}
        ></textarea>
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
      <span id="hint" class="sr">${hint}</span>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      :host {
        display: block;
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
