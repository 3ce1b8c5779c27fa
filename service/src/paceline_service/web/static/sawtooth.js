// The sawtooth: per rank and step, full height while it works, half height while it communicates,
// a thin floor while it waits. Fast ranks drop to the floor together; the slow one never does.

import { percent } from "./format.js";
import { laneTimes } from "./lanes.js";
import { fillOf, pointer, textIn } from "./paint.js";
import { PHASES } from "./steps.js";
import { tickEvery } from "./timescale.js";

export const AXIS_PX = 26;
const COMM_HEIGHT = 0.5;
const FLOOR_PX = 3;

/** Draw everything of one frame. `f` is the frame: sizes, lanes, teeth, colours, cursor. */
export function drawSawtooth(context, f) {
  context.font = f.font;
  context.textBaseline = "middle";
  const first = Math.max(0, Math.floor(f.scrollTop / f.laneHeight));
  const last = Math.min(f.lanes.length, Math.ceil((f.scrollTop + f.height - AXIS_PX) / f.laneHeight));
  context.save();
  context.beginPath();
  context.rect(0, AXIS_PX, f.width, f.height - AXIS_PX);
  context.clip();
  for (let i = first; i < last; i += 1) {
    const y = AXIS_PX + i * f.laneHeight - f.scrollTop;
    drawLane(context, f, f.lanes[i], y, i === f.cursorLane);
  }
  context.restore();
  drawBarriers(context, f, Math.min(f.height, AXIS_PX + last * f.laneHeight - f.scrollTop));
  drawAxis(context, f);
}

function drawLane(context, f, lane, y, atCursor) {
  const { colours: c, plotX, plotWidth } = f;
  if (lane.role === "slow") {
    context.fillStyle = c["bad-soft"];
    context.fillRect(0, y, f.width, f.laneHeight);
    context.fillStyle = c.bad;
    context.fillRect(0, y, 4, f.laneHeight);
  }
  if (atCursor) {
    context.strokeStyle = c.focus;
    context.lineWidth = 1.5;
    context.strokeRect(1, y + 1, f.width - 2, f.laneHeight - 2);
  }
  drawLabel(context, f, lane, y);
  context.save();
  context.beginPath();
  context.rect(plotX, y, plotWidth, f.laneHeight);
  context.clip();
  const pad = f.laneHeight >= 24 ? 4 : 2;
  for (const tooth of f.scale.teeth) drawTooth(context, f, lane, tooth, y + pad, f.laneHeight - 2 * pad);
  context.restore();
  drawIdle(context, f, lane, y);
}

function drawLabel(context, f, lane, y) {
  const c = f.colours;
  const x = f.inset + (lane.inner ? 16 : 0) + (lane.kind === "node" ? 14 : 0);
  const middle = y + f.laneHeight / 2;
  const two = f.laneHeight >= 30 && (lane.role || (lane.kind === "rank" && f.showNodes && lane.node));
  if (lane.kind === "node") {
    context.fillStyle = c["ink-2"];
    context.beginPath();
    const left = f.inset;
    if (lane.open) { context.moveTo(left, middle - 2); context.lineTo(left + 8, middle - 2); context.lineTo(left + 4, middle + 4); }
    else { context.moveTo(left + 1, middle - 4); context.lineTo(left + 7, middle); context.lineTo(left + 1, middle + 4); }
    context.fill();
  }
  context.textAlign = "left";
  context.fillStyle = lane.role === "slow" ? c.bad : c.ink;
  context.font = lane.role === "slow" ? f.fontBold : f.font;
  const room = f.plotX - x - 8;
  const role = lane.role;
  textIn(context, two || !role ? lane.label : `${lane.label} · ${role}`, x, two ? middle - 6 : middle, room);
  context.font = f.fontSmall;
  if (!two) return;
  context.fillStyle = lane.role === "slow" ? c.bad : c["ink-3"];
  const node = f.showNodes && lane.kind === "rank" ? lane.node : "";
  textIn(context, [role, node].filter(Boolean).join(" · "), x, middle + 8, room);
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

function drawIdle(context, f, lane, y) {
  const c = f.colours;
  const share = f.idleOf(lane);
  const x = f.plotX + f.plotWidth + 12;
  const room = f.width - x - f.inset - 40;
  const height = Math.min(10, f.laneHeight - 8);
  const top = y + (f.laneHeight - height) / 2;
  context.fillStyle = c["line-2"];
  context.fillRect(x, top, room, height);
  if (Number.isFinite(share)) {
    context.fillStyle = lane.role === "slow" ? c.bad : c["ink-2"];
    context.fillRect(x, top, Math.max(1, Math.min(1, share / f.idleTop) * room), height);
  }
  context.fillStyle = lane.role === "slow" ? c.bad : c.ink;
  context.font = f.font;
  context.textAlign = "right";
  context.fillText(percent(share), f.width - f.inset, y + f.laneHeight / 2);
}

function drawBarriers(context, f, bottom) {
  context.strokeStyle = f.colours.line;
  context.lineWidth = 1;
  for (const tooth of f.scale.teeth) {
    const x = Math.round(f.plotX + tooth.x1) - 0.5;
    if (x < f.plotX || x > f.plotX + f.plotWidth) continue;
    context.beginPath();
    context.moveTo(x, AXIS_PX - 5);
    context.lineTo(x, bottom);
    context.stroke();
  }
  if (f.hover) {
    context.fillStyle = f.colours["focus-soft"];
    const x0 = Math.max(0, f.hover.x0);
    context.fillRect(f.plotX + x0, AXIS_PX, Math.min(f.plotWidth, f.hover.x1) - x0, bottom - AXIS_PX);
  }
}

function drawAxis(context, f) {
  const { colours: c, view } = f;
  context.font = f.fontSmall;
  context.fillStyle = c["ink-3"];
  context.textAlign = "left";
  context.fillText("step", f.inset, AXIS_PX / 2);
  const barX = f.plotX + f.plotWidth + 12;
  context.fillText(f.narrow ? "idle" : `idle share (bar: 0–${f.idleTop * 100} %)`, barX, AXIS_PX / 2);
  context.textAlign = "center";
  const every = Math.max(f.scale.k, tickEvery(view.to - view.from, Math.max(2, f.plotWidth / 64)));
  const end = f.plotX + f.plotWidth;
  for (let step = Math.ceil(view.from / every) * every; step < view.to; step += every) {
    const tooth = f.scale.teeth.find((t) => step >= t.first && step <= t.last);
    if (!tooth) continue;
    const x = f.plotX + (f.scale.xOf(tooth.first) + tooth.x1) / 2;
    if (x > f.plotX + 8 && x < end - 8) context.fillText(step.toLocaleString("en-US"), x, AXIS_PX / 2);
  }
}
