// One lane of the timeline. Where there is room a piece is drawn for all that the rank did, in its
// true order: full height it works, half height it communicates, on the floor it waits. Where
// there is not, or the order is not known, heights are shares: of the time, or of a node's ranks.

import { laneTimes } from "./lanes.js";
import { fillOf } from "./paint.js";
import { COMM, KINDS, WAIT } from "./cells.js";

const COMM_HEIGHT = 0.5;
const FLOOR_PX = 3;
const PIECE_PX = 2.5; // narrower on average, pieces are noise
const HIDDEN_PX = 2.5;

/** Paint `lane` within [y, y + height): step by step, or bins of `f.k` steps. */
export function drawSpans(context, f, lane, y, height) {
  if (f.k > 1) return drawBins(context, f, lane, y, height);
  const shares = new Shares(f.plotWidth);
  const bars = new Bars();
  for (let step = f.axis.first; step < f.axis.end; step += 1) {
    const cells = f.cellsOf(step, lane.ranks);
    if (!cells) addMean(bars, f, lane, step, step + 1, f.store.get(step));
    else if (cells.length === 1 && pieceWidth(f, step, cells[0]) >= PIECE_PX) drawPieces(context, f, step, cells[0], y, height);
    else for (const cell of cells) shares.add(f, step, cell);
  }
  shares.into(bars);
  bars.paint(context, f, y, height, f.colours["line-2"]);
  return undefined;
}

function pieceWidth(f, step, cell) {
  return cell.kinds.length ? (f.axis.x(step + 1) - f.axis.x(step)) / cell.kinds.length : Infinity;
}

function drawPieces(context, f, step, cell, y, height) {
  const { colours: c, axis, plotX, plotWidth } = f;
  const bottom = y + height;
  for (let i = 0; i < cell.kinds.length; i += 1) {
    const x0 = axis.xAt(step, cell.times[2 * i]);
    const x1 = axis.xAt(step, cell.times[2 * i + 1]);
    if (x1 < 0 || x0 > plotWidth) continue;
    const kind = cell.kinds[i];
    const tall = kind === WAIT ? FLOOR_PX : kind === COMM ? height * COMM_HEIGHT : height;
    context.fillStyle = fillOf(context, KINDS[kind], c);
    context.fillRect(plotX + x0, bottom - tall, Math.max(0.6, x1 - x0), tall);
    if (height >= 18) drawWords(context, f, cell, i, Math.max(0, x0), Math.min(plotWidth, x1), bottom - height / 2);
  }
  if (height < 18) return;
  context.fillStyle = fillOf(context, "comm", c);
  for (const { start, end } of cell.hidden) {
    const x0 = axis.xAt(step, start);
    const x1 = axis.xAt(step, end);
    if (x1 >= 0 && x0 <= plotWidth) context.fillRect(plotX + x0, y, Math.max(1, x1 - x0), HIDDEN_PX);
  }
}

/** The name of a piece, where it is wide enough to be read. */
function drawWords(context, f, cell, i, x0, x1, middle) {
  const { colours: c } = f;
  const kind = cell.kinds[i];
  const what = cell.about[i];
  const text = kind === WAIT ? `waits for rank ${what.last}` : kind === COMM ? what.op : KINDS[kind];
  context.font = f.fontSmall;
  if (x1 - x0 < context.measureText(text).width + 10) return;
  context.fillStyle = kind === WAIT ? c["ink-3"] : kind === COMM ? c.ink : c[`on-${text}`] ?? c.paper;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, f.plotX + (x0 + x1) / 2, kind === COMM ? middle - 6 : middle + 0.5);
}

function drawBins(context, f, lane, y, height) {
  const bars = new Bars();
  for (let bin = Math.floor(f.axis.first / f.k); bin * f.k < f.axis.end; bin += 1) {
    addMean(bars, f, lane, bin * f.k, (bin + 1) * f.k, f.store.bin(bin, f.k));
  }
  // Many steps in a few pixels: what little is waited must be seen too, so the bars begin above 0.
  bars.paint(context, f, y, height, f.colours.wait, f.barsFrom);
}

/** Add the shares of steps [first, end) of which only the sums are known. */
function addMean(bars, f, lane, first, end, row) {
  const times = laneTimes(row, lane.ranks);
  const x0 = f.axis.x(Math.max(first, f.axis.first));
  const slot = f.axis.x(Math.min(end, f.axis.end));
  if (x0 > f.plotWidth || slot < 0) return;
  if (!times) return bars.missing(x0, slot);
  // A step ends before the next one begins, where there is a gap between the two.
  const x1 = f.k > 1 ? slot : Math.min(slot, Math.max(x0 + 1, f.axis.xAt(first, row.durationNs)));
  const all = Math.max(1, times.self + times.comm + times.wait);
  const gap = x1 - x0 > 9 ? 1 : 0;
  bars.add(x0, x1 - gap, times.self / all, times.comm / all, times.wait / all);
}

/** Bars of stacked shares: work from below, communication on it, waiting above. */
class Bars {
  #bars = [];
  #missing = [];

  add(x0, x1, work, comm, wait) {
    if (x1 > x0) this.#bars.push(x0, x1, work, comm, wait);
  }

  missing(x0, x1) {
    this.#missing.push(x0, x1);
  }

  /** `low` is the share at the bottom. */
  paint(context, f, y, height, waiting, low = 0) {
    const { colours: c, plotX } = f;
    const bars = this.#bars;
    const rise = (share) => Math.max(0, (share - low) / (1 - low)) * height;
    const fill = (style, from, to) => {
      context.fillStyle = style;
      context.beginPath();
      for (let i = 0; i < bars.length; i += 5) {
        const [bottom, top] = [rise(from(bars, i)), rise(to(bars, i))];
        if (top > bottom) context.rect(plotX + bars[i], y + height - top, bars[i + 1] - bars[i], top - bottom);
      }
      context.fill();
    };
    fill(waiting, (b, i) => b[i + 2] + b[i + 3], (b, i) => b[i + 2] + b[i + 3] + b[i + 4]);
    fill(fillOf(context, "comm", c), (b, i) => b[i + 2], (b, i) => b[i + 2] + b[i + 3]);
    fill(c.work, () => 0, (b, i) => b[i + 2]);
    context.fillStyle = c["line-2"];
    for (let i = 0; i < this.#missing.length; i += 2) {
      context.fillRect(plotX + this.#missing[i], y + height / 2 - 1, this.#missing[i + 1] - this.#missing[i] - 0.5, 2);
    }
  }
}

/** What many cells do at each pixel: the share of them that works, communicates, waits. */
class Shares {
  constructor(width) {
    this.width = Math.ceil(width);
    this.sums = null;
  }

  add(f, step, cell) {
    this.sums ??= [new Float32Array(this.width), new Float32Array(this.width), new Float32Array(this.width)];
    for (let i = 0; i < cell.kinds.length; i += 1) {
      const kind = cell.kinds[i];
      const sum = this.sums[kind === WAIT ? 2 : kind === COMM ? 1 : 0];
      const x0 = Math.max(0, f.axis.xAt(step, cell.times[2 * i]));
      const x1 = Math.min(this.width, f.axis.xAt(step, cell.times[2 * i + 1]));
      for (let x = Math.floor(x0); x < x1; x += 1) sum[x] += Math.min(x + 1, x1) - Math.max(x, x0);
    }
  }

  /** Add runs of like columns as bars. */
  into(bars) {
    if (!this.sums) return;
    const [work, comm, wait] = this.sums;
    const like = (a, b) => Math.abs(a - b) < 0.02;
    for (let x = 0; x < this.width; ) {
      const all = work[x] + comm[x] + wait[x];
      if (all < 0.05) { x += 1; continue; }
      const [w, c] = [work[x] / all, comm[x] / all];
      let end = x + 1;
      for (; end < this.width; end += 1) {
        const sum = work[end] + comm[end] + wait[end];
        if (sum < 0.05 || !like(work[end] / sum, w) || !like(comm[end] / sum, c)) break;
      }
      bars.add(x, end, w, c, 1 - w - c);
      x = end;
    }
  }
}
