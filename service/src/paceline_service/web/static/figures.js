// The job's figures in one row: each with its unit, and a dash where it is not known.

import { h, setText } from "./dom.js";
import { count, gpuTime, percent, ratio, times } from "./format.js";

const FIGURES = [
  ["Slowdown", "step time over what it would be without the findings", (r) => times(r.slowdown)],
  ["Idle", "share of all ranks' time spent waiting for the last arriver", (r) => percent(r.idle_ratio)],
  ["Wasted", "GPU-seconds of waiting so far, all ranks", (r) => gpuTime(r.wasted_gpu_s)],
  ["Gamma", "exposed communication over compute; above 1 the job is bound by communication", (r) => ratio(r.gamma)],
  ["Steps", "steps analysed", (r) => count(r.job.steps)],
  ["Ranks", "ranks observed of the world size", (r) => `${count(r.job.ranks_observed)} / ${count(r.job.world_size)}`],
];

export class Figures {
  constructor() {
    this.values = FIGURES.map(() => h("dd", {}, "–"));
    this.data = h("dd", {}, "–");
    this.dataTile = h("div", { class: "figure data" }, h("dt", {}, "Data"), this.data);
    this.element = h("dl", { class: "figures" },
      FIGURES.map(([name, title], i) => h("div", { class: "figure", title }, h("dt", {}, name), this.values[i])),
      this.dataTile);
  }

  update(report) {
    FIGURES.forEach(([, , show], i) => setText(this.values[i], show(report)));
    const dropped = Object.values(report.data?.dropped ?? {}).reduce((a, b) => a + b, 0);
    const complete = report.data?.complete !== false;
    setText(this.data, dropped ? `${count(dropped)} dropped` : complete ? "complete" : "incomplete");
    this.dataTile.classList.toggle("warn", !complete || dropped > 0);
  }
}
