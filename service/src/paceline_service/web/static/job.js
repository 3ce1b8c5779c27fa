// The page of one job: puts the parts together and hands them what changed.

import { fill, h, setText } from "./dom.js";
import { Figures } from "./figures.js";
import { counted } from "./format.js";
import { Heatmap } from "./heatmap.js";
import { LaneChoice, Pins } from "./lanechoice.js";
import { ALL_AT_ONCE } from "./lanes.js";
import { StepLoader } from "./loader.js";
import { JobModel } from "./model.js";
import { Overview } from "./overview.js";
import { Panels } from "./panels.js";
import { Quality } from "./quality.js";
import { jobLink, updateParams, valuesOf } from "./router.js";
import { Sawtooth } from "./sawtooth.js";
import { RankTable } from "./table.js";
import { Timeline } from "./timeline.js";
import { VerdictCard } from "./verdict.js";
import { Viewport } from "./viewport.js";

const HEATMAP_FROM_RANKS = 17;
const MAX_STEPS_ON_SCREEN = 5000;
const PART_OF_STEPS = 4;
const REPORT_MS = 500;
const STATES = { running: "running", ended: "ended", silent: "silent" };

/** Open the job of `route`; returns its element and how to start and leave it. */
export async function openJob({ api, route, onLink, reload }) {
  const model = new JobModel(api, route.job, route.params.get("attempt"));
  await model.open();
  const page = new JobPage(model, route, { onLink, reload });
  return { element: page.element, head: page.head, start: () => page.start(), leave: () => page.leave(), moved: (...way) => page.moved(...way) };
}

class JobPage {
  #reportTimer = 0;

  constructor(model, route, { onLink, reload }) {
    Object.assign(this, { model, onLink, reload });
    const { params } = route;
    const { store } = model;
    const viewport = new Viewport(Math.min(MAX_STEPS_ON_SCREEN, store.capacity));
    this.viewport = viewport;
    const loader = new StepLoader(model);
    this.loader = loader;
    const pinned = ranksOf(params);
    this.pins = new Pins(pinned, (pins) => updateParams({ rank: pins.size ? [...pins].join(",") : null }));
    this.verdict = new VerdictCard();
    this.figures = new Figures();
    this.sawtooth = new Sawtooth({
      model, viewport, loader, choice: new LaneChoice({ model, pins: this.pins, mode: params.get("lanes"), ...opened("open", params) }),
      onMode: (mode) => updateParams({ lanes: mode }),
    });
    this.overview = new Overview({ model, viewport });
    this.sawtooth.above.append(this.overview.element);
    this.timeline = new Timeline({
      model, viewport, loader, choice: new LaneChoice({ model, pins: this.pins, mode: params.get("timeline"), usual: "nodes", byRank: true, ...opened("timeline-open", params) }),
      onMode: (mode) => updateParams({ timeline: mode }),
    });
    this.charts = [this.sawtooth, this.timeline];
    const pick = (ranks) => this.#pick(ranks);
    this.heatmap = store.ranks >= HEATMAP_FROM_RANKS ? new Heatmap({ model, viewport, loader, onPick: pick }) : null;
    this.table = new RankTable({ model, sort: params.get("sort"), onPick: pick });
    this.quality = new Quality();
    this.head = h("div", { class: "job-head" });
    this.panels = new Panels({ model, viewport, params, pick });
    const { expected, cost, whatIf, gamma, incidents, agents, settings, trace } = this.panels;
    this.nav = h("div", { class: "sections-bar" });
    this.element = h("div", { class: "job" }, this.verdict.element, this.figures.element, this.nav,
      this.sawtooth.element, this.timeline.element, this.heatmap?.element, incidents.element, expected.element, cost.element,
      h("div", { class: "pair" }, whatIf.element, gamma.element), this.table.element, agents.element,
      h("div", { class: "pair" }, settings.element, trace.element), this.quality.element);
    this.nav.append(this.panels.navigation([
      ["verdict", "Verdict", this.verdict.element], ["sawtooth", "Sawtooth", this.sawtooth.element], ["timeline", "Timeline", this.timeline.element],
      ["idle", "Who waits", this.heatmap?.element], ["ranks", "Ranks", this.table.element], ["data", "Data", this.quality.element],
    ]));
    this.#restore(params);
  }

  /** Take the steps of a deep link as soon as there are any. */
  #restore(params) {
    const from = Number(params.get("from") ?? NaN);
    const to = Number(params.get("to") ?? NaN);
    this.wanted = to > from ? { from, to } : null;
    this.viewport.onChange(() => {
      clearTimeout(this.addressTimer);
      this.addressTimer = setTimeout(() => {
        const { follow } = this.viewport;
        if (!this.element.isConnected || this.wanted) return;
        const { from, to } = this.viewport;
        const digits = to - from < PART_OF_STEPS ? 2 : 0; // looking into steps, parts of them matter
        updateParams(follow ? { from: null, to: null } : { from: digits ? from.toFixed(digits) : Math.floor(from), to: digits ? to.toFixed(digits) : Math.ceil(to) });
      }, 300);
    });
  }

  leave() {
    this.panels.stop();
    this.model.close();
  }

  /** Follow an address that names another section, incident or view of the same attempt; else false. */
  moved({ view, job, params }, { params: before }) {
    const { model, viewport, pins } = this;
    const same = ["lanes", "timeline", "sort", "open", "timeline-open"].every((name) => String(valuesOf(params, name)) === String(valuesOf(before, name)));
    const attempt = [before.get("attempt"), String(model.detail.attempt)].includes(params.get("attempt"));
    if (view !== "job" || job !== model.job || !same || !attempt) return false;
    const [from, to] = [params.get("from"), params.get("to")];
    if (Number(to) > Number(from) && (from !== before.get("from") || to !== before.get("to"))) viewport.show(Number(from), Number(to));
    for (const rank of ranksOf(params)) if (!pins.ranks.has(rank)) pins.toggle(rank);
    this.panels.go(params);
    return true;
  }

  start() {
    this.model.onChange((what) => this.#changed(what));
    this.#showHead();
    this.quality.update(this.model);
    for (const chart of this.charts) chart.refreshLanes();
    this.overview.schedule();
    this.panels.start();
    for (const what of ["steps", "report"]) this.#changed(what);
  }

  #changed(what) {
    const { model } = this;
    if (what === "link") return this.#showLink();
    if (what === "attempt") return this.reload();
    if (what === "reload") {
      this.loader.forget();
      this.timeline.forget();
      return this.viewport.reset();
    }
    if (what === "history") return this.overview.schedule();
    if (what === "steps" && model.store.last >= 0) return this.#stepsCame();
    if (what === "report" && model.report) {
      this.#reportTimer ||= setTimeout(() => { this.#reportTimer = 0; this.#showReport(); }, this.shownOnce ? REPORT_MS : 0);
    }
    if (what === "detail") {
      this.#showHead();
      this.quality.update(model);
      this.table.update();
      for (const chart of this.charts) chart.schedule();
    }
    return undefined;
  }

  #stepsCame() {
    const { viewport, model } = this;
    viewport.setLast(model.store.last);
    if (this.wanted) {
      const { from, to } = this.wanted;
      this.wanted = null;
      viewport.show(from, to);
    }
    for (const chart of this.charts) chart.schedule();
    this.heatmap?.schedule();
  }

  #showReport() {
    const { model } = this;
    this.shownOnce = true;
    this.verdict.update(model.report);
    this.figures.update(model.report);
    this.table.update();
    this.quality.update(model);
    this.#showHead();
    this.overview.schedule();
    for (const chart of this.charts) chart.schedule();
    this.heatmap?.schedule();
  }

  /** Bring ranks into the sawtooth: pinned lanes where only some are drawn, else the cursor. */
  #pick(ranks) {
    if (this.model.store.ranks > ALL_AT_ONCE) for (const rank of ranks) this.pins.toggle(rank);
    else this.sawtooth.cursor = { lane: ranks[0] };
    this.sawtooth.element.scrollIntoView({ block: "nearest" });
    this.sawtooth.schedule();
  }

  #showLink() {
    const { link, report, detail } = this.model;
    if (link) this.onLink(link, (report?.job.state ?? detail.state) === "running");
  }

  #showHead() {
    const { detail, report, job } = this.model;
    const state = report?.job.state ?? detail.state;
    const text = JSON.stringify([state, detail.attempts, detail.attempt]);
    this.#showLink();
    if (text === this.headShown) return;
    this.headShown = text;
    const attempts = detail.attempts ?? [];
    const select = h("select", { "aria-label": "Attempt", on: { change: () => { location.hash = jobLink(job, new URLSearchParams({ attempt: select.value })); } } },
      attempts.map((a) => h("option", { value: a.attempt, selected: a.attempt === detail.attempt }, `attempt ${a.attempt} (${a.state})`)));
    fill(this.head,
      h("span", { class: `state ${STATES[state] ?? ""}` }, STATES[state] ?? String(state)),
      attempts.length > 1 ? select : null,
      h("span", { class: "job-size" }, `${counted(detail.world_size, "rank")} on ${counted(new Set(Object.values(detail.nodes ?? {})).size || 1, "node")}`));
    setText(document.querySelector("title"), `${job} – Paceline`);
  }
}

/** What a choice of lanes has to do with the address, for the nodes that are open. */
function opened(name, params) {
  return { open: valuesOf(params, name), onOpen: (nodes) => updateParams({ [name]: nodes }) };
}

function ranksOf(params) {
  return (params.get("rank") ?? "").split(",").filter((r) => /^\d+$/.test(r)).map(Number);
}
