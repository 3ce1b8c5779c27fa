// Rank by step: how large a share of each step a rank waited. A slow rank is the row that never does.

import { h, setText } from "./dom.js";
import { count, counted, percent } from "./format.js";
import { gestures, stepKeys } from "./gestures.js";
import { byNode, idleShare, totals } from "./lanes.js";
import { prepare, ramp, textTailIn } from "./paint.js";
import { colours, onTheme } from "./theme.js";
import { tickEvery } from "./timescale.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

const STEPS = 120;
const AXIS_PX = 20;
const MAX_ROWS = 512;

export class Heatmap {
  #frame = 0;
  #image = document.createElement("canvas");

  constructor({ model, viewport, loader, onPick }) {
    Object.assign(this, { model, viewport, loader, onPick, row: -1 });
    this.canvas = h("canvas", {
      tabindex: 0, role: "application", "aria-roledescription": "heatmap",
      "aria-label": "Idle share by rank and step", "aria-describedby": "heat-words",
    });
    this.words = h("p", { class: "words", id: "heat-words" });
    this.told = h("p", { class: "sr-only", "aria-live": "polite" });
    this.low = h("span", {}, "0 %");
    this.high = h("span", {});
    this.element = h("section", { class: "card heat", "aria-labelledby": "heat-title" },
      h("div", { class: "card-head" }, h("h2", { id: "heat-title" }, "Who waits: every rank, every step"),
        h("div", { class: "heat-legend" }, "waits ", this.low, h("i", { class: "heat-ramp" }), this.high, " of the step")),
      this.words, this.wrap = h("div", { class: "heat-wrap" }, this.canvas),
      h("p", { class: "hint", "aria-hidden": "true" },
        "Bars: idle share over these steps. Click a row (or ↑ ↓ and Enter) to pin its rank's lane above; drag, wheel and keys move over steps as there"),
      this.told);
    onTheme(() => this.schedule());
    viewport.onChange(() => this.schedule());
    new ResizeObserver(() => this.schedule()).observe(this.wrap);
    this.#listen();
  }

  schedule() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.canvas.isConnected) this.draw();
    });
  }

  draw() {
    const { model, viewport } = this;
    const { store } = model;
    const width = Math.floor(this.wrap.clientWidth);
    const perRow = Math.ceil(store.ranks / MAX_ROWS);
    const rows = Math.ceil(store.ranks / perRow);
    const rowPx = Math.max(1, Math.min(12, Math.floor(420 / rows)));
    const height = AXIS_PX + rows * rowPx;
    const plotX = width < 640 ? 76 : 132;
    const plotWidth = Math.max(60, width - plotX - (width < 640 ? 56 : 116));
    const to = Math.min(store.last + 1, Math.max(Math.ceil(viewport.to), Math.min(STEPS, store.last + 1)));
    const from = Math.max(0, Math.min(Math.floor(viewport.from), to - STEPS));
    this.loader.want("heatmap", from, to);
    let perColumn = 1;
    while ((to - from) / perColumn > plotWidth / 2) perColumn *= 2;
    const context = prepare(this.canvas, width, height);
    if (to <= from) return;
    const sums = totals(store, from, to);
    const shares = rowShares(store, { from, to, rows, perRow, perColumn });
    const max = scaleTop(shares.values);
    this.last = { from, to, plotX, plotWidth, rowPx, rows, perRow, perColumn, shares, height, width };
    this.#drawCells(context, shares, max);
    this.#drawSides(context, sums);
    setText(this.high, `${percent(max)} or more`);
    this.#describe(sums, from, to);
  }

  #drawCells(context, { values, columns, firstBin }, max) {
    const c = colours();
    const { from, to, plotX, plotWidth, rowPx, rows, perColumn } = this.last;
    const table = Uint32Array.from(ramp(c["heat-0"], c["heat-1"], c["heat-2"]), ([r, g, b]) => r | (g << 8) | (b << 16) | (255 << 24));
    Object.assign(this.#image, { width: columns, height: rows });
    const inner = this.#image.getContext("2d");
    const image = inner.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < values.length; i += 1) {
      if (values[i] === values[i]) pixels[i] = table[Math.round(Math.min(1, Math.max(0, values[i] / max)) * 255)];
    }
    inner.putImageData(image, 0, 0);
    context.fillStyle = c["line-2"];
    context.fillRect(plotX, AXIS_PX, plotWidth, rows * rowPx);
    context.imageSmoothingEnabled = false;
    const left = from / perColumn - firstBin; // the first column may have begun before
    context.drawImage(this.#image, left, 0, (to - from) / perColumn, rows, plotX, AXIS_PX, plotWidth, rows * rowPx);
  }

  #drawSides(context, sums) {
    const c = colours();
    const { from, to, plotX, plotWidth, rowPx, rows, perRow, height, width } = this.last;
    const { flagged, store, nodes } = this.model;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = c["ink-3"];
    context.textAlign = "center";
    const stepPx = plotWidth / (to - from);
    const every = tickEvery(to - from, Math.max(2, plotWidth / 80));
    for (let step = Math.ceil(from / every) * every; step < to; step += every) {
      context.fillText(count(step), Math.max(plotX + 10, plotX + (step - from + 0.5) * stepPx), AXIS_PX / 2);
    }
    context.textAlign = "left";
    const barX = plotX + plotWidth + 10;
        this.#drawRowNames(context, c);
    const room = width - barX - 8;
    const shares = Array.from({ length: rows }, (_, i) => idleShare(sums, rankRange(i, perRow, store.ranks)));
    const top = Math.max(0.05, ...shares.filter(Number.isFinite));
    context.textAlign = "left";
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = c["ink-3"];
    context.fillText(`0–${percent(top)}`, barX, AXIS_PX / 2);
    shares.forEach((share, i) => {
      const slow = rankRange(i, perRow, store.ranks).some((r) => flagged.has(r));
      const y = AXIS_PX + i * rowPx;
      if (slow) {
        context.fillStyle = c.bad;
        context.fillRect(plotX - 5, y, 4, Math.max(rowPx, 1.5));
        context.fillRect(barX, y, 3, Math.max(rowPx, 1.5));
      }
      if (!Number.isFinite(share)) return;
      context.fillStyle = slow ? c.bad : c["ink-3"];
      context.fillRect(barX, y, Math.max(1, (share / top) * room), rowPx > 3 ? rowPx - 1 : rowPx);
    });
    context.strokeStyle = c.focus;
    context.lineWidth = 1.5;
    const x0 = plotX + Math.max(0, this.viewport.from - from) * stepPx;
    const x1 = plotX + Math.min(to - from, this.viewport.to - from) * stepPx;
    context.strokeRect(x0 + 0.75, AXIS_PX + 0.75, Math.max(2, x1 - x0 - 1.5), height - AXIS_PX - 1.5);
    if (this.row >= 0 && document.activeElement === this.canvas) {
      context.strokeRect(plotX - 6, AXIS_PX + this.row * rowPx - 1, plotWidth + 6, rowPx + 2);
    }
  }

  /** Names beside the rows: flagged ones always, nodes or ranks where there is room. */
  #drawRowNames(context, c) {
    const { plotX, rowPx, rows, perRow } = this.last;
    const { store, nodes, flagged } = this.model;
    const groups = [...byNode(store.ranks, nodes)].filter(([, ranks]) => ranks.length);
    const useNodes = groups.length > 1 && groups.length < store.ranks;
    const named = useNodes
      ? groups.map(([node, ranks]) => ({ name: node, rank: ranks[0], slow: ranks.some((r) => flagged.has(r)) }))
      : Array.from({ length: rows }, (_, i) => ({ name: `rank ${i * perRow}`, rank: i * perRow, slow: flagged.has(i * perRow) }));
    context.textAlign = "right";
    const taken = [];
    for (const entry of [...named.filter((e) => e.slow), ...named]) {
      const y = AXIS_PX + (entry.rank / perRow + 0.5) * rowPx + 3;
      if (taken.some((other) => Math.abs(other - y) < (entry.slow ? 13 : 26))) continue;
      taken.push(y);
      context.fillStyle = entry.slow ? c.bad : c["ink-3"];
      context.font = `${entry.slow ? "600 " : ""}11px system-ui, sans-serif`;
      const words = `slow ${entry.name}`; // on a narrow screen bold, and the mark beside it
      const fits = entry.slow && context.measureText(words).width <= plotX - 12;
      textTailIn(context, fits ? words : entry.name, plotX - 9, y, plotX - 12);
    }
  }

  #describe(sums, from, to) {
    const { store, flagged, nodes } = this.model;
    const ranks = Array.from({ length: store.ranks }, (_, r) => r).filter((r) => sums.steps[r] > 0);
    const slow = ranks.filter((r) => flagged.has(r));
    const rest = ranks.filter((r) => !flagged.has(r));
    const where = [...new Set(slow.map((r) => nodes[r]).filter(Boolean))].slice(0, 3).join(", ");
    const head = `Steps ${count(from)}–${count(to - 1)}, ${counted(ranks.length, "rank")}.`;
    setText(this.words, slow.length
      ? `${head} ${slow.length === 1 ? `Rank ${slow[0]}` : `The ${slow.length} slow ranks`}${where ? ` on ${where}` : ""} ${slow.length === 1 ? "waits" : "wait"} ${percent(idleShare(sums, slow))}, everyone else ${percent(idleShare(sums, rest))}.`
      : `${head} On average a rank waits ${percent(idleShare(sums, ranks))} of a step.`);
  }

  #rowAt(event) {
    if (!this.last) return null;
    const box = this.canvas.getBoundingClientRect();
    const { plotX, plotWidth, rowPx, rows, from, to } = this.last;
    const row = Math.floor((event.clientY - box.top - AXIS_PX) / rowPx);
    if (row < 0 || row >= rows) return null;
    const share = (event.clientX - box.left - plotX) / plotWidth;
    return { row, step: share >= 0 && share < 1 ? from + Math.floor(share * (to - from)) : null };
  }

  #say(row) {
    const { perRow } = this.last;
    const ranks = rankRange(row, perRow, this.model.store.ranks);
    return `${ranks.length > 1 ? `ranks ${ranks[0]}–${ranks.at(-1)}` : `rank ${ranks[0]}`} on ${this.model.nodes[ranks[0]] ?? "unknown node"}`;
  }

  #listen() {
    const { canvas } = this;
    const hover = (event) => {
      const hit = this.#rowAt(event);
      if (!hit || hit.step === null) return hideTooltip();
      const { shares, perRow, perColumn } = this.last;
      const bin = Math.floor(hit.step / perColumn);
      const value = shares.values[hit.row * shares.columns + bin - shares.firstBin];
      const steps = perColumn > 1 ? `steps ${count(bin * perColumn)}–${count((bin + 1) * perColumn - 1)}` : `step ${count(hit.step)}`;
      const notes = [perRow > 1 ? `the least of ${perRow} ranks` : "", perColumn > 1 ? `the mean of ${perColumn} steps` : ""];
      showTooltip(event.clientX, event.clientY, `${this.#say(hit.row)} · ${steps}`,
        [["waits", value === value ? percent(value) : "no data"]], notes.filter(Boolean).join(", "));
    };
    gestures(canvas, {
      viewport: this.viewport, hover, leave: hideTooltip, stepAt: (event) => this.#rowAt(event)?.step ?? null,
      plot: () => ({ left: canvas.getBoundingClientRect().left + this.last.plotX, width: this.last.plotWidth, steps: this.last.to - this.last.from }),
      click: (event) => {
        const hit = this.#rowAt(event);
        if (hit) this.onPick(rankRange(hit.row, this.last.perRow, this.model.store.ranks));
      },
    });
    canvas.addEventListener("focus", () => { this.row = Math.max(0, this.row); this.schedule(); });
    canvas.addEventListener("blur", () => this.schedule());
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -16, PageDown: 16 };
      const steps = stepKeys(this.viewport)[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" && this.row >= 0 && this.last) {
        this.onPick(rankRange(this.row, this.last.perRow, this.model.store.ranks));
      } else if (event.key in moves && this.last) {
        this.row = Math.max(0, Math.min(this.last.rows - 1, this.row + moves[event.key]));
        setText(this.told, this.#say(this.row));
        this.schedule();
      } else if (steps) steps();
      else return;
      event.preventDefault();
    });
  }
}

function rankRange(row, perRow, ranks) {
  const out = [];
  for (let r = row * perRow; r < Math.min(ranks, (row + 1) * perRow); r += 1) out.push(r);
  return out;
}

/** Idle share per row and column (row-major); a row of several ranks shows the one that waits least. */
function rowShares(store, { from, to, rows, perRow, perColumn }) {
  const firstBin = Math.floor(from / perColumn);
  const columns = Math.ceil(to / perColumn) - firstBin;
  const values = new Float32Array(rows * columns).fill(NaN);
  for (let column = 0; column < columns; column += 1) {
    const row = store.bin(firstBin + column, perColumn);
    if (!row) continue;
    for (let r = 0; r < store.ranks; r += 1) {
      const all = row.self[r] + row.wait[r] + row.comm[r];
      if (!(all > 0)) continue;
      const at = Math.floor(r / perRow) * columns + column;
      const share = row.wait[r] / all;
      if (!(values[at] <= share)) values[at] = share;
    }
  }
  return { values, columns, firstBin };
}

/** The share at the dark end: nearly the largest, at least 10 %, so that noise stays pale. */
function scaleTop(values) {
  const known = [];
  const every = Math.max(1, Math.floor(values.length / 20_000));
  for (let i = 0; i < values.length; i += every) if (values[i] === values[i]) known.push(values[i]);
  known.sort((a, b) => a - b);
  return Math.max(0.1, known[Math.floor(known.length * 0.95)] ?? 0.1);
}
