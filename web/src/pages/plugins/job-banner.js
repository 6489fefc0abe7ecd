/** `<sk-job-banner>`: says on every plugin page that a change is under way, and brings back its dialog. Fires `sk-look`. */
import { html, nothing } from "lit";
import { t } from "../../i18n/index.js";
import { pluginJobs } from "../../core/plugin-jobs.js";
import { Watch } from "../../core/watch.js";
import { SkElement } from "../../ui/base.js";
import "../../ui/states.js";

export class SkJobBanner extends SkElement {
  constructor() {
    super();
    new Watch(this, pluginJobs);
  }

  willUpdate() {
    this.hidden = pluginJobs.running === null;
  }

  render() {
    const job = pluginJobs.running;
    if (!job) return nothing;
    return html`<sk-notice icon="arrow-repeat" role="status">
      ${t(`flow.title.${job.act}`, { plugin: job.plugin || job.requirement || "" })} · ${t(`job.step.${job.step}`)}
      <button slot="action" class="btn small" @click=${() => this.emit("sk-look", job)}>${t("job.show")}</button>
    </sk-notice>`;
  }
}

customElements.define("sk-job-banner", SkJobBanner);
