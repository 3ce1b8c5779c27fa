// The superstep timeline as a part of the page: lanes over real time, in the order in which things
// happened, with the rank marked that everybody waited for.

import { drawBarrierLines, drawLast, findBarriers } from "./barriers.js";
import { Details, MAX_RANKS } from "./details.js";
import { setText } from "./dom.js";
import { count, duration } from "./format.js";
import { LaneChart } from "./lanechart.js";
import { drawLanes, lanesEnd } from "./lanepaint.js";
import { totals } from "./lanes.js";
import { drawSpans } from "./spans.js";
import { drawTail, drawTailHead, standstillWords, tailOf, tailWidth } from "./standstill.js";
import { TimeAxis } from "./timeaxis.js";
import { barsFrom, drawCrosshair, drawCuts, drawGrid, drawTimeAxis } from "./timegrid.js";
import { barrierWords, instantFigures, timelineLegend, timelineWords } from "./timelinewords.js";
import { toothFigures } from "./toothwords.js";

const ORDER_FROM_PX = 14; // a step narrower than this shows no order
const BIN_PX = 3;
const SLICES = 150_000; // drawn in their order at most; the lanes below show shares

const ORDER = {
  loading: "loading the order within steps …", failed: "the order within steps cannot be had at present",
  gone: "the order within these steps is not kept any more",
};

export class Timeline extends LaneChart {
  #barriers = [];
  #barrierKey = "";
  #barrierLanes = null;
  #chosen = "";

  constructor(parts) {
    super({
      ...parts,
      names: { id: "timeline", title: "Timeline", kind: "timeline", about: "Timeline: a lane per rank over real time, in true order" },
    });
    this.details = new Details(this.model, () => this.schedule());
  }

  get axisPx() {
    return 42;
  }

  legend() {
    return timelineLegend();
  }

  /** The steps begin anew. */
  forget() {
    this.details.forget();
  }

  moreKeys() {
    return { b: () => this.#stepBarrier(1), B: () => this.#stepBarrier(-1) };
  }

  keyWords() {
    return `${super.keyWords()} B and Shift B go from barrier to barrier and tell who came last.`;
  }

  keyHint() {
    return "Drag to pan, Ctrl + wheel or double click to zoom; keys as above, B and Shift + B: next and previous barrier";
  }

  sumsOf(view) {
    return totals(this.model.store, view.from, view.to);
  }

  paint(context, f) {
    const { model, details } = this;
    f.store = model.store;
    const steps = f.view.to - f.view.from;
    f.k = 1;
    while ((f.plotWidth / steps) * f.k < BIN_PX) f.k *= 2;
    const tail = tailWidth(model, f.view, f.plotWidth);
    f.tail = tail ? { x: f.plotWidth - tail, width: tail } : null;
    const end = Math.max(model.store.last + 1, f.view.from + 0.01); // there is no time behind the newest step
    const view = { from: f.view.from, to: Math.min(f.view.to, end) };
    f.axis = new TimeAxis(view, f.plotWidth - tail, (step) => model.timesOf(step));
    f.barsFrom = f.k > 1 ? barsFrom(f) : 0;
    f.ordered = f.plotWidth / steps >= ORDER_FROM_PX ? this.#orderedRanks(f) : new Set();
    f.cellsOf = (step, ranks) => {
      if (!f.ordered.has(ranks[0])) return null;
      const cells = [];
      for (const rank of ranks) {
        const cell = details.get(step, rank);
        if (cell === undefined) return null;
        if (cell) cells.push(cell);
      }
      return cells.length ? cells : null;
    };
    drawGrid(context, f);
    drawLanes(context, f, (lane, y, height) => {
      drawSpans(context, f, lane, y, height);
      drawLast(context, f, lane, y);
      if (f.tail) drawTail(context, f, model, lane, y, height);
    });
    this.#findBarriers(f);
    drawBarrierLines(context, f, this.#barriers, this.#chosen || this.#underPointer(f));
    drawCuts(context, f);
    drawTimeAxis(context, f);
    if (f.tail) drawTailHead(context, f, model, lanesEnd(f));
    if (this.hover) drawCrosshair(context, f, this.hover);
    const { first, end: behind } = f.axis;
    const inSight = { from: first, to: behind, ranks: [...f.ordered], follow: this.viewport.follow };
    details.want(f.ordered.size && model.store.last >= first ? inSight : null);
    this.loader.want("timeline", f.view.from, f.view.to);
  }

  /** Barriers depend on what is in sight, not on where the pointer is. */
  #findBarriers(f) {
    const key = [f.k, f.axis.first, f.axis.end, f.firstLane, f.endLane, f.ordered.size, this.details.version].join("|");
    if (key === this.#barrierKey && f.lanes === this.#barrierLanes) return;
    this.#barrierKey = key;
    this.#barrierLanes = f.lanes;
    this.#barriers = findBarriers(f);
    this.canvas.dataset.barriers = this.#barriers.length;
    this.canvas.dataset.ordered = this.#orderedCells(f);
  }

  /** Ranks whose order within steps is drawn: lanes of one rank first, then nodes as far as that goes. */
  #orderedRanks(f) {
    const room = Math.min(MAX_RANKS, SLICES / this.details.perCell / (Math.ceil(f.view.to) - Math.floor(f.view.from)));
    const lanes = f.lanes.slice(f.firstLane, f.endLane).sort((a, b) => a.ranks.length - b.ranks.length);
    const ranks = new Set();
    for (const lane of lanes) {
      if (ranks.size + lane.ranks.length <= Math.max(1, room)) for (const rank of lane.ranks) ranks.add(rank);
    }
    return ranks;
  }

  /** The barrier that the pointer's piece waits for. */
  #underPointer(f) {
    const { hover } = this;
    const cells = hover && f.lanes[hover.lane] ? f.cellsOf(hover.step, f.lanes[hover.lane].ranks) : null;
    for (const cell of cells?.length === 1 ? cells : []) {
      for (let i = 0; i < cell.kinds.length; i += 1) {
        if (cell.about[i] && cell.times[2 * i] <= hover.relNs && hover.relNs < cell.times[2 * i + 1]) return `${hover.step}|${cell.about[i].key}`;
      }
    }
    return "";
  }

  describe(f) {
    const { model, details } = this;
    const first = f.axis.first;
    const last = Math.min(f.axis.end, model.store.last + 1) - 1;
    const steps = last > first ? `steps ${count(first)}–${count(last)}` : `step ${count(first)}`;
    const order = f.ordered.size === 0 ? "zoom in for the order within steps" : ORDER[details.isGone(last) ? "gone" : details.state];
    setText(this.range, last < first ? "no steps yet" : [steps, duration(f.axis.spanNs), order].filter(Boolean).join(" · "));
    setText(this.words, [standstillWords(model), timelineWords(model, f)].filter(Boolean).join(" "));
    this.canvas.dataset.bin = f.k;
  }

  #orderedCells(f) {
    let cells = 0;
    for (let i = f.firstLane; i < f.endLane; i += 1) {
      for (let step = f.axis.first; f.ordered.size && step < f.axis.end; step += 1) cells += f.cellsOf(step, f.lanes[i].ranks)?.length ?? 0;
    }
    return cells;
  }

  stepAtX(x) {
    const { axis } = this.last;
    return axis.under(Math.min(x, axis.width)).place;
  }

  placeAt({ x, lane }) {
    if (this.last.tail && x > this.last.tail.x) return { x, lane, tail: true };
    return { ...this.last.axis.under(x), x, lane };
  }

  placeToSpeak() {
    const { axis } = this.last;
    if (this.last.tail) return { x: NaN, lane: -1, tail: true };
    const step = Math.min(axis.end - 1, this.model.store.last);
    return step < axis.first ? null : { step, relNs: NaN, x: NaN, lane: -1 };
  }

  figures(lane, place) {
    const f = this.last;
    if (place.tail) return { title: lane.label, rows: [["since the last step", tailOf(this.model, lane)[1]]], note: standstillWords(this.model) };
    const cells = f.cellsOf(place.step, lane.ranks);
    if (cells && place.relNs === place.relNs) return instantFigures(f, lane, place, cells, this.model);
    const bin = Math.floor(place.step / f.k);
    const tooth = { first: bin * f.k, last: (bin + 1) * f.k - 1, row: f.store.bin(bin, f.k), cut: f.axis.isCut(place.step) };
    return toothFigures(lane, tooth);
  }

  /** Go to the next or previous barrier, bring it into view and tell of it. */
  #stepBarrier(by) {
    const barriers = this.#barriers;
    const at = barriers.findIndex((one) => one.id === this.#chosen);
    const { axis, plotWidth } = this.last;
    const seen = barriers.findIndex((one) => axis.xAt(one.step, one.at) >= 0);
    const next = at >= 0 ? at + by : seen;
    const one = barriers[next];
    if (!one) {
      this.#chosen = "";
      if (barriers.length) this.viewport.pan(by * this.stride * 3);
      return setText(this.told, barriers.length ? "No more barriers on the screen; moved on."
        : "No barriers are shown here; zoom in until the order within steps is drawn.");
    }
    this.#chosen = one.id;
    const x = axis.xAt(one.step, one.at);
    if (x < 0 || x > plotWidth) this.viewport.pan(axis.under(x).place - (this.viewport.from + this.viewport.to) / 2);
    setText(this.told, barrierWords(one, this.model));
    return this.schedule();
  }
}
