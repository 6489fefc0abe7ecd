/** What every element of the app shares: the controls' look, focus, motion, and redrawing when the language changes. */
import { LitElement, css } from "lit";
import { LocaleController } from "../i18n/index.js";

/** Buttons, fields and small text, as classes; import it into an element's `static styles`. */
export const controls = css`
  *,
  *::before,
  *::after {
    box-sizing: border-box;
  }
  :host([hidden]),
  [hidden] {
    display: none !important;
  }
  button,
  input,
  select,
  textarea {
    font: inherit;
    letter-spacing: inherit;
    color: inherit;
  }
  h1,
  h2,
  h3,
  h4,
  p {
    margin: 0;
  }
  a {
    color: var(--accent-text);
    text-underline-offset: 3px;
  }
  :focus-visible {
    outline: 2px solid var(--focus);
    outline-offset: 2px;
  }
  .sr {
    position: absolute;
    inline-size: 1px;
    block-size: 1px;
    overflow: hidden;
    clip-path: inset(50%);
    white-space: nowrap;
  }
  .btn {
    display: inline-flex;
    align-items: center;
    justify-content: center;
    gap: var(--s2);
    min-block-size: var(--control);
    padding: 0 var(--s4);
    border: 1px solid var(--line);
    border-radius: var(--radius-s);
    background: var(--surface);
    color: var(--text);
    font-size: var(--size-s);
    font-weight: 550;
    line-height: 1.25;
    text-decoration: none;
    white-space: nowrap;
    cursor: pointer;
    transition: background var(--quick) var(--ease);
  }
  .btn:hover {
    background: var(--tint);
  }
  .btn.primary {
    background: var(--accent);
    border-color: transparent;
    color: var(--on-accent);
  }
  .btn.primary:hover {
    background: var(--accent-hover);
  }
  .btn.danger {
    color: var(--fail);
  }
  .btn.danger:hover {
    background: var(--fail-soft);
  }
  .btn.plain {
    background: none;
    border-color: transparent;
  }
  .btn.plain:hover {
    background: var(--tint);
  }
  .btn.small {
    min-block-size: 1.875rem;
    padding: 0 var(--s3);
  }
  .btn.icon {
    padding: 0;
    inline-size: var(--control);
    flex: none;
  }
  .btn.icon.small {
    inline-size: 1.875rem;
  }
  .btn:disabled,
  .btn[aria-disabled="true"] {
    cursor: default;
    background: var(--tint);
    border-color: transparent;
    color: var(--text-faint);
  }
  @media (pointer: coarse) {
    .btn.small,
    .btn.icon.small {
      min-block-size: 2.75rem;
      min-inline-size: 2.75rem;
    }
  }
  .field {
    display: block;
    inline-size: 100%;
    min-block-size: var(--control);
    padding: var(--s1) var(--s3);
    border: 1px solid var(--line-strong);
    border-radius: var(--radius-s);
    background: var(--surface);
    font-size: max(var(--size-s), 0.875rem);
    line-height: 1.4;
  }
  @media (pointer: coarse) {
    .field {
      font-size: var(--size-m);
    }
  }
  .field::placeholder {
    color: var(--text-faint);
    opacity: 1;
  }
  .field:focus-visible {
    outline-offset: -1px;
  }
  .field[aria-invalid="true"] {
    border-color: var(--fail);
  }
  textarea.field {
    padding-block: var(--s2);
    resize: vertical;
  }
  .faint {
    color: var(--text-faint);
    font-size: var(--size-s);
  }
  .soft {
    color: var(--text-soft);
  }
  .chip {
    display: inline-flex;
    align-items: center;
    gap: var(--s1);
    padding: 0.1rem var(--s2);
    border-radius: 999px;
    background: var(--tint);
    color: var(--text-soft);
    font-size: var(--size-xs);
    font-weight: 550;
    line-height: 1.5;
    white-space: nowrap;
  }
  .chip.wait {
    background: var(--wait-soft);
    color: var(--wait);
  }
  .chip.done {
    background: var(--done-soft);
    color: var(--done);
  }
  .chip.fail {
    background: var(--fail-soft);
    color: var(--fail);
  }
  .chip.run {
    background: var(--run-soft);
    color: var(--run);
  }
  kbd {
    font-family: var(--font);
    font-size: var(--size-xs);
    padding: 0.05rem 0.35rem;
    border: 1px solid var(--line);
    border-block-end-width: 2px;
    border-radius: 5px;
    color: var(--text-soft);
    background: var(--surface);
  }
  pre.raw {
    margin: 0;
    padding: var(--s3);
    border-radius: var(--radius-s);
    background: var(--sunken);
    font-family: var(--mono);
    font-size: 0.8125rem;
    line-height: 1.5;
    white-space: pre-wrap;
    overflow-wrap: anywhere;
    overflow-y: auto;
    max-block-size: 24rem;
  }
  @media (prefers-reduced-motion: reduce) {
    *,
    *::before,
    *::after {
      animation-duration: 0.01ms !important;
      animation-iteration-count: 1 !important;
      transition-duration: 0.01ms !important;
      scroll-behavior: auto !important;
    }
  }
`;

/** A Lit element with the app's controls that redraws when the language changes. */
export class SkElement extends LitElement {
  static styles = [controls];

  constructor() {
    super();
    new LocaleController(this);
  }

  /**
   * Tell the outside; crosses shadow roots.
   * @param {string} type @param {unknown} [detail]
   */
  emit(type, detail) {
    return this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true, cancelable: true }));
  }
}

/** The focused element, looking through shadow roots. */
export function deepActive() {
  let active = document.activeElement;
  while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
  return active;
}

/** Whether typing now would enter text. @param {Element | null} [element] */
export function isEditing(element = deepActive()) {
  if (!(element instanceof HTMLElement)) return false;
  if (element.isContentEditable || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement) return true;
  return element instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit", "range"].includes(element.type);
}
