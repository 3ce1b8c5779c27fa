// The list of jobs: the worst first in the eye, one row to click.

import { fill, h, icon, setText } from "./dom.js";
import { ago, count, times } from "./format.js";
import { jobLink } from "./router.js";
import { verdict } from "./words.js";

const REFRESH_MS = 3_000;

/** Open the list of all jobs; returns its element and how to start and leave it. */
export async function openJobs({ api, onLink }) {
  const stop = new AbortController();
  const view = new JobsView(api);
  await view.refresh(stop.signal);
  let timer = 0;
  const tick = async () => {
    if (document.hidden) return;
    try {
      await view.refresh(stop.signal);
      if (!stop.signal.aborted) onLink("");
    } catch {
      if (!stop.signal.aborted) onLink("reconnecting");
    }
  };
  return {
    element: view.element,
    start() {
      setText(document.querySelector("title"), "Paceline");
      timer = setInterval(tick, REFRESH_MS);
    },
    leave() { clearInterval(timer); stop.abort(); },
  };
}

class JobsView {
  #rows = new Map();

  constructor(api) {
    this.api = api;
    this.element = h("div", { class: "jobs" });
    this.list = h("ul", { class: "job-list" });
    this.head = h("div", { class: "job-columns", "aria-hidden": "true" },
      ["Job", "Verdict", "Slowdown", "Ranks", "Steps", "Last seen"].map((name) => h("span", {}, name)));
  }

  async refresh(signal) {
    const { jobs } = await this.api.json("v1/jobs", { signal });
    const old = this.#rows;
    this.#rows = new Map();
    for (const job of jobs) {
      const key = JSON.stringify([job.job, job.state, job.verdict, job.headline]);
      const row = old.get(key) ?? new JobRow(job);
      row.update(job);
      this.#rows.set(key, row);
    }
    const wanted = [...this.#rows.values()].map((row) => row.element);
    if (wanted.length !== this.list.children.length || wanted.some((node, i) => node !== this.list.children[i])) {
      this.list.replaceChildren(...wanted);
    }
    const title = h("h1", { class: "page-title" }, "Jobs");
    if (jobs.length === 0) fill(this.element, title, emptyState());
    else if (!this.list.isConnected || this.element.querySelector(".empty")) fill(this.element, title, this.head, this.list);
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
