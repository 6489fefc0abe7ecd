import { html } from "lit";
import { SkElement, toast, toastError } from "@skald/ui";
import { onEvent, onReconnect, pluginApi } from "@skald/api";
import { i18n, t } from "@skald/i18n";

const calls = pluginApi("reading-list");

export default class ReadingListPage extends SkElement {
  static properties = { _items: { state: true }, _picks: { state: true } };

  connectedCallback() {
    super.connectedCallback();
    this._off = [onEvent("plugin.reading-list.changed", () => this._load()), onReconnect(() => this._load())];
    this._load();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const off of this._off) off();
  }

  async _load() {
    try {
      [this._items, this._picks] = await Promise.all([calls.get("items"), calls.get("picks")]);
    } catch (error) {
      toastError(error);
    }
  }

  async _do(work, done) {
    try {
      await work();
      if (done) toast(done);
      await this._load();
    } catch (error) {
      toastError(error);
    }
  }

  _add(event) {
    event.preventDefault();
    const { url, title } = event.target.elements;
    this._do(async () => {
      await calls.post("items", { url: url.value, title: title.value });
      event.target.reset();
    });
  }

  _acts(item) {
    const button = (icon, key, run) =>
      html`<sk-button icon=${icon} label=${t(key, { title: item.title })} size="small" variant="plain" @click=${run}></sk-button>`;
    return html`${item.read_at
      ? ""
      : button("check-lg", "plugin.reading-list.page.read", () => this._do(() => calls.post(`items/${item.id}/read`)))}
    ${button("share", "plugin.reading-list.page.share", () =>
      this._do(() => calls.post(`items/${item.id}/share`), t("plugin.reading-list.page.shared")),
    )}
    ${button("trash", "plugin.reading-list.page.remove", () => this._do(() => calls.delete(`items/${item.id}`)))}`;
  }

  render() {
    const link = (row) => html`<a href=${row.url} target="_blank" rel="noreferrer">${row.title}</a>`;
    const columns = [
      { key: "title", label: t("plugin.reading-list.page.column"), render: link },
      { key: "saved_at", label: t("plugin.reading-list.page.saved"), render: (row) => i18n.relative(row.saved_at) },
      { key: "id", label: t("plugin.reading-list.page.acts"), render: (row) => this._acts(row) },
    ];
    return html`<sk-page title=${t("plugin.reading-list.page.title")} purpose=${t("plugin.reading-list.page.purpose")}>
      <form @submit=${(event) => this._add(event)}>
        <label class="field">
          <span>${t("plugin.reading-list.page.url")}</span>
          <input name="url" type="url" required maxlength="2000" autocomplete="off" />
        </label>
        <label class="field">
          <span>${t("plugin.reading-list.page.name")}</span>
          <input name="title" maxlength="200" autocomplete="off" />
        </label>
        <sk-button type="submit" variant="primary" icon="plus-lg">${t("plugin.reading-list.page.add")}</sk-button>
      </form>
      <sk-table
        .columns=${columns}
        .rows=${this._items ?? []}
        .search=${["title", "url"]}
        label=${t("plugin.reading-list.page.title")}
        empty=${t("plugin.reading-list.page.empty")}
      ></sk-table>
      <sk-table
        .columns=${[{ key: "title", label: t("plugin.reading-list.page.picks"), render: link }]}
        .rows=${this._picks ?? []}
        row-key="url"
        label=${t("plugin.reading-list.page.picks")}
        empty=${t("plugin.reading-list.page.no_picks")}
      ></sk-table>
    </sk-page>`;
  }
}
