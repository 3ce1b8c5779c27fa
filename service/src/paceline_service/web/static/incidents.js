// The incidents of all jobs, the newest first.

import { h, setText } from "./dom.js";
import { count } from "./format.js";
import { IncidentList } from "./incident_list.js";
import { Refresher } from "./refresher.js";
import { updateParams } from "./router.js";
import { Silences } from "./silences.js";

const REFRESH_MS = 5_000;
const SHOWN = 50;
const STATES = { open: "open", closed: "over", all: "all" };

/** Open the list; returns its element and how to start and leave it. */
export async function openIncidents({ api, route, onLink }) {
  const view = new IncidentsView(api, route.params);
  const refresher = new Refresher((signal) => view.refresh(signal), { everyMs: REFRESH_MS, onLink });
  view.refresher = refresher;
  await refresher.now();
  return {
    element: view.element,
    start() {
      setText(document.querySelector("title"), "Incidents – Paceline");
      refresher.start();
    },
    leave: () => refresher.stop(),
  };
}

class IncidentsView {
  #limit = SHOWN;

  constructor(api, params) {
    this.api = api;
    const chosen = params.get("state") in STATES ? params.get("state") : "open";
    this.state = h("select", { "aria-label": "Which incidents", on: { change: () => this.#choose() } },
      Object.entries(STATES).map(([value, name]) => h("option", { value, selected: value === chosen }, name)));
    this.found = h("span", { class: "range", role: "status" });
    this.words = h("p", { class: "words" });
    this.list = new IncidentList({ api, showJob: true, heading: "h2", onChanged: () => this.refresh() });
    this.silences = new Silences({ api, onChanged: () => this.refresh() });
    this.more = h("button", { type: "button", hidden: true, on: { click: () => { this.#limit += SHOWN; this.refresher.soon(0); } } }, "More incidents");
    this.element = h("div", { class: "incidents" },
      h("div", { class: "card-head" }, h("h1", { class: "page-title" }, "Incidents"), this.found, h("div", { class: "tools" }, this.state)),
      this.words, this.list.element, this.more, this.silences.element);
  }

  async refresh(signal) {
    const state = this.state.value === "all" ? "" : `&state=${this.state.value}`;
    const { incidents, next } = await this.api.json(`v1/incidents?limit=${Math.min(this.#limit, 1000)}${state}`, { signal });
    this.list.update(incidents);
    this.silences.update((await this.api.json("v1/silences?active=true", { signal })).silences);
    this.more.hidden = !next || this.#limit >= 1000;
    setText(this.found, `${count(incidents.length)}${next ? " of more" : ""}`);
    setText(this.words, incidents.length ? "" : this.state.value === "open"
      ? "None is open: no job has a finding that lasts." : "None is kept.");
  }

  #choose() {
    updateParams({ state: this.state.value === "open" ? null : this.state.value });
    this.refresher.soon(0);
  }
}
