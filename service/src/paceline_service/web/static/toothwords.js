// One lane in one step, or in the mean of some, as figures: for tooltips and for what is spoken.

import { clock, count, duration, percent } from "./format.js";
import { laneTimes } from "./lanes.js";
import { PHASES } from "./steps.js";
import { median } from "./timescale.js";

/** The figures of one lane in one tooth {first, last, row, cut}, for the tooltip and the spoken line. */
export function toothFigures(lane, tooth) {
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

function difference(ns, typical) {
  if (!Number.isFinite(typical)) return "";
  const ahead = Math.abs(ns - typical) < typical * 0.005;
  return ahead ? "as the median" : `${ns > typical ? "+" : "−"}${duration(Math.abs(ns - typical))} to the median`;
}
