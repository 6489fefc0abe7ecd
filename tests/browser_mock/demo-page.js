/* A plugin's page, as a stranger would write it. */
import { LitElement, html } from "lit";
import { toast, SkElement } from "@skald/ui";
import { pluginApi, onEvent } from "@skald/api";
import { t } from "@skald/i18n";
export default class DemoPage extends SkElement {
  render() {
    return html`<sk-page title="Demo page" purpose="What a stranger's page looks like.">
      <sk-button slot="action" variant="primary" icon="rocket" @click=${() => toast("It works", {tone: "done"})}>Greet</sk-button>
      <sk-card heading="Download"><sk-progress value="42" max="100" label="model.gguf" detail="470 MB of 1.1 GB"></sk-progress></sk-card>
      <sk-card heading="Settings"><sk-form submit-label="Save" .schema=${{properties: {name: {type: "string", title: "Name"}, loud: {type: "boolean", title: "Loud"}}, required: ["name"]}} .values=${{name: "Ada"}}></sk-form></sk-card>
      <sk-table label="Items" .columns=${[{key: "id", label: "Id"}, {key: "size", label: "Size", numeric: true}]} .rows=${[{id: "a", size: 3}, {id: "b", size: 12}]} .search=${["id"]}></sk-table>
      <sk-empty icon="moon-stars" text="Nothing else here."></sk-empty>
    </sk-page>`;
  }
}
