// The sawtooth as a part of the page: teeth over steps, figures of one tooth, summary in words.

import { h, setText } from "./dom.js";
import { count, counted, percent } from "./format.js";
import { LaneChart } from "./lanechart.js";
import { idleShare, totals } from "./lanes.js";
import { PHASES } from "./steps.js";
import { drawSawtooth } from "./teeth.js";
import { layout } from "./timescale.js";
import { toothFigures } from "./toothwords.js";

const LEAST_STEPS = 4;
const STEP_PX = 54; // a step's width at first: a dozen or so, each easy to read

export class Sawtooth extends LaneChart {
  constructor(parts) {
    super({
      ...parts,
      names: { id: "sawtooth", title: "Sawtooth", kind: "sawtooth chart", about: "Sawtooth: a lane per rank, steps from left to right" },
    });
  }

  legend() {
    return legend();
  }

  beforeLayout(plotWidth) {
    this.viewport.suggest(plotWidth / STEP_PX);
  }

  /** A tooth is a whole step: looking into one, the few around it stay in sight. */
  viewOf({ from, to }) {
    const less = Math.max(0, (LEAST_STEPS - (to - from)) / 2);
    const start = Math.max(0, from - less);
    return { from: start, to: Math.max(to + less, start + Math.min(LEAST_STEPS, to - from + 2 * less)) };
  }

  sumsOf(view) {
    return totals(this.model.store, view.from, view.to);
  }

  paint(context, f) {
    const { store } = this.model;
    f.scale = layout(store, f.view, f.plotWidth);
    f.scale.teeth = f.scale.teeth.filter((tooth) => tooth.first <= store.last);
    f.hover = this.hover ? f.scale.teeth.find((t) => t.bin === this.hover.bin) : null;
    drawSawtooth(context, f);
    const shown = f.lanes.slice(f.firstLane, f.endLane + 1);
    this.loader.want("sawtooth", f.view.from, f.view.to, shown.flatMap((lane) => lane.ranks));
  }

  describe(f) {
    const { k, teeth } = f.scale;
    const end = Math.min(Math.ceil(f.view.to), this.model.store.last + 1);
    const from = Math.max(0, Math.floor(f.view.from));
    setText(this.range, end <= from ? "no steps yet" :
      `steps ${count(from)}–${count(end - 1)}${k > 1 ? `, a tooth is the mean of ${k}` : ""}`);
    setText(this.words, summary(this.model, f.sums));
    this.canvas.dataset.teeth = teeth.length;
  }

  stepAtX(x) {
    const { view, plotWidth } = this.last;
    return view.from + (x / plotWidth) * (view.to - view.from);
  }

  placeAt({ x }) {
    return this.last.scale.toothAt(x);
  }

  placeToSpeak() {
    return this.last.scale.teeth.at(-1) ?? null;
  }

  figures(lane, tooth) {
    return toothFigures(lane, tooth);
  }
}

/** One sentence: who waits how much, over the steps on the screen. */
function summary(model, sums) {
  const { store, flagged } = model;
  const all = Array.from({ length: store.ranks }, (_, r) => r).filter((r) => sums.steps[r] > 0);
  if (all.length === 0) return "No steps have come in yet.";
  const others = all.filter((r) => !flagged.has(r));
  const slow = all.filter((r) => flagged.has(r));
  if (slow.length && others.length) {
    const name = slow.length === 1 ? `Rank ${slow[0]} waits` : `The ${slow.length} slow ranks wait`;
    const rest = others.length === 1 ? "the other rank waits" : `the other ${count(others.length)} wait`;
    return `${name} ${percent(idleShare(sums, slow))} of the time shown; ${rest} ${percent(idleShare(sums, others))}.`;
  }
  return `${counted(all.length, "rank")} ${all.length === 1 ? "waits" : "wait"} ${percent(idleShare(sums, all))} of the time shown, on average.`;
}

function legend() {
  const entry = (kind, text) => h("li", {}, h("i", { class: `swatch ${kind}` }), text);
  return h("ul", { class: "legend", "aria-label": "Legend" },
    PHASES.map((name) => entry(name, name)),
    entry("comm", "exposed communication (half height)"), entry("wait", "waiting (floor)"),
    h("li", {}, h("span", { class: "mark-last", "aria-hidden": "true" }, "▼"), "arrived last at the barrier"));
}
