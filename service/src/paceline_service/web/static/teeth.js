// The sawtooth: per rank and step, full height while it works, half height while it communicates,
// a thin floor while it waits. Fast ranks drop to the floor together; the slow one never does.

import { drawAxisEnds, drawLanes, lanesEnd } from "./lanepaint.js";
import { laneTimes } from "./lanes.js";
import { fillOf, pointer } from "./paint.js";
import { PHASES } from "./steps.js";
import { tickEvery } from "./timescale.js";

const COMM_HEIGHT = 0.5;
const FLOOR_PX = 3;

/** Draw everything of one frame. `f` is the frame: sizes, lanes, teeth, colours, cursor. */
export function drawSawtooth(context, f) {
  drawLanes(context, f, (lane, y, height) => {
    for (const tooth of f.scale.teeth) drawTooth(context, f, lane, tooth, y, height);
  });
  drawBarriers(context, f, lanesEnd(f));
  drawAxis(context, f);
}

function drawTooth(context, f, lane, tooth, y, height) {
  const { colours: c } = f;
  const x0 = f.plotX + tooth.x0;
  const width = tooth.x1 - tooth.x0;
  const times = laneTimes(tooth.row, lane.ranks);
  const bottom = y + height;
  if (!times) {
    context.fillStyle = c["line-2"];
    context.fillRect(x0 + 1, y + height / 2 - 1, Math.max(1, width - 3), 2);
    return;
  }
  const span = Math.max(tooth.row.durationNs || 0, times.self + times.comm + times.wait, 1);
  const gap = width > 9 ? 1.5 : 0.5;
  const scale = (width - gap) / span;
  let x = x0 + gap / 2;
  const parts = times.phases ? PHASES.map((name, p) => [name, times.phases[p]]) : [["work", times.self]];
  const unknown = times.phases ? times.self - times.phases.reduce((a, b) => a + b, 0) : 0;
  if (unknown > times.self * 0.01) parts.unshift(["work", unknown]);
  for (const [name, ns] of parts) {
    const w = ns * scale;
    if (w <= 0) continue;
    context.fillStyle = fillOf(context, name, c);
    context.fillRect(x, y, w, height);
    if (w > 54 && height >= 18) {
      context.fillStyle = c[`on-${name}`] ?? c.paper;
      context.font = f.fontSmall;
      context.textAlign = "center";
      context.fillText(name, x + w / 2, y + height / 2 + 0.5);
    }
    x += w;
  }
  const w = times.comm * scale;
  context.fillStyle = fillOf(context, "comm", c);
  context.fillRect(x, bottom - height * COMM_HEIGHT, w, height * COMM_HEIGHT);
  x += w;
  context.fillStyle = c.wait;
  context.fillRect(x, bottom - FLOOR_PX, Math.max(0, times.wait * scale), FLOOR_PX);
  if (tooth.cut) drawTear(context, f, x0 + width * 0.5, y, height);
  if (lane.ranks.includes(tooth.row.slowest) && width > 8) {
    context.fillStyle = lane.role === "slow" ? c.bad : c["ink-2"];
    pointer(context, x0 + width - 4, y + 5, 3.6);
  }
}

function drawTear(context, f, x, y, height) {
  context.strokeStyle = f.colours.surface;
  context.lineWidth = 3;
  context.beginPath();
  for (let i = 0; i <= 4; i += 1) context.lineTo(x + (i % 2 ? 3 : -3), y + (i / 4) * height);
  context.stroke();
}

function drawBarriers(context, f, bottom) {
  context.strokeStyle = f.colours.line;
  context.lineWidth = 1;
  for (const tooth of f.scale.teeth) {
    const x = Math.round(f.plotX + tooth.x1) - 0.5;
    if (x < f.plotX || x > f.plotX + f.plotWidth) continue;
    context.beginPath();
    context.moveTo(x, f.axisPx - 5);
    context.lineTo(x, bottom);
    context.stroke();
  }
  if (f.hover) {
    context.fillStyle = f.colours["focus-soft"];
    const x0 = Math.max(0, f.hover.x0);
    context.fillRect(f.plotX + x0, f.axisPx, Math.min(f.plotWidth, f.hover.x1) - x0, bottom - f.axisPx);
  }
}

function drawAxis(context, f) {
  const { colours: c, view } = f;
  drawAxisEnds(context, f, "step");
  context.fillStyle = c["ink-3"];
  context.textAlign = "center";
  const every = Math.max(f.scale.k, tickEvery(view.to - view.from, Math.max(2, f.plotWidth / 64)));
  const end = f.plotX + f.plotWidth;
  for (let step = Math.ceil(view.from / every) * every; step < view.to; step += every) {
    const tooth = f.scale.teeth.find((t) => step >= t.first && step <= t.last);
    if (!tooth) continue;
    const x = f.plotX + (f.scale.xOf(tooth.first) + tooth.x1) / 2;
    if (x > f.plotX + 8 && x < end - 8) context.fillText(step.toLocaleString("en-US"), x, f.axisPx / 2);
  }
}
