// The sawtooth as a part of the page: canvas, toolbar, pointer, keyboard, summary in words.

import { h, setText } from "./dom.js";
import { clock, count, duration, percent } from "./format.js";
import { ALL_AT_ONCE, chooseLanes, idleShare, laneTimes, totals } from "./lanes.js";
import { prepare } from "./paint.js";
import { AXIS_PX, drawSawtooth } from "./sawtooth.js";
import { PHASES } from "./steps.js";
import { colours, onTheme } from "./theme.js";
import { layout, median } from "./timescale.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

const MAX_HEIGHT = 620;
const RECENT_STEPS = 40;
const STEP_PX = 54; // a step's width at first: a dozen or so, each easy to read
const IDLE_TOPS = [0.1, 0.25, 0.5, 1];
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

export class Timeline {
  cursor = null;
  hover = null;
  open = new Set();
  #frame = 0;
  #lanes = [];
  #lanesKey = "";

  constructor({ model, viewport, loader, mode, pinned, onPins, onMode }) {
    Object.assign(this, { model, viewport, loader, pinned, onPins, onMode });
    this.mode = mode ?? (model.store.ranks > ALL_AT_ONCE ? "notable" : "all");
    this.canvas = h("canvas", {
      tabindex: 0, role: "application", "aria-roledescription": "sawtooth chart",
      "aria-label": "Sawtooth: a lane per rank, steps from left to right", "aria-describedby": "sawtooth-words sawtooth-keys",
    });
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h("div", { class: "lanes" }, this.canvas, this.spacer);
    this.words = h("p", { class: "words", id: "sawtooth-words" });
    this.told = h("p", { class: "sr-only", "aria-live": "polite" });
    this.range = h("span", { class: "range" });
    this.followButton = h("button", { type: "button", class: "follow", on: { click: () => viewport.setFollow(!viewport.follow) } }, "Follow live");
    this.element = this.#build();
    this.#listen();
  }

  #build() {
    const { viewport } = this;
    const button = (label, title, click) => h("button", { type: "button", title, "aria-label": title, on: { click } }, label);
    const modes = this.model.store.ranks > 8 || Object.keys(this.model.nodes).length > 8
      ? h("label", { class: "choice" }, "Lanes ", this.#modeSelect()) : null;
    return h("section", { class: "card sawtooth", "aria-labelledby": "sawtooth-title" },
      h("div", { class: "card-head" },
        h("h2", { id: "sawtooth-title" }, "Sawtooth"), this.range, this.words,
        h("div", { class: "tools" }, modes, this.followButton,
          h("span", { class: "group" },
            button("←", "Earlier steps", () => viewport.pan(-this.#stride())),
            button("→", "Later steps", () => viewport.pan(this.#stride())),
            button("−", "More steps (zoom out)", () => viewport.zoom(2)),
            button("+", "Fewer steps (zoom in)", () => viewport.zoom(0.5)),
            button("All", "All steps", () => viewport.show(0, Infinity, { glide: false }))))),
      this.overviewSlot = h("div", {}),
      this.scroller,
      legend(),
      h("p", { class: "sr-only", id: "sawtooth-keys" },
        "Arrow left and right move over steps, up and down over lanes, plus and minus zoom, F follows live steps, Home and End go to the first and last step, Enter pins a lane or opens a node."),
      h("p", { class: "hint", "aria-hidden": "true" },
        "Drag to pan, Ctrl + wheel to zoom; keys: ← → + − F Home End, ↑ ↓ lane, Enter pins"),
      this.told);
  }

  #modeSelect() {
    const names = { notable: "telling ones", nodes: "by node", all: "all ranks" };
    const select = h("select", { on: { change: () => this.setMode(select.value) } },
      Object.entries(names).map(([value, name]) => h("option", { value, selected: value === this.mode }, name)));
    return select;
  }

  setMode(mode) {
    this.mode = mode;
    this.cursor = null;
    this.scroller.scrollTop = 0;
    this.onMode(mode);
    this.refreshLanes();
  }

  togglePin(rank) {
    if (this.pinned.has(rank)) this.pinned.delete(rank);
    else this.pinned.add(rank);
    this.onPins(this.pinned);
    this.refreshLanes();
  }

  #stride() {
    return Math.max(1, (this.viewport.to - this.viewport.from) / 4);
  }

  /** Choose the lanes anew; cheap enough for every report, not for every frame. */
  refreshLanes() {
    const { store, nodes, flagged } = this.model;
    const sums = totals(store, store.last + 1 - RECENT_STEPS, store.last + 1);
    const { mode, pinned, open } = this;
    this.#lanes = chooseLanes({ mode, store, nodes, flagged, pinned, open, sums });
    this.#lanesKey = this.#key();
    this.schedule();
  }

  #key() {
    const { store, flagged } = this.model;
    return [store.ranks, Math.floor(store.last / (RECENT_STEPS / 2)), [...flagged].join(), Object.keys(this.model.nodes).length].join("|");
  }

  schedule() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.canvas.isConnected) this.draw();
    });
  }

  get laneHeight() {
    const n = this.#lanes.length;
    if (n <= 4) return 54;
    if (n <= 8) return 42;
    return n <= 20 ? 32 : 22;
  }

  draw() {
    if (this.#lanesKey !== this.#key()) return this.refreshLanes();
    const { viewport, model, scroller } = this;
    const width = Math.floor(scroller.clientWidth);
    const narrow = width < 640;
    const content = AXIS_PX + this.#lanes.length * this.laneHeight;
    const height = Math.min(MAX_HEIGHT, content);
    scroller.style.height = `${height}px`;
    this.spacer.style.height = `${content - height}px`;
    const inset = narrow ? 12 : 18;
    const plotX = narrow ? 84 : 164;
    const plotWidth = Math.max(80, width - plotX - (narrow ? 92 : 190));
    viewport.suggest(plotWidth / STEP_PX);
    const view = { from: viewport.from, to: viewport.to };
    const context = prepare(this.canvas, width, height);
    const scale = layout(model.store, view, plotWidth);
    scale.teeth = scale.teeth.filter((tooth) => tooth.first <= model.store.last);
    const sums = totals(model.store, view.from, view.to);
    this.last = {
      width, height, inset, plotX, plotWidth, narrow, view, idleTop: topOf(this.#lanes, sums), scale, sums, lanes: this.#lanes, laneHeight: this.laneHeight,
      scrollTop: scroller.scrollTop, colours: colours(), showNodes: new Set(Object.values(model.nodes)).size > 1,
      cursorLane: document.activeElement === this.canvas && this.cursor ? this.cursor.lane : -1,
      hover: this.hover ? scale.teeth.find((t) => t.bin === this.hover.bin) : null,
      font: `12.5px ${FONT}`, fontBold: `600 12.5px ${FONT}`, fontSmall: `11px ${FONT}`,
      idleOf: (lane) => idleShare(sums, lane.ranks),
    };
    drawSawtooth(context, this.last);
    this.#describe();
    const firstLane = Math.floor(scroller.scrollTop / this.laneHeight);
    const shown = this.#lanes.slice(firstLane, firstLane + Math.ceil(height / this.laneHeight) + 1);
    this.loader.want("sawtooth", view.from, view.to, shown.flatMap((lane) => lane.ranks));
  }

  #describe() {
    const { viewport, model, last } = this;
    const { k } = last.scale;
    const end = Math.min(Math.ceil(viewport.to), model.store.last + 1);
    const from = Math.max(0, Math.floor(viewport.from));
    setText(this.range, end <= from ? "no steps yet" :
      `steps ${count(from)}–${count(end - 1)}${k > 1 ? `, a tooth is the mean of ${k}` : ""}`);
    setText(this.words, summary(model, last.sums));
    this.followButton.setAttribute("aria-pressed", String(viewport.follow));
    this.canvas.dataset.teeth = last.scale.teeth.length;
    this.canvas.dataset.lanes = last.lanes.length;
  }

  #listen() {
    const { canvas, viewport } = this;
    onTheme(() => this.schedule());
    viewport.onChange(() => this.schedule());
    new ResizeObserver(() => this.schedule()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => { hideTooltip(); this.schedule(); });
    canvas.addEventListener("keydown", (event) => this.#onKey(event));
    canvas.addEventListener("focus", () => { this.cursor ??= { lane: 0 }; this.schedule(); });
    canvas.addEventListener("blur", () => this.schedule());
    canvas.addEventListener("pointerleave", () => { this.hover = null; hideTooltip(); this.schedule(); });
    canvas.addEventListener("pointermove", (event) => this.#onMove(event));
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, from: viewport.from, to: viewport.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (this.drag && !this.drag.moved) this.#onClick(event);
      this.drag = null;
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      const span = viewport.to - viewport.from;
      if (event.ctrlKey || event.metaKey) viewport.zoom(Math.exp(event.deltaY / 300), this.#hit(event).step);
      else viewport.pan((event.deltaX / this.last.plotWidth) * span);
    }, { passive: false });
  }

  #hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const { plotX, plotWidth, scale, view, laneHeight, scrollTop } = this.last;
    const x = event.clientX - box.left - plotX;
    const y = event.clientY - box.top - AXIS_PX;
    const lane = y < 0 ? -1 : Math.floor((y + scrollTop) / laneHeight);
    const inPlot = x >= 0 && x <= plotWidth;
    return {
      lane: lane < this.#lanes.length ? lane : -1, tooth: inPlot ? scale.toothAt(x) : null,
      step: view.from + (Math.min(plotWidth, Math.max(0, x)) / plotWidth) * (view.to - view.from),
    };
  }

  #onMove(event) {
    if (!this.last) return;
    if (this.drag) {
      const dx = event.clientX - this.drag.x;
      if (Math.abs(dx) > 4) this.drag.moved = true;
      if (!this.drag.moved) return;
      hideTooltip();
      const steps = (dx / this.last.plotWidth) * (this.drag.to - this.drag.from);
      this.viewport.show(this.drag.from - steps, this.drag.to - steps);
      return;
    }
    const { lane, tooth } = this.#hit(event);
    this.hover = tooth;
    this.schedule();
    if (lane < 0 || !tooth) return hideTooltip();
    const { title, rows, note } = this.#figures(this.#lanes[lane], tooth);
    showTooltip(event.clientX, event.clientY, title, rows, note);
  }

  /** The figures of one lane in one tooth, for the tooltip and for the spoken line. */
  #figures(lane, tooth) {
    const times = laneTimes(tooth.row, lane.ranks);
    const steps = tooth.last > tooth.first ? `steps ${count(tooth.first)}–${count(tooth.last)}, mean` : `step ${count(tooth.first)}`;
    const when = clock(tooth.row?.startWallNs);
    const title = `${lane.label}${lane.kind === "rank" && lane.node ? ` on ${lane.node}` : ""} · ${steps} · ${when}`;
    if (!times) return { title, rows: [["no data from this rank here", ""]], note: "" };
    const typical = median([...tooth.row.self].filter((v) => v === v));
    const rows = times.phases ? PHASES.map((name, p) => [name, duration(times.phases[p]), name]) : [];
    const all = tooth.row.durationNs;
    rows.push(["works itself", `${duration(times.self)} (${difference(times.self, typical)})`],
      ["exposed communication", duration(times.comm), "comm"],
      ["waits", `${duration(times.wait)} (${percent(times.wait / all)})`, "wait"], ["step", duration(all)]);
    const slowest = tooth.row.slowest;
    const note = lane.ranks.includes(slowest) ? `▼ ${lane.kind === "node" ? `rank ${slowest}` : "this rank"} arrives last` : slowest >= 0 ? `waits for rank ${slowest}` : "";
    return { title, rows, note: tooth.cut ? `${note} · drawn shorter than it was` : note };
  }

  #onClick(event) {
    const { lane } = this.#hit(event);
    if (lane < 0) return;
    this.cursor = { lane };
    if (this.#lanes[lane].kind === "node") this.#activate(lane);
    this.schedule();
  }

  #activate(index) {
    const lane = this.#lanes[index];
    if (!lane) return;
    if (lane.kind === "rank") return this.togglePin(lane.ranks[0]);
    if (this.open.has(lane.node)) this.open.delete(lane.node);
    else this.open.add(lane.node);
    this.refreshLanes();
  }

  #onKey(event) {
    const { viewport } = this;
    const actions = {
      ArrowLeft: () => viewport.pan(-this.#stride()), ArrowRight: () => viewport.pan(this.#stride()),
      ArrowUp: () => this.#moveCursor(-1), ArrowDown: () => this.#moveCursor(1),
      "+": () => viewport.zoom(0.5), "=": () => viewport.zoom(0.5), "-": () => viewport.zoom(2),
      f: () => viewport.setFollow(!viewport.follow), F: () => viewport.setFollow(!viewport.follow),
      Home: () => viewport.show(0, viewport.to - viewport.from), End: () => viewport.setFollow(true),
      Enter: () => this.#activate(this.cursor?.lane ?? -1),
      Escape: () => hideTooltip(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  #moveCursor(by) {
    const lane = Math.max(0, Math.min(this.#lanes.length - 1, (this.cursor?.lane ?? -1) + by));
    this.cursor = { lane };
    const top = lane * this.laneHeight;
    const room = this.scroller.clientHeight - AXIS_PX - this.laneHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
    const tooth = this.last?.scale.teeth.at(-1);
    if (tooth) {
      const { title, rows, note } = this.#figures(this.#lanes[lane], tooth);
      setText(this.told, `${title}. ${rows.map(([name, value]) => `${name} ${value}`).join(", ")}. ${note}`);
    }
    this.schedule();
  }
}

function difference(ns, typical) {
  if (!Number.isFinite(typical)) return "";
  const ahead = Math.abs(ns - typical) < typical * 0.005;
  return ahead ? "as the median" : `${ns > typical ? "+" : "−"}${duration(Math.abs(ns - typical))} to the median`;
}

/** The end of the idle bars' scale: the same for all lanes, and round. */
function topOf(lanes, sums) {
  const most = lanes.reduce((top, lane) => Math.max(top, idleShare(sums, lane.ranks) || 0), 0);
  return IDLE_TOPS.find((top) => most <= top) ?? 1;
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
  return `${count(all.length)} ranks wait ${percent(idleShare(sums, all))} of the time shown, on average.`;
}

function legend() {
  const entry = (kind, text) => h("li", {}, h("i", { class: `swatch ${kind}` }), text);
  return h("ul", { class: "legend", "aria-label": "Legend" },
    PHASES.map((name) => entry(name, name)),
    entry("comm", "exposed communication (half height)"), entry("wait", "waiting (floor)"),
    h("li", {}, h("span", { class: "mark-last", "aria-hidden": "true" }, "▼"), "arrived last at the barrier"));
}
