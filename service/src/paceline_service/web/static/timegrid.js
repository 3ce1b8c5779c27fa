// What lies around the lanes of the timeline: clock and steps on its axis, grid, torn edges, crosshair.

import { count } from "./format.js";
import { drawAxisEnds, lanesEnd } from "./lanepaint.js";
import { textIn } from "./paint.js";
import { clockTicks } from "./timeaxis.js";
import { tickEvery } from "./timescale.js";

/** The share at which zoomed-out bars begin: what is not work must be large enough to be seen. */
export function barsFrom({ lanes, sums }) {
  let most = 0;
  for (const { ranks } of lanes) {
    const of = (times) => ranks.reduce((sum, rank) => sum + times[rank], 0);
    const all = of(sums.self) + of(sums.wait) + of(sums.comm);
    if (all > 0) most = Math.max(most, 1 - of(sums.self) / all);
  }
  return [0.75, 0.5].find((share) => most * 2 <= 1 - share) ?? 0;
}

/** Where steps begin. */
export function drawGrid(context, f) {
  const bottom = lanesEnd(f);
  context.strokeStyle = f.colours.line;
  context.lineWidth = 1;
  context.beginPath();
  for (const step of stepTicks(f, 10)) {
    const x = Math.round(f.plotX + f.axis.x(step)) - 0.5;
    if (x < f.plotX) continue;
    context.moveTo(x, f.axisPx - 6);
    context.lineTo(x, bottom);
  }
  context.stroke();
}

/** Steps whose beginnings are at least about `apart` px from each other. */
function stepTicks(f, apart) {
  const every = Math.max(1, tickEvery(f.axis.end - f.axis.first, Math.max(2, f.plotWidth / apart)));
  const out = [];
  for (let step = Math.ceil(f.axis.first / every) * every; step < f.axis.end; step += every) out.push(step);
  return out;
}

/** A torn edge where a step is drawn shorter than it was. */
export function drawCuts(context, f) {
  context.strokeStyle = f.colours.surface;
  context.lineWidth = 3;
  const bottom = lanesEnd(f);
  for (let step = f.axis.first; f.k === 1 && step < f.axis.end; step += 1) {
    if (!f.axis.isCut(step)) continue;
    const x = f.plotX + (f.axis.x(step) + f.axis.x(step + 1)) / 2;
    if (x < f.plotX || x > f.plotX + f.plotWidth) continue;
    context.beginPath();
    for (let y = f.axisPx, i = 0; y <= bottom; y += 7, i += 1) context.lineTo(x + (i % 2 ? 3 : -3), y);
    context.stroke();
  }
}

export function drawTimeAxis(context, f) {
  const { colours: c, plotX } = f;
  const bars = f.barsFrom > 0 && !f.narrow ? ` · bars ${f.barsFrom * 100}–100 %` : "";
  drawAxisEnds(context, f, "time", `step${bars}`);
  const row = f.axisPx / 2;
  context.textAlign = "left";
  context.fillStyle = c["ink-3"];
  const taken = [];
  for (const { x, text } of clockTicks(f.axis).sort((a, b) => b.full - a.full || a.x - b.x)) {
    context.fillRect(plotX + x, row - 5, 1, 5);
    const end = x + context.measureText(text).width + 8;
    if (end > f.axis.width + 12 || taken.some((other) => x < other.end && other.x < end)) continue;
    taken.push({ x, end });
    context.fillText(text, plotX + x + 3, row - 9);
  }
  context.fillStyle = c["ink-2"];
  for (const step of stepTicks(f, 56)) {
    const x = Math.max(0, f.axis.x(step));
    const end = f.axis.x(step + 1);
    if (end - x < 20 && f.axis.x(step) < 0) continue;
    textIn(context, count(step), plotX + x + 4, row * 1.5 + 1, 60);
  }
}

export function drawCrosshair(context, f, { x }) {
  if (!(x >= 0)) return;
  context.fillStyle = f.colours.focus;
  context.fillRect(f.plotX + x, f.axisPx - 6, 1, lanesEnd(f) - f.axisPx + 6);
}
