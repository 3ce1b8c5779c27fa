// Who came last at each barrier of the timeline: a mark on its lane where it arrived, and a line
// through the lanes that stood still until then.

import { pointer } from "./paint.js";
import { COMM, WAIT } from "./cells.js";

const APART_PX = 11;
const LINE_PX = 10; // closer to each other, lines would say nothing
const MARK_PX = 5;
const LEAST_MARK_PX = 2.5;
const LEAST_LATE_PX = 1.5; // who came so little later than the first is marked when zoomed in
const STRIP_PX = 2.5;

/** Return the barriers of the visible lanes: {key, step, at, rank, lateNs, op, lanes: [from, to], last}. */
export function findBarriers(f) {
  const found = new Map();
  if (f.k > 1) return [];
  const touch = (step, key, i) => {
    const id = `${step}|${key}`;
    if (!found.has(id)) found.set(id, { id, key, step, at: NaN, rank: -1, lateNs: NaN, lanes: [i, i], last: -1, waiting: 0, op: "" });
    const one = found.get(id);
    one.lanes = [Math.min(one.lanes[0], i), Math.max(one.lanes[1], i)];
    return one;
  };
  for (let i = f.firstLane; i < f.endLane; i += 1) {
    for (let step = f.axis.first; step < f.axis.end; step += 1) {
      for (const cell of f.cellsOf(step, f.lanes[i].ranks) ?? []) {
        for (const last of cell.lasts) Object.assign(touch(step, last.key, i), { at: last.at, rank: last.last, lateNs: last.lateNs, last: i, about: last });
        cell.kinds.forEach((kind, p) => {
          if (kind !== WAIT && kind !== COMM) return;
          const what = cell.about[p];
          if (what.last < 0) return;
          const one = touch(step, what.key, i);
          one.op ||= what.op;
          one.about ??= what;
          if (one.rank < 0) one.rank = what.last;
          if (kind !== WAIT) return;
          one.waiting += 1;
          if (!(one.at === one.at)) one.at = cell.times[2 * p + 1];
        });
      }
    }
  }
  return [...found.values()].filter((one) => one.at === one.at).sort((a, b) => a.step - b.step || a.at - b.at);
}

/** Draw the lines of `barriers`, where they are not too close, and the one that is looked at. */
export function drawBarrierLines(context, f, barriers, chosen) {
  const { colours: c } = f;
  const xs = barriers.map((one) => f.axis.xAt(one.step, one.at));
  const inView = xs.filter((x) => x >= 0 && x <= f.plotWidth).length;
  const draw = (one, x) => {
    const top = Math.max(f.axisPx, f.axisPx + one.lanes[0] * f.laneHeight - f.scrollTop + 2);
    const bottom = Math.min(f.height, f.axisPx + (one.lanes[1] + 1) * f.laneHeight - f.scrollTop - 2);
    context.beginPath();
    context.moveTo(f.plotX + x, top);
    context.lineTo(f.plotX + x, bottom);
    context.stroke();
  };
  context.save();
  context.strokeStyle = c["ink-2"];
  context.lineWidth = 1;
  context.setLineDash([2, 3]);
  if (inView * LINE_PX < f.plotWidth) barriers.forEach((one, i) => { if (xs[i] >= 0 && xs[i] <= f.plotWidth && one.lanes[1] > one.lanes[0]) draw(one, xs[i]); });
  context.setLineDash([]);
  context.strokeStyle = c.focus;
  context.lineWidth = 2;
  barriers.forEach((one, i) => { if (one.id === chosen) draw(one, xs[i]); });
  context.restore();
}

/** Mark on `lane` where one of its ranks came last: per barrier, per step, or as a strip over many. */
export function drawLast(context, f, lane, y) {
  context.fillStyle = lane.role === "slow" ? f.colours.bad : f.colours["ink-2"];
  if (f.k > 1) return drawStrip(context, f, lane, y);
  const mark = (x, size) => {
    pointer(context, f.plotX + Math.min(f.plotWidth - size, Math.max(size, x)), y + size * 1.3, size);
    context.strokeStyle = f.colours.surface;
    context.lineWidth = 1;
    context.stroke();
  };
  const marks = [];
  for (let step = f.axis.first; step < f.axis.end; step += 1) {
    const cells = f.cellsOf(step, lane.ranks);
    if (cells) {
      for (const cell of cells) for (const last of cell.lasts) marks.push(markOf(f, step, last));
    } else if (lane.ranks.includes(f.store.get(step)?.slowest)) {
      const x = f.axis.xAt(step, f.store.get(step).durationNs);
      if (x - f.axis.x(step) > 8) marks.push({ x: x - 4, late: Infinity, size: MARK_PX });
    }
  }
  const taken = [];
  for (const { x, late, size } of marks.sort((a, b) => b.late - a.late)) {
    if (late < LEAST_LATE_PX || x < 0 || x > f.plotWidth || taken.some((other) => Math.abs(other - x) < APART_PX)) continue;
    taken.push(x);
    mark(x, size);
  }
  return undefined;
}

/** How late somebody came, px, makes the mark larger. */
function markOf(f, step, last) {
  const x = f.axis.xAt(step, last.at);
  const late = x - f.axis.xAt(step, last.at - last.lateNs);
  const share = last.lateNs / (0.1 * f.axis.usual);
  return { x, late, size: Math.min(MARK_PX, LEAST_MARK_PX + (MARK_PX - LEAST_MARK_PX) * share) };
}

function drawStrip(context, f, lane, y) {
  for (let bin = Math.floor(f.axis.first / f.k); bin * f.k < f.axis.end; bin += 1) {
    const row = f.store.bin(bin, f.k);
    if (!row || !lane.ranks.includes(row.slowest)) continue;
    const x0 = f.axis.x(Math.max(f.axis.first, bin * f.k));
    const x1 = f.axis.x(Math.min(f.axis.end, (bin + 1) * f.k));
    context.fillRect(f.plotX + x0, y, Math.max(1, x1 - x0), STRIP_PX);
  }
}
