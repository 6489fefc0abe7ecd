/** The page "Approval rules": the rules in the order they are tried, an editor, and "would this run?". */
import { css, html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { describeError, SkElement, toast, toastError, undoable } from "@skald/ui";
import { onEvent, onReconnect, pluginApi } from "@skald/api";
import { t as translate } from "@skald/i18n";

const PREFIX = "plugin.approval.";

/** @param {string} key @param {Record<string, string | number>} [params] */
const t = (key, params) => translate(PREFIX + key, params);

/**
 * @typedef {object} Rule
 * @property {string} id
 * @property {number} priority
 * @property {string | null} agent
 * @property {string} tool
 * @property {string | null} path
 * @property {"allow" | "require" | "deny"} action
 * @property {string} note
 */

const ACTIONS = ["allow", "require", "deny"];
const SCOPES = ["read", "write", "exec"];
const LOOK = /** @type {Record<string, {tone: string, icon: string}>} */ ({
  allow: { tone: "done", icon: "check-circle" },
  require: { tone: "wait", icon: "question-circle" },
  deny: { tone: "fail", icon: "slash-circle" },
});

/** What a tool pattern means in words. @param {string} tool */
function toolWords(tool) {
  if (tool === "*") return t("rules.everything");
  return tool.startsWith("@") ? t(`rules.class.${tool}`) : tool;
}

/** @param {string | null} path */
function pathWords(path) {
  if (!path) return t("rules.everywhere");
  return path === "~/*" ? t("rules.home") : path;
}

const FORM = {
  type: "object",
  required: ["action", "tool"],
  properties: {
    action: { title: `${PREFIX}field.action`, enum: ACTIONS, enumNames: ACTIONS.map((a) => `${PREFIX}action.${a}`) },
    tool: { type: "string", title: `${PREFIX}field.tool`, description: `${PREFIX}field.tool_help`, maxLength: 130 },
    path: { type: "string", title: `${PREFIX}field.path`, description: `${PREFIX}field.path_help` },
    agent: { type: "string", title: `${PREFIX}field.agent`, description: `${PREFIX}field.agent_help`, maxLength: 128 },
    priority: { type: "integer", title: `${PREFIX}field.priority`, description: `${PREFIX}field.priority_help`, minimum: 0, maximum: 1_000_000_000, default: 500 },
    note: { type: "string", title: `${PREFIX}field.note`, description: `${PREFIX}field.note_help`, maxLength: 500, multiline: true },
  },
};

export default class ApprovalRulesPage extends SkElement {
  static properties = {
    pluginId: { attribute: "plugin-id" },
    _rules: { state: true },
    _error: { state: true },
    _editing: { state: true },
    _busy: { state: true },
    _problem: { state: true },
    _hidden: { state: true },
    _tried: { state: true },
  };

  constructor() {
    super();
    this.pluginId = "approval";
    /** @type {Rule[] | null} */ this._rules = null;
    /** @type {unknown} */ this._error = null;
    /** the rule in the editor; without an id it is a new one @type {Partial<Rule> | null} */ this._editing = null;
    this._busy = false;
    this._problem = "";
    /** deleted here, undo still possible @type {Set<string>} */ this._hidden = new Set();
    /** @type {{action: string, rule: Rule | null} | {problem: string} | null} */ this._tried = null;
    /** @type {(() => void)[]} */ this._off = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this._off = [onEvent(`plugin.${this.pluginId}.rules_changed`, () => void this._load()), onReconnect(() => void this._load())];
    void this._load();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  get _api() {
    return pluginApi(this.pluginId);
  }

  async _load() {
    try {
      this._rules = await this._api.get("rules");
      this._error = null;
    } catch (error) {
      // What is shown already stays; the next event or reconnect reads again.
      if (!this._rules) this._error = error;
    }
  }

  /** @param {Partial<Rule>} rule */
  _edit(rule) {
    this._problem = "";
    this._editing = rule;
  }

  /** @param {CustomEvent} event */
  async _save(event) {
    const { id } = /** @type {Partial<Rule>} */ (this._editing);
    const { path, agent, priority, ...rest } = event.detail;
    const body = { ...rest, path: path || null, agent: agent || null, priority: priority ?? 500 };
    this._busy = true;
    this._problem = "";
    try {
      await (id ? this._api.put(`rules/${encodeURIComponent(id)}`, body) : this._api.post("rules", body));
      this._editing = null;
      toast(t("rules.saved"), { tone: "done" });
      await this._load();
    } catch (error) {
      this._problem = describeError(error);
    }
    this._busy = false;
  }

  /** @param {Rule} rule */
  _delete(rule) {
    this._hidden = new Set(this._hidden).add(rule.id);
    const show = () => {
      const next = new Set(this._hidden);
      next.delete(rule.id);
      this._hidden = next;
    };
    undoable({
      text: t("rules.deleted", { tool: toolWords(rule.tool) }),
      undo: show,
      commit: (/** @type {boolean} */ closing) =>
        this._api.delete(`rules/${encodeURIComponent(rule.id)}`, { keepalive: closing }).then(
          () => this._load(),
          (/** @type {unknown} */ error) => {
            show();
            toastError(error);
          },
        ),
    });
  }

  /** @param {SubmitEvent} event */
  async _try(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const say = (/** @type {string} */ name) => String(form.get(name) ?? "").trim();
    try {
      this._tried = await this._api.post("rules/try", { tool: say("tool"), scope: say("scope"), path: say("path") || null });
    } catch (error) {
      this._tried = { problem: describeError(error) };
    }
  }

  render() {
    return html`<sk-page .title=${t("rules.title")} .purpose=${t("rules.purpose")}>
      <sk-button slot="action" variant="primary" icon="plus-lg" @click=${() => this._edit({ action: "require" })}>${t("rules.add")}</sk-button>
      ${this._error ? html`<sk-error .error=${this._error} .text=${describeError(this._error)} .retry=${() => this._load()}></sk-error>` : nothing}
      ${this._rules ? this._list(this._rules) : this._error ? nothing : html`<sk-skeleton shape="rows" lines="2"></sk-skeleton>`}
      ${this._rules ? this._tryCard() : nothing} ${this._dialog()}
    </sk-page>`;
  }

  /** @param {Rule[]} all */
  _list(all) {
    const rules = all.filter((rule) => !this._hidden.has(rule.id));
    if (!rules.length) return html`<sk-empty icon="shield-check" .text=${t("rules.none")}></sk-empty>`;
    return html`<ol aria-label=${t("rules.list")}>
      ${repeat(
        rules,
        (rule) => rule.id,
        (rule) => html`<li>
          <span class="chip ${LOOK[rule.action].tone}"><sk-icon name=${LOOK[rule.action].icon}></sk-icon>${t(`action.${rule.action}`)}</span>
          <div class="what">
            <p>
              <strong>${/^[@*]/.test(rule.tool) ? toolWords(rule.tool) : html`<code>${rule.tool}</code>`}</strong>
              <span class="soft" dir="auto">${!rule.path || rule.path === "~/*" ? pathWords(rule.path) : html`<code>${rule.path}</code>`}</span>
              ${rule.agent ? html`<span class="soft">· ${t("rules.agent", { agent: rule.agent })}</span>` : nothing}
            </p>
            ${rule.note ? html`<p class="faint" dir="auto">${rule.note}</p>` : nothing}
          </div>
          <sk-menu
            align="end"
            .label=${t("rules.menu", { tool: toolWords(rule.tool) })}
            .items=${[
              { label: t("rules.change"), icon: "pencil", run: () => this._edit(rule) },
              { label: t("rules.delete"), icon: "trash", danger: true, divider: true, run: () => this._delete(rule) },
            ]}
          ></sk-menu>
        </li>`,
      )}
    </ol>`;
  }

  _tryCard() {
    const tried = this._tried;
    return html`<sk-card .heading=${t("try.title")}>
      <form class="try" @submit=${this._try}>
        <div>
          <label for="try-tool">${t("field.tool")}</label>
          <input id="try-tool" name="tool" class="field" required maxlength="128" placeholder="write_file" autocomplete="off" spellcheck="false" />
        </div>
        <div>
          <label for="try-scope">${t("field.scope")}</label>
          <select id="try-scope" name="scope" class="field">
            ${SCOPES.map((scope) => html`<option value=${scope}>${t(`scope.${scope}`)}</option>`)}
          </select>
        </div>
        <div>
          <label for="try-path">${t("field.path")}</label>
          <input id="try-path" name="path" class="field" placeholder="notes/todo.md" autocomplete="off" spellcheck="false" />
        </div>
        <button class="btn">${t("try.run")}</button>
      </form>
      <p role="status" class="answer">
        ${tried === null
          ? nothing
          : "problem" in tried
            ? html`<span class="wrong">${tried.problem}</span>`
            : html`<strong>${t(`try.${tried.action}`)}</strong> ${tried.rule ? t("try.by", { tool: toolWords(tried.rule.tool) }) : t("try.no_rule")}`}
      </p>
    </sk-card>`;
  }

  _dialog() {
    const rule = this._editing;
    if (!rule) return nothing;
    return html`<sk-dialog .heading=${t(rule.id ? "rules.edit" : "rules.add")} .open=${true} @sk-close=${() => (this._editing = null)}>
      <sk-form
        .schema=${FORM}
        .values=${{ ...rule, path: rule.path ?? "", agent: rule.agent ?? "" }}
        .submitLabel=${t("rules.save")}
        ?busy=${this._busy}
        @sk-submit=${this._save}
      ></sk-form>
      ${this._problem ? html`<p class="wrong" role="alert">${this._problem}</p>` : nothing}
    </sk-dialog>`;
  }

  static styles = [
    ...SkElement.styles,
    css`
      ol {
        list-style: none;
        margin: 0;
        padding: 0;
        border: 1px solid var(--line);
        border-radius: var(--radius-m);
        background: var(--surface);
      }
      li {
        display: grid;
        grid-template-columns: 9rem minmax(0, 1fr) auto;
        align-items: center;
        gap: var(--s3);
        padding: var(--s3) var(--s4);
        border-block-end: 1px solid var(--line);
      }
      li:last-child {
        border-block-end: 0;
      }
      li > .chip {
        justify-self: start;
      }
      .what {
        overflow-wrap: anywhere;
      }
      code {
        font-family: var(--mono);
        font-size: 0.9em;
      }
      .try {
        display: grid;
        grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
        gap: var(--s3);
        align-items: end;
      }
      .try label {
        display: block;
        font-size: var(--size-s);
        margin-block-end: var(--s1);
      }
      .answer {
        margin-block-start: var(--s3);
        min-block-size: 1.5em;
      }
      .wrong {
        color: var(--fail);
      }
      @media (max-width: 40rem) {
        li {
          grid-template-columns: minmax(0, 1fr) auto;
        }
        li > .chip {
          grid-column: 1 / -1;
        }
      }
    `,
  ];
}
