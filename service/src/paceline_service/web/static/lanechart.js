// What every chart of lanes has: canvas, toolbar, pointer, touch, wheel, keyboard, spoken lines.
// A chart on top of it says how a frame is laid out and painted, and what its figures are.

import { h, setText } from "./dom.js";
import { gestures, stepKeys } from "./gestures.js";
import { idleShare } from "./lanes.js";
import { prepare } from "./paint.js";
import { colours, onTheme } from "./theme.js";
import { hideTooltip, showTooltip } from "./tooltip.js";
import { flagWord } from "./words.js";

const AXIS_PX = 26;
const MAX_HEIGHT = 620;
const PAGE_LANES = 16;
const IDLE_TOPS = [0.1, 0.25, 0.5, 1];
const MODES = { notable: "telling ones", nodes: "by node", all: "all ranks" };
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

export class LaneChart {
  cursor = null;
  hover = null;
  #frame = 0;

  /** `names`: id, title, kind (for screen readers), about (what the canvas shows). */
  constructor({ model, viewport, loader, choice, onMode, names }) {
    Object.assign(this, { model, viewport, loader, choice, onMode, names });
    const { id } = names;
    this.canvas = h("canvas", {
      tabindex: 0, role: "application", "aria-roledescription": names.kind,
      "aria-label": names.about, "aria-describedby": `${id}-words ${id}-keys`,
    });
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h("div", { class: "lanes" }, this.canvas, this.spacer);
    this.words = h("p", { class: "words", id: `${id}-words` });
    this.told = h("p", { class: "sr-only", "aria-live": "polite" });
    this.range = h("span", { class: "range" });
    this.followButton = h("button", { type: "button", class: "follow", on: { click: () => viewport.setFollow(!viewport.follow) } }, "Follow live");
    this.above = h("div", {});
    this.element = this.#build();
    this.#listen();
  }

  #build() {
    const { viewport, names } = this;
    const button = (label, title, click) => h("button", { type: "button", title, "aria-label": title, on: { click } }, label);
    return h("section", { class: `card ${names.id}`, "aria-labelledby": `${names.id}-title` },
      h("div", { class: "card-head" },
        h("h2", { id: `${names.id}-title` }, names.title), this.range, this.words,
        h("div", { class: "tools" }, this.choice.hasModes ? this.#modeSelect() : null, this.followButton,
          h("span", { class: "group" },
            button("←", "Earlier steps", () => viewport.pan(-this.stride)),
            button("→", "Later steps", () => viewport.pan(this.stride)),
            button("−", "More steps (zoom out)", () => viewport.zoom(2)),
            button("+", "Fewer steps (zoom in)", () => viewport.zoom(0.5)),
            button("All", "All steps", () => viewport.show(0, Infinity, { glide: false }))))),
      this.above, this.scroller, this.legend(),
      h("p", { class: "sr-only", id: `${names.id}-keys` }, this.keyWords()),
      h("p", { class: "hint", "aria-hidden": "true" }, this.keyHint()),
      this.told);
  }

  #modeSelect() {
    const select = h("select", { on: { change: () => this.setMode(select.value) } },
      Object.entries(MODES).map(([value, name]) => h("option", { value, selected: value === this.choice.mode }, name)));
    return h("label", { class: "choice" }, "Lanes ", select);
  }

  // What a chart adds.
  moreKeys() { return {}; }
  keyWords() {
    return "Arrow left and right move over steps, up and down over lanes, plus and minus zoom, F follows live steps, Home and End go to the first and last step, Enter pins a lane or opens a node.";
  }
  keyHint() {
    return "Drag to pan, Ctrl + wheel to zoom; keys: ← → + − F Home End, ↑ ↓ lane, Enter pins";
  }

  setMode(mode) {
    this.choice.mode = mode;
    this.cursor = null;
    this.scroller.scrollTop = 0;
    this.onMode(mode);
    this.refreshLanes();
  }

  get lanes() {
    return this.choice.lanes;
  }

  get stride() {
    return (this.viewport.to - this.viewport.from) / 4;
  }

  refreshLanes() {
    this.choice.refresh();
    this.schedule();
  }

  schedule() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.canvas.isConnected) this.draw();
    });
  }

  get axisPx() {
    return AXIS_PX;
  }

  get laneHeight() {
    const n = this.lanes.length;
    if (n <= 4) return 54;
    if (n <= 8) return 42;
    return n <= 20 ? 32 : 22;
  }

  draw() {
    this.choice.keepFresh();
    const { viewport, model, scroller, lanes, laneHeight } = this;
    const width = Math.floor(scroller.clientWidth);
    const narrow = width < 640;
    const { axisPx } = this;
    const content = axisPx + lanes.length * laneHeight;
    const height = Math.min(MAX_HEIGHT, content);
    scroller.style.height = `${height}px`;
    this.spacer.style.height = `${content - height}px`;
    const plotX = narrow ? 84 : 164;
    const plotWidth = Math.max(80, width - plotX - (narrow ? 92 : 190));
    this.beforeLayout(plotWidth);
    const view = this.viewOf(viewport);
    const context = prepare(this.canvas, width, height);
    const sums = this.sumsOf(view);
    const { scrollTop } = scroller;
    this.last = {
      width, height, axisPx, inset: narrow ? 12 : 18, plotX, plotWidth, narrow, view, sums, lanes, laneHeight, scrollTop, colours: colours(),
      firstLane: Math.max(0, Math.floor(scrollTop / laneHeight)),
      endLane: Math.min(lanes.length, Math.ceil((scrollTop + height - axisPx) / laneHeight)),
      idleTop: topOf(lanes, sums), showNodes: new Set(Object.values(model.nodes)).size > 1,
      cursorLane: document.activeElement === this.canvas && this.cursor ? this.cursor.lane : -1,
      font: `12.5px ${FONT}`, fontBold: `600 12.5px ${FONT}`, fontSmall: `11px ${FONT}`,
      idleOf: (lane) => idleShare(sums, lane.ranks), wordOf: (lane) => flagWord(model.report, lane.ranks),
    };
    this.paint(context, this.last);
    this.describe(this.last);
    this.followButton.setAttribute("aria-pressed", String(viewport.follow));
    this.canvas.dataset.lanes = lanes.length;
  }

  beforeLayout() {}

  viewOf({ from, to }) {
    return { from, to };
  }

  #listen() {
    const { canvas, viewport } = this;
    onTheme(() => this.schedule());
    viewport.onChange(() => this.schedule());
    this.choice.pins.onChange(() => this.refreshLanes());
    new ResizeObserver(() => this.schedule()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => { hideTooltip(); this.schedule(); });
    canvas.addEventListener("keydown", (event) => this.#onKey(event));
    canvas.addEventListener("focus", () => { this.cursor ??= { lane: 0 }; this.schedule(); });
    canvas.addEventListener("blur", () => this.schedule());
    gestures(canvas, {
      viewport, plot: () => ({ left: canvas.getBoundingClientRect().left + this.last.plotX, width: this.last.plotWidth, steps: viewport.to - viewport.from }),
      stepAt: (event) => this.hit(event).step,
      hover: (event) => this.#onHover(event), leave: () => this.#unhover(), click: (event) => this.#onClick(event),
    });
  }

  /** Return {lane, x, step} under the pointer; lane -1 where there is none. */
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const { plotX, plotWidth, laneHeight, scrollTop } = this.last;
    const x = event.clientX - box.left - plotX;
    const y = event.clientY - box.top - this.axisPx;
    const lane = y < 0 ? -1 : Math.floor((y + scrollTop) / laneHeight);
    const inside = Math.min(plotWidth, Math.max(0, x));
    return { lane: lane < this.lanes.length ? lane : -1, x, inPlot: x >= 0 && x <= plotWidth, step: this.stepAtX(inside) };
  }

  #onHover(event) {
    if (!this.last) return;
    const hit = this.hit(event);
    this.hover = hit.inPlot ? this.placeAt(hit) : null;
    this.schedule();
    if (hit.lane < 0 || !this.hover) return hideTooltip();
    const { title, rows, note } = this.figures(this.lanes[hit.lane], this.hover);
    showTooltip(event.clientX, event.clientY, title, rows, note);
  }

  #unhover() {
    this.hover = null;
    hideTooltip();
    this.schedule();
  }

  #onClick(event) {
    const { lane } = this.hit(event);
    if (lane < 0) return;
    this.cursor = { lane };
    if (this.lanes[lane].kind === "node") this.#activate(lane);
    this.schedule();
  }

  #activate(index) {
    const lane = this.lanes[index];
    if (!lane) return;
    if (lane.kind === "rank") return this.choice.pins.toggle(lane.ranks[0]);
    this.choice.toggleNode(lane.node);
    this.schedule();
  }

  #onKey(event) {
    const actions = {
      ...stepKeys(this.viewport),
      ArrowUp: () => this.#moveCursor(-1), ArrowDown: () => this.#moveCursor(1),
      PageUp: () => this.#moveCursor(-PAGE_LANES), PageDown: () => this.#moveCursor(PAGE_LANES),
      Enter: () => this.#activate(this.cursor?.lane ?? -1),
      ...this.moreKeys(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  #moveCursor(by) {
    const lane = Math.max(0, Math.min(this.lanes.length - 1, (this.cursor?.lane ?? -1) + by));
    this.cursor = { lane };
    this.reveal(lane);
    const place = this.last && this.placeToSpeak();
    if (place) this.speak(this.figures(this.lanes[lane], place));
    this.schedule();
  }

  /** Scroll so that a lane is in sight. */
  reveal(lane) {
    const top = lane * this.laneHeight;
    const room = this.scroller.clientHeight - this.axisPx - this.laneHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }

  speak({ title, rows, note }) {
    const figures = rows.map(([name, value]) => `${name} ${value}`).join(", ");
    setText(this.told, [title, figures, note].filter(Boolean).join(". "));
  }
}

/** The end of the idle bars' scale: the same for all lanes, and round. */
function topOf(lanes, sums) {
  const most = lanes.reduce((top, lane) => Math.max(top, idleShare(sums, lane.ranks) || 0), 0);
  return IDLE_TOPS.find((top) => most <= top) ?? 1;
}
