// One incident by itself, where a message leads to: evidence, next command, history, the way to its job.

import { fill, h, setText } from "./dom.js";
import { moment } from "./format.js";
import { IncidentView, stepsLink } from "./incident_view.js";
import { title } from "./incident_words.js";
import { Refresher } from "./refresher.js";
import { jobLink } from "./router.js";
import { copyButton } from "./verdict.js";
import { facts } from "./words.js";

const REFRESH_MS = 5_000;

/** Open one incident; raises ApiError where there is none. */
export async function openIncident({ api, route, onLink }) {
  const page = new IncidentPage(api, route.incident);
  const refresher = new Refresher((signal) => page.refresh(signal), { everyMs: REFRESH_MS, onLink });
  await refresher.now();
  return {
    element: page.element,
    start() {
      setText(document.querySelector("title"), `Incident ${route.incident} – Paceline`);
      refresher.start();
    },
    leave: () => refresher.stop(),
  };
}

class IncidentPage {
  #shown = "";

  constructor(api, id) {
    Object.assign(this, { api, id });
    this.facts = h("p", { class: "facts" });
    this.more = h("div", { class: "card" });
    this.element = h("div", { class: "incident-page" });
  }

  async refresh(signal) {
    const incident = await this.api.json(`v1/incidents/${this.id}`, { signal });
    if (!this.view) {
      this.view = new IncidentView({ api: this.api, incident, onChanged: () => this.refresh(), showJob: true, heading: "h1" });
      this.view.element.classList.add("alone");
      fill(this.element, this.view.element, this.more);
    }
    this.view.update(incident);
    setText(document.querySelector("title"), `${title(incident)} – Paceline`);
    const shown = JSON.stringify([incident.evidence, incident.action, incident.acknowledgements, facts(incident)]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#fillMore(incident);
  }

  #fillMore(incident) {
    const { evidence, action, acknowledgements: history, job, attempt } = incident;
    const command = h("pre", { class: "command", tabindex: 0 }, action ?? "");
    const steps = stepsLink(incident);
    fill(this.more,
      h("h2", {}, "Evidence"),
      h("p", { class: "facts" }, facts(incident)),
      evidence.length ? h("ul", { class: "evidence" }, evidence.map((text) => h("li", {}, text))) : null,
      action ? [h("h2", {}, "Next"), h("div", { class: "next" }, command, copyButton(command))] : null,
      h("h2", {}, "Where to look"),
      h("ul", { class: "links" },
        h("li", {}, h("a", { href: jobLink(job, { attempt }) }, `Job ${job}, attempt ${attempt}`)),
        steps ? h("li", {}, h("a", { href: steps }, "The steps at which it begins")) : null,
        h("li", {}, h("a", { href: jobLink(job, { attempt, at: "cost" }) }, "What it costs")),
        h("li", {}, h("a", { href: "#/offenders" }, "Nodes and GPUs that were named before"))),
      h("h2", {}, "Who said what"),
      history.length ? h("ul", { class: "history" }, history.map(saying)) : h("p", { class: "words" }, "Nobody has acknowledged it."));
  }
}

function saying({ at_wall_ns: at, by, note, withdrawn_wall_ns: back, withdrawn_by: backBy }) {
  return h("li", {}, `${moment(at)}: acknowledged by ${by || "somebody"}${note ? `: “${note}”` : ""}`,
    back ? `; taken back at ${moment(back)} by ${backBy || "somebody"}` : "");
}
