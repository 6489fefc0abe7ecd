/** The dialogs of the users page: add an account, give a new password, delete one. Each fires `sk-done` and `sk-close`. */
import { css, html, nothing } from "lit";
import { api, ApiError } from "../../api/index.js";
import { i18n, LOCALE_NAMES, LOCALES, t } from "../../i18n/index.js";
import { app } from "../../core/app-state.js";
import { SkElement } from "../../ui/base.js";
import { describeError } from "../../ui/states.js";
import { ROLES, roleName } from "./roles.js";
import "../../ui/dialog.js";
import "../../ui/states.js";

/** @typedef {import("../../api/types.js").User} User */

/** What the three have in common: fields with errors, one act, and a refusal told in place. */
class UserDialog extends SkElement {
  static properties = { user: { attribute: false }, roles: { attribute: false }, _errors: { state: true }, _problem: { state: true }, _busy: { state: true } };

  constructor() {
    super();
    /** whose account @type {User | null} */ this.user = null;
    /** @type {string[]} */ this.roles = ROLES;
    /** field → sentence @type {Record<string, string>} */ this._errors = {};
    this._problem = "";
    this._busy = false;
  }

  /** @protected @param {string} name */
  field(name) {
    return /** @type {HTMLInputElement} */ (this.renderRoot.querySelector(`#${name}`));
  }

  /**
   * @protected
   * @param {() => Promise<unknown>} act @param {Record<string, string>} fieldOf  error code → field
   */
  async run(act, fieldOf) {
    this._busy = true;
    this._problem = "";
    try {
      const result = await act();
      this.emit("sk-done", result);
      return true;
    } catch (error) {
      const field = error instanceof ApiError ? fieldOf[error.code] : undefined;
      if (field) this.fail({ [field]: describeError(error) });
      else this._problem = describeError(error);
      return false;
    } finally {
      this._busy = false;
    }
  }

  /** @protected @param {Record<string, string>} errors */
  fail(errors) {
    this._errors = errors;
    const first = Object.keys(errors)[0];
    if (first) void this.updateComplete.then(() => this.field(first)?.focus());
    return Object.keys(errors).length > 0;
  }

  /** @protected @param {string} name @param {string} label @param {Record<string, any>} [options] */
  input(name, label, { type = "text", help = "", autocomplete = "off", value = "", oninput = undefined } = {}) {
    const error = this._errors[name] ?? "";
    const described = [help ? `${name}-help` : "", error ? `${name}-error` : ""].filter(Boolean).join(" ");
    return html`<div>
      <label for=${name}>${label}</label>
      <input
        class="field"
        id=${name}
        type=${type}
        autocomplete=${autocomplete}
        autocapitalize="off"
        spellcheck="false"
        aria-invalid=${error ? "true" : nothing}
        aria-describedby=${described || nothing}
        .value=${value}
        @input=${oninput}
      />
      ${help ? html`<p class="faint" id="${name}-help">${help}</p>` : nothing}
      ${error ? html`<p class="error" id="${name}-error" role="alert">${error}</p>` : nothing}
    </div>`;
  }

  /** @protected @param {string} heading @param {unknown} body @param {string} act @param {{danger?: boolean, disabled?: boolean}} [options] */
  frame(heading, body, act, { danger = false, disabled = false } = {}) {
    return html`<sk-dialog .heading=${heading} .open=${true}>
      <form
        id="form"
        novalidate
        @submit=${(/** @type {Event} */ e) => {
          e.preventDefault();
          if (!this._busy && !disabled) void this.submit();
        }}
      >
        ${body} ${this._problem ? html`<sk-notice tone="fail">${this._problem}</sk-notice>` : nothing}
        <button type="submit" hidden></button>
      </form>
      <sk-button slot="actions" @click=${() => this.dispatchEvent(new CustomEvent("sk-close"))}>${t("action.cancel")}</sk-button>
      <sk-button
        slot="actions"
        .variant=${danger ? "danger" : "primary"}
        ?busy=${this._busy}
        ?disabled=${disabled}
        @click=${() => /** @type {HTMLFormElement} */ (this.renderRoot.querySelector("#form")).requestSubmit()}
        >${act}</sk-button
      >
    </sk-dialog>`;
  }

  /** @protected @returns {Promise<unknown>} */
  async submit() {
    return undefined;
  }

  firstUpdated() {
    // The dialog's own closing (Esc, the cross) is this element's.
    this.renderRoot.querySelector("sk-dialog")?.addEventListener("sk-close", () => this.dispatchEvent(new CustomEvent("sk-close")));
  }

  static styles = [
    ...SkElement.styles,
    css`
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s4);
      }
      label,
      legend {
        display: block;
        padding: 0;
        font-size: var(--size-s);
        font-weight: 550;
        margin-block-end: var(--s1);
      }
      fieldset {
        margin: 0;
        padding: 0;
        border: 0;
        min-inline-size: 0;
      }
      form p {
        margin-block-start: var(--s1);
        line-height: 1.45;
      }
      .error {
        color: var(--fail);
        font-size: var(--size-s);
      }
      .option {
        display: flex;
        align-items: flex-start;
        gap: var(--s2);
        margin-block-end: var(--s2);
        font-weight: 400;
        cursor: pointer;
      }
      .option input {
        margin-block-start: 0.3rem;
        accent-color: var(--accent);
      }
      .option .faint {
        display: block;
        line-height: 1.45;
      }
      .two {
        display: grid;
        grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
        gap: var(--s4);
      }
    `,
  ];
}

export class SkUserAdd extends UserDialog {
  static properties = { ...UserDialog.properties, _encrypted: { state: true } };

  constructor() {
    super();
    this._encrypted = true;
  }

  /** @protected */
  async submit() {
    const username = this.field("username").value.trim();
    const password = this.field("password").value;
    const min = app.setup.password_min;
    if (
      this.fail({
        ...(username ? {} : { username: t("setup.username_missing") }),
        ...([...password].length < min ? { password: t("password.short", { min }) } : {}),
      })
    )
      return;
    const body = {
      username,
      display_name: this.field("display_name").value.trim(),
      password,
      role: /** @type {any} */ (this.field("role")).value,
      locale: /** @type {any} */ (this.field("locale")).value,
      encrypted: this._encrypted,
    };
    await this.run(() => api.post("/api/users", body, { timeout: 120_000 }), {
      username_taken: "username",
      bad_username: "username",
      weak_password: "password",
    });
  }

  /** @private @param {boolean} value @param {string} label @param {string} help */
  _option(value, label, help) {
    return html`<label class="option">
      <input type="radio" name="encrypted" .checked=${this._encrypted === value} @change=${() => (this._encrypted = value)} />
      <span>${label}<span class="faint">${help}</span></span>
    </label>`;
  }

  render() {
    return this.frame(
      t("users.add"),
      html`${this.input("username", t("login.username"), { help: t("setup.username_help") })} ${this.input("display_name", t("profile.display_name"))}
        ${this.input("password", t("users.first_password"), { type: "password", autocomplete: "new-password", help: t("users.first_password_help", { min: app.setup.password_min }) })}
        <div class="two">
          <div>
            <label for="role">${t("profile.role")}</label>
            <select class="field" id="role">
              ${this.roles.map((role) => html`<option value=${role} .selected=${role === "member"}>${roleName(role)}</option>`)}
            </select>
          </div>
          <div>
            <label for="locale">${t("profile.language")}</label>
            <select class="field" id="locale">
              ${LOCALES.map((locale) => html`<option value=${locale} lang=${locale} .selected=${locale === i18n.locale}>${LOCALE_NAMES[locale]}</option>`)}
            </select>
          </div>
        </div>
        <fieldset>
          <legend>${t("users.privacy")}</legend>
          ${this._option(true, t("users.encrypted"), t("users.encrypted_help"))} ${this._option(false, t("setup.plain"), t("users.plain_help"))}
        </fieldset>`,
      t("users.create"),
    );
  }
}

customElements.define("sk-user-add", SkUserAdd);

export class SkUserPassword extends UserDialog {
  /** @protected */
  async submit() {
    const fresh = this.field("fresh").value;
    const min = app.setup.password_min;
    if (this.fail([...fresh].length < min ? { fresh: t("password.short", { min }) } : {})) return;
    await this.run(() => api.post(`/api/users/${this.user?.id}/password`, { new: fresh }, { timeout: 120_000 }), { weak_password: "fresh" });
  }

  render() {
    return this.frame(
      t("users.reset_of", { name: this.user?.display_name || this.user?.username || "" }),
      html`<p class="soft">${t("users.reset_text")}</p>
        ${this.input("fresh", t("password.new"), { type: "password", autocomplete: "new-password", help: t("users.first_password_help", { min: app.setup.password_min }) })}`,
      t("users.reset"),
    );
  }
}

customElements.define("sk-user-password", SkUserPassword);

export class SkUserDelete extends UserDialog {
  static properties = { ...UserDialog.properties, _typed: { state: true } };

  constructor() {
    super();
    this._typed = "";
  }

  /** @protected */
  async submit() {
    const password = this.field("password").value;
    if (this.fail(password ? {} : { password: t("flow.password_missing") })) return;
    await this.run(() => api.delete(`/api/users/${this.user?.id}`, { body: { password }, timeout: 120_000 }), {
      bad_password: "password",
      bad_credentials: "password",
    });
  }

  render() {
    const name = this.user?.username ?? "";
    return this.frame(
      t("users.delete_of", { name: this.user?.display_name || name }),
      html`<sk-notice tone="fail" icon="trash">${t("users.delete_text")}</sk-notice>
        ${this.input("typed", t("flow.type", { word: name }), { value: this._typed, oninput: (/** @type {Event} */ e) => (this._typed = /** @type {HTMLInputElement} */ (e.target).value) })}
        <input class="sr" autocomplete="username" tabindex="-1" aria-hidden="true" .value=${app.me?.username ?? ""} readonly />
        ${this.input("password", t("flow.password"), { type: "password", autocomplete: "current-password" })}`,
      t("users.delete"),
      { danger: true, disabled: this._typed.trim() !== name },
    );
  }
}

customElements.define("sk-user-delete", SkUserDelete);
