// The list of jobs: the newest first, what is wrong in the eye, one row to click.

import { fill, h, icon, setText } from "./dom.js";
import { ago, count, times } from "./format.js";
import { place } from "./keyed.js";
import { Refresher } from "./refresher.js";
import { jobLink, updateParams } from "./router.js";
import { verdict } from "./words.js";

const REFRESH_MS = 3_000;
const STATES = { "": "in any state", running: "running", silent: "silent", ended: "ended" };

/** Open the list of all jobs; returns its element and how to start and leave it. */
export async function openJobs({ api, route, onLink }) {
  const view = new JobsView(api, route.params);
  const refresher = new Refresher((signal) => view.refresh(signal), { everyMs: REFRESH_MS, onLink });
  await refresher.now();
  return {
    element: view.element,
    start() {
      setText(document.querySelector("title"), "Paceline");
      refresher.start();
    },
    leave: () => refresher.stop(),
  };
}

class JobsView {
  #rows = new Map();
  #jobs = [];
  #pages = 1;

  constructor(api, params) {
    this.api = api;
    this.search = h("input", { type: "search", placeholder: "job", "aria-label": "Filter by name", value: params.get("q") ?? "", on: { input: () => this.#choose() } });
    this.state = h("select", { "aria-label": "State", on: { change: () => this.#choose() } },
      Object.entries(STATES).map(([value, name]) => h("option", { value, selected: value === (params.get("state") ?? "") }, name)));
    this.found = h("span", { class: "range", role: "status" });
    this.list = h("ul", { class: "job-list", "aria-label": "Jobs" });
    this.more = h("button", { type: "button", hidden: true, on: { click: () => { this.#pages += 1; this.refresh().catch(() => {}); } } }, "More jobs");
    this.full = [
      h("div", { class: "card-head" }, h("h1", { class: "page-title" }, "Jobs"), this.found, h("div", { class: "tools" }, this.search, this.state)),
      h("div", { class: "job-columns", "aria-hidden": "true" },
        ["Job", "Verdict", "Slowdown", "Ranks", "Steps", "Last seen"].map((name) => h("span", {}, name))),
      this.list, this.more,
    ];
    this.element = h("div", { class: "jobs" });
  }

  async refresh(signal) {
    const jobs = [];
    let cursor = null;
    for (let page = 0; page < this.#pages; page += 1) {
      const answer = await this.api.json(`v1/jobs${cursor ? `?cursor=${encodeURIComponent(cursor)}` : ""}`, { signal });
      jobs.push(...answer.jobs);
      cursor = answer.next ?? null;
      if (!cursor) break;
    }
    this.more.hidden = !cursor;
    this.#jobs = jobs;
    if (jobs.length === 0) fill(this.element, h("h1", { class: "page-title" }, "Jobs"), emptyState());
    else if (!this.list.isConnected) fill(this.element, this.full);
    this.#show();
  }

  #choose() {
    updateParams({ q: this.search.value.trim(), state: this.state.value });
    this.#show();
  }

  #show() {
    const wanted = this.search.value.trim().toLowerCase();
    const state = this.state.value;
    const jobs = this.#jobs.filter((job) => job.job.toLowerCase().includes(wanted) && (!state || job.state === state));
    const old = this.#rows;
    this.#rows = new Map();
    for (const job of jobs) {
      const key = JSON.stringify([job.job, job.state, job.verdict, job.headline]);
      const row = old.get(key) ?? new JobRow(job);
      row.update(job);
      this.#rows.set(key, row);
    }
    place(this.list, [...this.#rows.values()].map((row) => row.element));
    setText(this.found, jobs.length === this.#jobs.length ? count(jobs.length) : `${count(jobs.length)} of ${count(this.#jobs.length)}`);
  }
}

class JobRow {
  constructor(job) {
    const { label, tone, icon: name } = verdict(job.verdict);
    this.slowdown = h("span", { class: "num", "data-label": "slowdown" });
    this.ranks = h("span", { class: "num", "data-label": "ranks" });
    this.steps = h("span", { class: "num", "data-label": "steps" });
    this.seen = h("span", { class: "num seen", "data-label": "last seen" });
    this.element = h("li", { class: `tone-${tone}` }, h("a", { href: jobLink(job.job) },
      h("span", { class: "who" }, h("span", { class: "job-name" }, job.job), h("span", { class: `state ${job.state}` }, job.state)),
      h("span", { class: "what" }, h("span", { class: "chip" }, icon(name), label), h("span", { class: "headline" }, job.headline ?? "")),
      this.slowdown, this.ranks, this.steps, this.seen));
  }

  update(job) {
    setText(this.slowdown, times(job.slowdown));
    setText(this.ranks, job.ranks_seen === job.world_size ? count(job.world_size) : `${count(job.ranks_seen)} / ${count(job.world_size)}`);
    setText(this.steps, count(job.steps));
    setText(this.seen, ago(job.last_seen_wall_ns));
  }
}

function emptyState() {
  return h("section", { class: "empty" },
    h("h2", {}, "No job has reported yet"),
    h("p", {}, "Run the demo: a small transformer on 4 ranks, one of which becomes slow."),
    h("pre", { class: "command", tabindex: 0 }, "make demo"),
    h("p", {}, "Or put Paceline in front of your own launcher; no code changes:"),
    h("pre", { class: "command", tabindex: 0 }, `PACELINE_URL=${location.origin} PACELINE_TOKEN=… \\\n  paceline run --job my-job -- torchrun --nproc-per-node 8 train.py`),
    h("p", { class: "hint" }, "Nothing arrives? “paceline doctor” says what it finds and what to do about it."));
}
