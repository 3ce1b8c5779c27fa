// What is drawn of a lane whatever its chart: background, cursor, label, bar of its idle share.

import { percent } from "./format.js";
import { textTailIn } from "./paint.js";

/** Draw all visible lanes of frame `f`; `inside(lane, y, height)` paints within the plot. */
export function drawLanes(context, f, inside) {
  context.textBaseline = "middle";
  clipped(context, 0, f.axisPx, f.width, f.height - f.axisPx, () => {
    for (let i = f.firstLane; i < f.endLane; i += 1) {
      const y = f.axisPx + i * f.laneHeight - f.scrollTop;
      const lane = f.lanes[i];
      drawBack(context, f, lane, y, i === f.cursorLane);
      drawLabel(context, f, lane, y);
      const pad = f.laneHeight >= 24 ? 4 : 2;
      clipped(context, f.plotX, y, f.plotWidth, f.laneHeight, () => inside(lane, y + pad, f.laneHeight - 2 * pad));
      drawIdle(context, f, lane, y);
    }
  });
}

/** Where the last visible lane ends. */
export function lanesEnd(f) {
  return Math.min(f.height, f.axisPx + f.endLane * f.laneHeight - f.scrollTop);
}

/** Run `draw` with everything outside a rectangle cut off. */
export function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

/** The words at both ends of the axis: one at the left for each of its rows, and what the bars mean. */
export function drawAxisEnds(context, f, ...names) {
  const row = f.axisPx / names.length;
  context.font = f.fontSmall;
  context.fillStyle = f.colours["ink-3"];
  context.textAlign = "left";
  context.textBaseline = "middle";
  names.forEach((name, i) => context.fillText(name, f.inset, row * (i + 0.5)));
  const text = f.narrow ? "idle" : `idle share (bar: 0–${f.idleTop * 100} %)`;
  context.fillText(text, f.plotX + f.plotWidth + 12, f.axisPx - row / 2);
}

function drawBack(context, f, lane, y, atCursor) {
  const { colours: c } = f;
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
  const role = lane.role === "slow" ? f.wordOf(lane) : lane.role;
  const name = f.narrow ? lane.label.replace(/^rank /, "") : lane.label;
  const whole = two || !role ? name : `${name} · ${role}`;
  const fits = context.measureText(whole).width <= room;
  textTailIn(context, fits ? whole : name, x, two ? middle - 6 : middle, room);
  context.font = f.fontSmall;
  if (!two) return;
  context.fillStyle = lane.role === "slow" ? c.bad : c["ink-3"];
  const node = f.showNodes && lane.kind === "rank" ? lane.node : "";
  textTailIn(context, f.narrow ? role || node : [role, node].filter(Boolean).join(" · "), x, middle + 8, room);
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
