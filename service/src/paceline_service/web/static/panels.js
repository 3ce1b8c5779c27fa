// The parts of a job's page below the charts: who costs what, what if, incidents, agents, settings.

import { AgentsCard } from "./agents.js";
import { CostTable } from "./cost.js";
import { ExpectedCard } from "./expected.js";
import { GammaCard } from "./gamma.js";
import { JobIncidents } from "./job_incidents.js";
import { TraceCard } from "./perfetto.js";
import { Refresher } from "./refresher.js";
import { SectionNav } from "./section.js";
import { SettingsCard } from "./settings.js";
import { WhatIf } from "./whatif.js";

const REFRESH_MS = 10_000;

export class Panels {
  #findings = "";

  /** `pick(ranks)` brings ranks into the charts; `charts` are the [id, name, element] above these. */
  constructor({ model, viewport, params, pick }) {
    Object.assign(this, { model, params });
    this.whatIf = new WhatIf({ model, without: params.get("without") });
    this.cost = new CostTable({ model, onPick: pick, onAsk: (without) => { this.whatIf.ask(without); this.nav.go("what-if"); } });
    this.gamma = new GammaCard();
    this.expected = new ExpectedCard();
    this.incidents = new JobIncidents({ model, onChanged: () => this.incidents.refresh(), onCount: (n, quiet) => this.nav.note("incidents", quiet ? `${quiet} to acknowledge` : n ? `${n} open` : "") });
    this.agents = new AgentsCard({ model, onCount: (n) => this.nav.note("agents", n ? `${n} to look at` : "") });
    this.settings = new SettingsCard({ model });
    this.trace = new TraceCard({ model, viewport });
    this.refresher = new Refresher(() => this.#refresh(), { everyMs: REFRESH_MS });
  }

  /** Return the links to all sections; `parts` are those that the page has beside these. */
  navigation(parts) {
    const byId = new Map([...parts, ["expected", "Expected", this.expected.element], ["cost", "Cost", this.cost.element], ["what-if", "What if", this.whatIf.element],
      ["gamma", "Gamma", this.gamma.element], ["incidents", "Incidents", this.incidents.element], ["agents", "Agents", this.agents.element],
      ["settings", "Settings", this.settings.element], ["trace", "Timeline file", this.trace.element]].map((part) => [part[0], part]));
    for (const [id, , element] of parts) if (element) element.id = id;
    this.nav = new SectionNav(this.model.job, [...byId.values()].sort((a, b) => (a[2] && b[2] ? order(a[2], b[2]) : 0)));
    return this.nav.element;
  }

  start() {
    this.model.onChange((what) => this.#changed(what));
    this.#changed("detail");
    this.refresher.start();
    this.go(this.params);
    this.refresher.now().catch(() => {}).finally(() => this.#goAgain());
  }

  stop() {
    this.refresher.stop();
  }

  /** Show the section or the incident that an address names. */
  go(params) {
    const incident = params.get("incident");
    const section = params.get("at");
    if (incident) this.incidents.go(incident);
    else if (section) requestAnimationFrame(() => this.nav.go(section));
  }

  /** What came above the section has moved it; who has gone elsewhere by now is left there. */
  #goAgain() {
    const section = this.params.get("at");
    if (section && document.activeElement?.id === section) this.nav.go(section);
  }

  #changed(what) {
    const { report } = this.model;
    if (what === "report" && report) {
      this.gamma.update(report);
      this.expected.update(report);
      const findings = JSON.stringify(report.findings.map(({ kind, ranks }) => [kind, ranks]));
      if (findings !== this.#findings && this.#findings) this.refresher.soon(1_000);
      this.#findings = findings;
    }
    if (what === "report" || what === "detail") {
      this.cost.update();
      this.whatIf.update();
      this.agents.update();
    }
  }

  async #refresh() {
    await Promise.all([this.incidents.refresh(), this.settings.refresh()]);
  }
}

/** Order of the page: the links stand as the sections do. */
function order(a, b) {
  return a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
}
