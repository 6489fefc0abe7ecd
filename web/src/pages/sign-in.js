/** `<sk-setup-page>`, `<sk-login-page>`, and `<sk-relogin>`, the question for the password over a page whose session ended. */
import { css, html, nothing } from "lit";
import { api, ApiError } from "../api/index.js";
import { i18n, LOCALE_NAMES, setLocale, t } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import "../ui/button.js";
import "../ui/dialog.js";
import "../ui/icon.js";
import "../ui/states.js";

const look = css`
  :host {
    display: block;
    block-size: 100%;
    overflow-y: auto;
  }
  main {
    display: grid;
    min-block-size: 100%;
    place-items: center;
    padding: var(--s6) var(--s4);
  }
  .sheet {
    inline-size: min(26rem, 100%);
    display: flex;
    flex-direction: column;
    gap: var(--s5);
  }
  h1 {
    font-size: var(--size-xl);
    line-height: var(--leading-tight);
    font-weight: 650;
    letter-spacing: -0.015em;
  }
  form {
    display: flex;
    flex-direction: column;
    gap: var(--s4);
  }
  label {
    display: block;
    margin-block-end: var(--s1);
    font-size: var(--size-s);
    font-weight: 550;
  }
  .row p {
    margin-block-start: var(--s1);
    line-height: 1.45;
  }
  .error {
    color: var(--fail);
    font-size: var(--size-s);
  }
  .btn.primary {
    min-block-size: 2.75rem;
    font-size: var(--size-m);
  }
  .field {
    min-block-size: 2.75rem;
    font-size: var(--size-m);
  }
  .locales {
    display: flex;
    flex-wrap: wrap;
    justify-content: center;
    gap: var(--s1);
    font-size: var(--size-s);
  }
  .locales .btn {
    font-weight: 400;
    color: var(--text-soft);
  }
  .locales .btn[aria-pressed="true"] {
    background: var(--tint);
    color: var(--text);
    font-weight: 550;
  }
  fieldset {
    margin: 0;
    padding: 0;
    border: 0;
    display: flex;
    flex-direction: column;
    gap: var(--s2);
  }
  legend {
    padding: 0;
    margin-block-end: var(--s2);
    font-size: var(--size-s);
    font-weight: 550;
  }
  .choice {
    display: flex;
    gap: var(--s3);
    margin: 0;
    padding: var(--s3) var(--s4);
    border: 1px solid var(--line);
    border-radius: var(--radius-m);
    background: var(--surface);
    font-weight: 400;
    cursor: pointer;
  }
  .choice:has(:checked) {
    border-color: var(--accent);
    box-shadow: inset 0 0 0 1px var(--accent);
  }
  .choice:has(:focus-visible) {
    outline: 2px solid var(--focus);
    outline-offset: 2px;
  }
  .choice input {
    flex: none;
    margin-block: 0.25rem 0;
    accent-color: var(--accent);
    outline: none;
  }
  .choice strong {
    font-weight: 600;
  }
  .choice span {
    display: block;
    line-height: 1.45;
  }
  .reveal {
    position: relative;
  }
  .reveal .field {
    padding-inline-end: 3rem;
  }
  .reveal button {
    position: absolute;
    inset-block: 0.25rem;
    inset-inline-end: 0.25rem;
    inline-size: 2.5rem;
    min-block-size: 0;
  }
`;

/** The languages, before anyone is known. */
function locales() {
  return html`<div class="locales" role="group" aria-label=${t("profile.language")}>
    ${Object.entries(LOCALE_NAMES).map(
      ([code, name]) =>
        html`<button class="btn plain small" lang=${code} aria-pressed=${i18n.locale === code ? "true" : "false"} type="button" @click=${() => setLocale(code)}>
          ${name}
        </button>`,
    )}
  </div>`;
}

/** How long to wait, for `too_many_attempts`. @param {unknown} error */
function signInError(error) {
  if (error instanceof ApiError && error.code === "too_many_attempts" && !error.detail) {
    return t("login.too_many", { time: i18n.duration(Number(error.body.retry_after ?? 60) * 1000) });
  }
  return describeError(error);
}

/** A password field that can be looked at. */
export class SkPassword extends SkElement {
  static formAssociated = true;
  static shadowRootOptions = { ...SkElement.shadowRootOptions, delegatesFocus: true };
  static properties = { label: {}, autocomplete: {}, help: {}, error: {}, _shown: { state: true } };

  constructor() {
    super();
    this.label = "";
    this.autocomplete = "current-password";
    this.help = "";
    this.error = "";
    this._shown = false;
  }

  get value() {
    return /** @type {HTMLInputElement | null} */ (this.renderRoot.querySelector("input"))?.value ?? "";
  }

  set value(text) {
    const input = /** @type {HTMLInputElement | null} */ (this.renderRoot.querySelector("input"));
    if (input) input.value = text;
  }

  render() {
    return html`<div class="row">
      <label for="p">${this.label}</label>
      <div class="reveal">
        <input
          id="p"
          class="field"
          type=${this._shown ? "text" : "password"}
          autocomplete=${/** @type {any} */ (this.autocomplete)}
          autocapitalize="off"
          spellcheck="false"
          required
          aria-invalid=${this.error ? "true" : nothing}
          aria-describedby=${this.error ? "e" : this.help ? "h" : nothing}
          @input=${() => this.emit("sk-input", this.value)}
          @keydown=${(/** @type {KeyboardEvent} */ e) => {
            if (e.key === "Enter" && !e.isComposing) this.emit("sk-enter");
          }}
        />
        <button class="btn plain icon" type="button" aria-pressed=${this._shown ? "true" : "false"} aria-label=${t("login.show_password")} title=${t("login.show_password")} @click=${() => (this._shown = !this._shown)}>
          <sk-icon name=${this._shown ? "eye-slash" : "eye"}></sk-icon>
        </button>
      </div>
      ${this.error ? html`<p class="error" id="e" role="alert">${this.error}</p>` : this.help ? html`<p class="faint" id="h">${this.help}</p>` : nothing}
    </div>`;
  }

  static styles = [
    ...SkElement.styles,
    look,
    css`
      :host {
        block-size: auto;
        overflow: visible;
      }
    `,
  ];
}

customElements.define("sk-password", SkPassword);

/** The token of the set-up link. It is in the fragment, which is never sent to a server; it goes in the request's body. */
function setupToken() {
  return new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
}

export class SkSetupPage extends SkElement {
  static properties = { _busy: { state: true }, _problem: { state: true }, _errors: { state: true }, _encrypted: { state: true }, _token: { state: true } };

  constructor() {
    super();
    this._busy = false;
    this._problem = "";
    /** @type {Record<string, string>} */ this._errors = {};
    this._encrypted = true;
    this._token = setupToken();
    /** @private */ this._hash = () => (this._token = setupToken() || this._token);
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("hashchange", this._hash);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("hashchange", this._hash);
  }

  /** @private @param {string} selector @returns {any} */
  _get(selector) {
    return this.renderRoot.querySelector(selector);
  }

  /** @private @param {Event} [event] */
  async _submit(event) {
    event?.preventDefault();
    if (this._busy) return;
    const username = this._get("#username").value.trim();
    const password = this._get("#password").value;
    const repeat = this._get("#repeat").value;
    const min = app.setup.password_min;
    /** @type {Record<string, string>} */
    const errors = {};
    if (!username) errors.username = t("setup.username_missing");
    if ([...password].length < min) errors.password = t("password.short", { min });
    else if (password !== repeat) errors.repeat = t("password.differ");
    if (!this._token) errors.token = t("setup.token_missing");
    this._errors = errors;
    this._problem = "";
    if (Object.keys(errors).length) {
      await this.updateComplete;
      this._get(`#${Object.keys(errors)[0]}`)?.focus();
      return;
    }
    this._busy = true;
    try {
      const me = await api.post(
        "/api/setup",
        { token: this._token, username, display_name: this._get("#display").value.trim() || username, password, encrypted: this._encrypted, locale: i18n.locale },
        { timeout: 120_000 },
      );
      history.replaceState(history.state, "", "/");
      app.signedIn(me);
    } catch (error) {
      const code = error instanceof ApiError ? error.code : "";
      const words = describeError(error);
      if (code === "weak_password") this._errors = { password: words };
      else if (code === "bad_username" || code === "username_taken") this._errors = { username: words };
      else if (code === "setup_token") this._errors = { token: words };
      else if (code === "already_set_up") {
        this._problem = words;
        setTimeout(() => app.start(), 2500);
      } else this._problem = words;
    }
    this._busy = false;
  }

  render() {
    const e = this._errors;
    const min = app.setup.password_min;
    return html`<main>
      <div class="sheet">
        <div>
          <h1>${t("setup.title")}</h1>
          <p class="soft">${t("setup.text")}</p>
        </div>
        <form @submit=${this._submit} novalidate>
          ${setupToken() && !e.token
            ? nothing
            : html`<div class="row">
                <label for="token">${t("setup.token")}</label>
                <input
                  id="token"
                  class="field"
                  autocomplete="off"
                  spellcheck="false"
                  .value=${this._token}
                  aria-invalid=${e.token ? "true" : nothing}
                  aria-describedby="token-help"
                  @input=${(/** @type {Event} */ ev) => (this._token = /** @type {HTMLInputElement} */ (ev.target).value.trim())}
                />
                <p id="token-help" class=${e.token ? "error" : "faint"} role=${e.token ? "alert" : nothing}>${e.token ?? t("setup.token_help")}</p>
              </div>`}
          <div class="row">
            <label for="username">${t("login.username")}</label>
            <input id="username" class="field" autocomplete="username" autocapitalize="off" spellcheck="false" required aria-invalid=${e.username ? "true" : nothing} aria-describedby="username-help" />
            <p id="username-help" class=${e.username ? "error" : "faint"} role=${e.username ? "alert" : nothing}>${e.username ?? t("setup.username_help")}</p>
          </div>
          <div class="row">
            <label for="display">${t("profile.display_name")}</label>
            <input id="display" class="field" autocomplete="name" aria-describedby="display-help" dir="auto" />
            <p id="display-help" class="faint">${t("setup.display_help")}</p>
          </div>
          <sk-password id="password" .label=${t("login.password")} autocomplete="new-password" .help=${t("password.rule", { min })} .error=${e.password ?? ""} @sk-enter=${() => this._submit()}></sk-password>
          <sk-password id="repeat" .label=${t("password.repeat")} autocomplete="new-password" .error=${e.repeat ?? ""} @sk-enter=${() => this._submit()}></sk-password>
          <fieldset>
            <legend>${t("setup.privacy")}</legend>
            <label class="choice">
              <input type="radio" name="encrypted" .checked=${this._encrypted} @change=${() => (this._encrypted = true)} />
              <span><strong>${t("setup.encrypted")}</strong><span class="faint">${t("setup.encrypted_help")}</span></span>
            </label>
            <label class="choice">
              <input type="radio" name="encrypted" .checked=${!this._encrypted} @change=${() => (this._encrypted = false)} />
              <span><strong>${t("setup.plain")}</strong><span class="faint">${t("setup.plain_help")}</span></span>
            </label>
          </fieldset>
          ${this._problem ? html`<sk-error .text=${this._problem}></sk-error>` : nothing}
          <button class="btn primary" type="submit" ?disabled=${this._busy} aria-busy=${this._busy ? "true" : nothing}>${this._busy ? t("setup.working") : t("setup.create")}</button>
        </form>
        ${locales()}
      </div>
    </main>`;
  }

  static styles = [...SkElement.styles, look];
}

customElements.define("sk-setup-page", SkSetupPage);

/**
 * @param {string} username @param {string} password
 */
async function signIn(username, password) {
  app.signedIn(await api.post("/api/auth/login", { username, password }, { quiet: true, timeout: 120_000 }));
}

export class SkLoginPage extends SkElement {
  static properties = { _busy: { state: true }, _problem: { state: true } };

  constructor() {
    super();
    this._busy = false;
    this._problem = "";
  }

  firstUpdated() {
    /** @type {HTMLElement} */ (this.renderRoot.querySelector("#username")).focus();
  }

  /** @private @param {Event} [event] */
  async _submit(event) {
    event?.preventDefault();
    if (this._busy) return;
    const username = /** @type {HTMLInputElement} */ (this.renderRoot.querySelector("#username")).value.trim();
    const field = /** @type {SkPassword} */ (this.renderRoot.querySelector("#password"));
    if (!username || !field.value) {
      this._problem = t("login.missing");
      return;
    }
    this._busy = true;
    this._problem = "";
    try {
      await signIn(username, field.value);
    } catch (error) {
      this._problem = signInError(error);
      if (error instanceof ApiError && error.code === "bad_credentials") field.focus();
    }
    this._busy = false;
  }

  render() {
    return html`<main>
      <div class="sheet">
        <h1>${t("login.title")}</h1>
        <form @submit=${this._submit} novalidate>
          <div class="row">
            <label for="username">${t("login.username")}</label>
            <input id="username" class="field" autocomplete="username" autocapitalize="off" spellcheck="false" required />
          </div>
          <sk-password id="password" .label=${t("login.password")} @sk-enter=${() => this._submit()}></sk-password>
          ${this._problem ? html`<sk-error .text=${this._problem}></sk-error>` : nothing}
          <button class="btn primary" type="submit" ?disabled=${this._busy} aria-busy=${this._busy ? "true" : nothing}>${this._busy ? t("login.working") : t("login.sign_in")}</button>
        </form>
        ${locales()}
      </div>
    </main>`;
  }

  static styles = [...SkElement.styles, look];
}

customElements.define("sk-login-page", SkLoginPage);

export class SkRelogin extends SkElement {
  static properties = { _busy: { state: true }, _problem: { state: true } };

  constructor() {
    super();
    this._busy = false;
    this._problem = "";
    new Watch(this, app);
  }

  firstUpdated() {
    setTimeout(() => /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("sk-password"))?.focus());
  }

  /** @private */
  async _submit() {
    const field = /** @type {SkPassword} */ (this.renderRoot.querySelector("sk-password"));
    if (this._busy || !field.value) return;
    this._busy = true;
    this._problem = "";
    try {
      await signIn(app.me?.username ?? "", field.value);
    } catch (error) {
      this._problem = signInError(error);
      field.focus();
    }
    this._busy = false;
  }

  render() {
    return html`<sk-dialog .heading=${t("relogin.title")} .open=${true} .locked=${true}>
      <form @submit=${(/** @type {Event} */ e) => (e.preventDefault(), this._submit())}>
        <p class="soft">${t("relogin.text", { name: app.me?.display_name || app.me?.username || "" })}</p>
        <input class="sr" autocomplete="username" tabindex="-1" aria-hidden="true" .value=${app.me?.username ?? ""} readonly />
        <sk-password .label=${t("login.password")} .error=${this._problem} @sk-enter=${() => this._submit()}></sk-password>
      </form>
      <sk-button slot="actions" @click=${() => app.signOut()}>${t("relogin.other")}</sk-button>
      <sk-button slot="actions" variant="primary" ?busy=${this._busy} @click=${() => this._submit()}>${t("login.sign_in")}</sk-button>
    </sk-dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s4);
      }
    `,
  ];
}

customElements.define("sk-relogin", SkRelogin);
