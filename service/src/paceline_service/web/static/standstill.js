// The end of a timeline of a job that stands still: no step is complete any more, so behind the last
// one a strip says who has not come, and who waits since when. It is no part of the time axis.

import { span } from "./format.js";
import { title } from "./words.js";

const TAIL_PX = 150;
const KINDS = ["hang", "desync"];

/** Return the finding that says that the job stands still, or nothing. */
export function standing(report) {
  if ((report?.job.state ?? "running") === "ended") return undefined;
  return report?.findings.find((one) => KINDS.includes(one.kind) && one.last_step === null);
}

/** Return {finding, age, culprits} while the job stands still, else null. */
export function standstill(model) {
  const finding = standing(model.report);
  if (!finding) return null;
  const pending = new Map(model.rankRows.map((row) => [row.rank, row.pending_s ?? 0]));
  const longest = Math.max(0, ...pending.values());
  return { finding, pending, seconds: finding.collective?.age_s ?? (longest || null), culprits: new Set(finding.ranks ?? []) };
}

/** How much of the plot the strip takes: nothing where the newest step is not in view. */
export function tailWidth(model, view, plotWidth) {
  if (!standstill(model) || view.to < model.store.last + 1) return 0;
  return Math.min(TAIL_PX, Math.round(plotWidth * 0.3));
}

/** "The job hangs: rank 11 holds everyone up, for 3.1 min at all_reduce 1,443 of dp0." */
export function standstillWords(model) {
  const now = standstill(model);
  if (!now) return "";
  const { collective } = now.finding;
  const where = collective ? ` at ${collective.op} ${collective.seq} of ${collective.group}` : "";
  const since = now.seconds === null ? "" : `, for ${span(now.seconds)}`;
  return `${title(now.finding, model.report.job.steps)}${since}${where}.`;
}

/** What a lane does in the strip: [state, words]. */
export function tailOf(model, lane) {
  const now = standstill(model);
  const held = lane.ranks.filter((rank) => now.culprits.has(rank));
  const seconds = Math.max(0, ...lane.ranks.map((rank) => now.pending.get(rank) ?? 0));
  if (held.length) return ["missing", lane.kind === "node" ? `rank ${held[0]} has not come` : "has not come"];
  return ["waits", seconds > 0 ? `waits ${span(seconds)}` : "waits"];
}

/** Paint the strip of `lane` at f.tail; `y` and `height` as for its pieces. */
export function drawTail(context, f, model, lane, y, height) {
  const { colours: c } = f;
  const x = f.plotX + f.tail.x + 6;
  const width = f.tail.width - 6;
  const [state, words] = tailOf(model, lane);
  context.fillStyle = state === "missing" ? c.bad : c.wait;
  if (state === "missing") drawHatch(context, c, x, y, width, height);
  else context.fillRect(x, y + height - 3, width, 3);
  if (height < 14) return;
  context.font = state === "missing" ? f.fontBold : f.fontSmall;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const middle = [x + width / 2, y + height / 2];
  const room = context.measureText(words).width + 8;
  if (room > width) return;
  if (state === "missing") {
    context.fillStyle = c.surface;
    context.fillRect(middle[0] - room / 2, middle[1] - 8, room, 16);
  }
  context.fillStyle = state === "missing" ? c.bad : c["ink-3"];
  context.fillText(words, ...middle);
}

function drawHatch(context, c, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = c.bad;
  context.lineWidth = 2;
  context.beginPath();
  for (let at = -height; at < width; at += 8) {
    context.moveTo(x + at, y + height);
    context.lineTo(x + at + height, y);
  }
  context.stroke();
  context.strokeRect(x + 1, y + 1, width - 2, height - 2);
  context.restore();
}

/** The torn edge before the strip, and its heading. */
export function drawTailHead(context, f, model, bottom) {
  const { colours: c } = f;
  const x = f.plotX + f.tail.x + 1;
  context.strokeStyle = c["ink-3"];
  context.lineWidth = 1;
  context.beginPath();
  for (let y = f.axisPx, i = 0; y <= bottom; y += 6, i += 1) context.lineTo(x + (i % 2 ? 2 : -2), y);
  context.stroke();
  const { seconds } = standstill(model);
  context.font = f.fontSmall;
  context.fillStyle = c.bad;
  context.textAlign = "center";
  const texts = seconds === null ? ["stands still"] : [`stands still, ${span(seconds)}`, span(seconds)];
  const text = texts.find((one) => context.measureText(one).width < f.tail.width);
  if (text) context.fillText(text, x + f.tail.width / 2, f.axisPx * 0.75 + 1);
}
