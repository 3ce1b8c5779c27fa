// Repeat offenders: nodes and GPUs that incidents named, first who was named in the most jobs.

import { fill, h, setText } from "./dom.js";
import { count, moment } from "./format.js";
import { Refresher } from "./refresher.js";
import { jobLink, updateParams } from "./router.js";
import { cause } from "./words.js";

const REFRESH_MS = 30_000;
const DAYS = [7, 30, 90, 400];
const JOBS_NAMED = 5;

/** Open the list; returns its element and how to start and leave it. */
export async function openOffenders({ api, route, onLink }) {
  const view = new OffendersView(api, route.params);
  const refresher = new Refresher((signal) => view.refresh(signal), { everyMs: REFRESH_MS, onLink });
  view.refresher = refresher;
  await refresher.now();
  return {
    element: view.element,
    start() {
      setText(document.querySelector("title"), "Repeat offenders – Paceline");
      refresher.start();
    },
    leave: () => refresher.stop(),
  };
}

class OffendersView {
  constructor(api, params) {
    this.api = api;
    const chosen = DAYS.includes(Number(params.get("days"))) ? Number(params.get("days")) : 30;
    this.days = h("select", { "aria-label": "How far back", on: { change: () => { updateParams({ days: this.days.value === "30" ? null : this.days.value }); this.refresher.soon(0); } } },
      DAYS.map((days) => h("option", { value: days, selected: days === chosen }, `${days} days`)));
    this.words = h("p", { class: "words" });
    this.body = h("tbody");
    this.table = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Table of offenders" },
      h("table", { "aria-label": "Nodes and GPUs that incidents named" },
        h("thead", {}, h("tr", {}, ["Node", "GPU", "Jobs", "Incidents", "Causes", "First", "Last"].map((name, i) =>
          h("th", { scope: "col", class: i === 3 ? "" : "text" }, h("span", {}, name))))),
        this.body));
    this.element = h("div", { class: "offenders" },
      h("div", { class: "card-head" }, h("h1", { class: "page-title" }, "Repeat offenders"), h("div", { class: "tools" }, this.days)),
      h("section", { class: "card", "aria-label": "Offenders" }, this.words, this.table));
  }

  async refresh(signal) {
    const { offenders, next } = await this.api.json(`v1/offenders?days=${this.days.value}`, { signal });
    setText(this.words, offenders.length
      ? `Named by incidents of the last ${this.days.value} days, first who was named in the most jobs${next ? "; the first 200" : ""}. Who slows several jobs is more likely broken than unlucky.`
      : `No incident of the last ${this.days.value} days named a node or a GPU.`);
    this.table.hidden = offenders.length === 0;
    const shown = JSON.stringify(offenders);
    if (shown === this.shown) return;
    this.shown = shown;
    fill(this.body, offenders.map((one) => row(one)));
  }
}

function row({ node, gpu_uuid: gpu, jobs, incidents, causes, first_wall_ns: first, last_wall_ns: last }) {
  const named = jobs.slice(0, JOBS_NAMED).map((job, i) => [i ? ", " : "", h("a", { href: jobLink(job, { at: "incidents" }) }, job)]);
  return h("tr", {},
    h("th", { scope: "row", class: "text" }, node), h("td", { class: gpu ? "text mono" : "text" }, gpu ?? "not known"),
    h("td", { class: "text" }, `${count(jobs.length)}: `, named, jobs.length > JOBS_NAMED ? " …" : ""), h("td", {}, count(incidents)),
    h("td", { class: "text" }, causes.map(cause).join("; ")), h("td", { class: "text" }, moment(first)), h("td", { class: "text" }, moment(last)));
}
