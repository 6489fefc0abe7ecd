/** `<sk-profile-page>`: the person's own settings: account, language, password; look and keys of this browser. */
import { css, html, nothing } from "lit";
import { api, ApiError } from "../api/index.js";
import { i18n, LOCALE_NAMES, setLocale, t } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { prefs } from "../core/prefs.js";
import { guardLeaving } from "../core/router.js";
import { showKeys } from "../core/shortcuts.js";
import { Watch } from "../core/watch.js";
import { SkElement } from "../ui/base.js";
import { describeError } from "../ui/states.js";
import { toast, toastError } from "../ui/toast.js";
import "../ui/form.js";
import "../ui/page.js";
import "../ui/states.js";
import { roleName } from "./users/roles.js";
import "./sign-in.js";

export class SkProfilePage extends SkElement {
  static properties = { _busy: { state: true }, _errors: { state: true } };

  constructor() {
    super();
    this._busy = "";
    /** @type {Record<string, string>} */ this._errors = {};
    new Watch(this, app);
    new Watch(this, prefs);
    /** @private */ this._off = () => {};
  }

  connectedCallback() {
    super.connectedCallback();
    this._off = guardLeaving(() => /** @type {any} */ (this.renderRoot.querySelector("sk-form"))?.dirty ?? false);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this._off();
  }

  /** @private @param {CustomEvent} event */
  async _saveName(event) {
    this._busy = "name";
    try {
      app.me = await api.put("/api/auth/profile", { display_name: String(event.detail.display_name ?? "").trim() });
      app.dispatchEvent(new Event("change"));
      toast(t("state.saved"), { tone: "done", ms: 2500 });
    } catch (error) {
      toastError(error);
    }
    this._busy = "";
  }

  /** @private @param {string} locale */
  async _language(locale) {
    await setLocale(locale);
    try {
      app.signedIn(await api.put("/api/auth/profile", { locale }));
    } catch (error) {
      toastError(error);
    }
  }

  /** @private @param {Event} [event] */
  async _password(event) {
    event?.preventDefault();
    if (this._busy) return;
    /** @param {string} id @returns {import("./sign-in.js").SkPassword} */
    const field = (id) => /** @type {any} */ (this.renderRoot.querySelector(id));
    const [old, fresh, again] = [field("#old"), field("#new"), field("#again")];
    const min = app.setup.password_min;
    this._errors =
      old.value === ""
        ? { old: t("password.old_missing") }
        : [...fresh.value].length < min
          ? { new: t("password.short", { min }) }
          : fresh.value !== again.value
            ? { again: t("password.differ") }
            : {};
    if (Object.keys(this._errors).length) return;
    this._busy = "password";
    try {
      await api.post("/api/auth/password", { old: old.value, new: fresh.value }, { timeout: 120_000, quiet: true });
      for (const each of [old, fresh, again]) each.value = "";
      toast(t("password.changed"), { tone: "done" });
    } catch (error) {
      const code = error instanceof ApiError ? error.code : "";
      if (code === "bad_credentials" || code === "wrong_password") this._errors = { old: describeError(error) };
      else if (code === "weak_password") this._errors = { new: describeError(error) };
      else toastError(error);
    }
    this._busy = "";
  }

  /**
   * @private
   * @template {"theme" | "sendKey" | "steps"} K
   * @param {K} key @param {string} legend @param {[import("../core/prefs.js").Prefs[K], string][]} options
   */
  _choice(key, legend, options) {
    return html`<fieldset>
      <legend>${legend}</legend>
      <div class="options">
        ${options.map(
          ([value, label]) =>
            html`<label><input type="radio" name=${key} .checked=${prefs.get(key) === value} @change=${() => prefs.set(key, value)} /><span>${label}</span></label>`,
        )}
      </div>
    </fieldset>`;
  }

  render() {
    const { me } = app;
    if (!me) return nothing;
    const e = this._errors;
    return html`<sk-page .title=${t("nav.profile")} .purpose=${t("profile.purpose")}>
      <sk-card .heading=${t("profile.you")}>
        <sk-form
          .schema=${{
            properties: { display_name: { type: "string", title: t("profile.display_name"), description: t("profile.display_help"), maxLength: 100, minLength: 1 } },
            required: ["display_name"],
          }}
          .values=${this._values(me.display_name)}
          .submitLabel=${t("action.save")}
          .busy=${this._busy === "name"}
          @sk-submit=${this._saveName}
        ></sk-form>
        <dl>
          <div><dt>${t("login.username")}</dt><dd>${me.username}</dd></div>
          <div><dt>${t("profile.role")}</dt><dd>${roleName(me.role)}</dd></div>
          <div><dt>${t("profile.storage")}</dt><dd><sk-icon name=${me.encrypted ? "lock-fill" : "lock"}></sk-icon> ${me.encrypted ? t("profile.encrypted") : t("profile.plain")}</dd></div>
        </dl>
      </sk-card>
      <a class="onward" href="/profile/plugins">
        <sk-icon name="puzzle"></sk-icon>
        <span><strong>${t("nav.my_plugins")}</strong><span class="faint">${t("my.purpose")}</span></span>
        <sk-icon name="chevron-right"></sk-icon>
      </a>
      <sk-card .heading=${t("profile.look")}>
        <div class="stack">
          <div>
            <label class="label" for="locale">${t("profile.language")}</label>
            <select id="locale" class="field" @change=${(/** @type {Event} */ ev) => this._language(/** @type {HTMLSelectElement} */ (ev.target).value)}>
              ${Object.entries(LOCALE_NAMES).map(([code, name]) => html`<option value=${code} lang=${code} .selected=${i18n.locale === code}>${name}</option>`)}
            </select>
          </div>
          ${this._choice("theme", t("profile.theme"), [
            ["auto", t("profile.theme_auto")],
            ["light", t("profile.theme_light")],
            ["dark", t("profile.theme_dark")],
          ])}
          ${this._choice("sendKey", t("profile.send_key"), [
            ["enter", t("profile.send_enter", { keys: showKeys("shift+enter") })],
            ["mod-enter", t("profile.send_mod", { keys: showKeys("mod+enter") })],
          ])}
          ${this._choice("steps", t("profile.steps"), [
            ["folded", t("profile.steps_folded")],
            ["open", t("profile.steps_open")],
          ])}
          <p class="faint">${t("profile.here_only")}</p>
        </div>
      </sk-card>
      <sk-card .heading=${t("profile.password")}>
        <form @submit=${this._password} novalidate>
          <input class="sr" autocomplete="username" tabindex="-1" aria-hidden="true" .value=${me.username} readonly />
          <sk-password id="old" .label=${t("password.old")} .error=${e.old ?? ""} @sk-enter=${() => this._password()}></sk-password>
          <sk-password id="new" .label=${t("password.new")} autocomplete="new-password" .help=${t("password.rule", { min: app.setup.password_min })} .error=${e.new ?? ""} @sk-enter=${() => this._password()}></sk-password>
          <sk-password id="again" .label=${t("password.repeat")} autocomplete="new-password" .error=${e.again ?? ""} @sk-enter=${() => this._password()}></sk-password>
          <p class="faint">${me.encrypted ? t("password.note_encrypted") : t("password.note")}</p>
          <button class="btn" type="submit" ?disabled=${this._busy !== ""} aria-busy=${this._busy === "password" ? "true" : nothing}>${t("password.change")}</button>
        </form>
      </sk-card>
    </sk-page>`;
  }

  /** @private the same object for the same name, so that typing survives a redraw @param {string} name */
  _values(name) {
    if (this._held?.display_name !== name) this._held = { display_name: name };
    return this._held;
  }

  /** @private @type {{display_name: string} | null} */
  _held = null;

  static styles = [
    ...SkElement.styles,
    css`
      dl {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s2) var(--s8);
        margin: var(--s5) 0 0;
        font-size: var(--size-s);
      }
      dt {
        color: var(--text-faint);
        font-size: var(--size-xs);
      }
      dd {
        margin: 0;
      }
      .onward {
        display: flex;
        align-items: center;
        gap: var(--s3);
        padding: var(--s4) var(--s5);
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
        color: var(--text);
        text-decoration: none;
      }
      .onward:hover {
        background: var(--tint);
      }
      .onward > span {
        flex: 1;
        display: flex;
        flex-direction: column;
        line-height: 1.45;
      }
      .onward strong {
        font-weight: 650;
      }
      .onward sk-icon {
        color: var(--text-soft);
      }
      :host(:dir(rtl)) .onward > sk-icon:last-child {
        scale: -1 1;
      }
      .stack,
      form {
        display: flex;
        flex-direction: column;
        gap: var(--s5);
        max-inline-size: 34rem;
      }
      form {
        gap: var(--s4);
      }
      form .btn {
        align-self: flex-start;
      }
      select {
        max-inline-size: 16rem;
      }
      fieldset {
        margin: 0;
        padding: 0;
        border: 0;
      }
      legend,
      .label {
        display: block;
        padding: 0;
        margin-block-end: var(--s1);
        font-size: var(--size-s);
        font-weight: 550;
      }
      .options {
        display: flex;
        flex-wrap: wrap;
        gap: var(--s1) var(--s5);
      }
      .options label {
        display: inline-flex;
        align-items: center;
        gap: var(--s2);
        min-block-size: 2rem;
        font-size: var(--size-s);
        cursor: pointer;
      }
      @media (pointer: coarse) {
        .options label {
          min-block-size: 2.75rem;
        }
      }
      input[type="radio"] {
        accent-color: var(--accent);
      }
    `,
  ];
}

customElements.define("sk-profile-page", SkProfilePage);
