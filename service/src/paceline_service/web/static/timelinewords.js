// The timeline in words: its sentence, what is under the pointer, who came last at a barrier.

import { h } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { idleShare, laneTimes } from "./lanes.js";
import { PHASES } from "./steps.js";
import { COMM, KINDS, WAIT } from "./cells.js";

const MARK_NS_PX = 5; // so near the pointer a mark is meant

/** One sentence: who came last, how often, and how long everyone stood still for it. */
export function timelineWords(model, f) {
  const { store } = model;
  const times = new Map();
  const nodes = new Map();
  let steps = 0;
  for (let step = f.axis.first; step < Math.min(f.axis.end, store.last + 1); step += 1) {
    const row = store.get(step);
    if (!row) continue;
    steps += 1;
    if (row.slowest < 0) continue;
    const node = model.nodes[row.slowest] ?? "";
    times.set(row.slowest, (times.get(row.slowest) ?? 0) + 1);
    nodes.set(node, (nodes.get(node) ?? 0) + 1);
  }
  if (steps === 0) return "No steps have come in yet.";
  const [rank, most] = oftenest(times);
  const [node, nodeMost] = oftenest(nodes);
  if (most === 0) return `In ${steps === 1 ? "this step" : `these ${count(steps)} steps`} nobody was waited for.`;
  const often = (n) => (steps === 1 ? "in this step" : `in ${count(n)} of ${count(steps)} steps`);
  const waits = (is) => {
    const seen = Array.from({ length: store.ranks }, (_, r) => r).filter((r) => f.sums.steps[r] > 0);
    if (!seen.some(is)) return "it has sent nothing of them yet";
    return `it waits ${percent(idleShare(f.sums, seen.filter(is)))} of the time shown, the others ${percent(idleShare(f.sums, seen.filter((r) => !is(r))))}`;
  };
  if (most * 2 > steps) return `Rank ${rank} comes last ${often(most)}; ${waits((r) => r === rank)}.`;
  if (nodeMost * 2 > steps && node && new Set(Object.values(model.nodes)).size > 1) {
    return `One of ${node} comes last ${often(nodeMost)}; ${waits((r) => model.nodes[r] === node)}.`;
  }
  return `Ranks take turns in coming last, rank ${rank} most often, ${often(most)}; ${waits((r) => r === rank)}.`;
}

function oftenest(times) {
  return [...times].reduce((best, one) => (one[1] > best[1] ? one : best), [-1, 0]);
}

/** What `lane` does at one moment, where its order is known. */
export function instantFigures(f, lane, place, cells, model) {
  const on = lane.kind === "rank" && lane.node ? ` on ${lane.node}` : "";
  const title = `${lane.label}${on} · step ${count(place.step)} + ${duration(Math.max(0, place.relNs))}`;
  const now = cells.map((cell) => pieceAt(cell, place.relNs));
  const rows = lane.kind === "rank" ? [pieceRow(cells[0], now[0])] : crowdRows(cells, now);
  const times = laneTimes(model.store.get(place.step), lane.ranks);
  if (times) rows.push(["in this step: works", duration(times.self)], ["communicates", duration(times.comm), "comm"], ["waits", duration(times.wait), "wait"]);
  const notes = [lane.kind === "rank" ? pieceNote(cells[0], now[0]) : "", behind(lane, cells[0], place.relNs), lastNote(f, place, cells)];
  return { title, rows, note: notes.filter(Boolean).join(" · ") };
}

function pieceAt(cell, relNs) {
  for (let i = 0; i < cell.kinds.length; i += 1) if (cell.times[2 * i] <= relNs && relNs < cell.times[2 * i + 1]) return i;
  return -1;
}

const NAMES = { comm: "communicates", wait: "waits", work: "works" };

function pieceRow(cell, i) {
  if (i < 0) return ["between two steps", ""];
  const kind = KINDS[cell.kinds[i]];
  return [NAMES[kind] ?? kind, duration(cell.times[2 * i + 1] - cell.times[2 * i]), kind];
}

function pieceNote(cell, i) {
  if (i < 0 || !cell.about[i]) return "";
  const what = cell.about[i];
  return cell.kinds[i] === WAIT ? `until rank ${what.last} arrives at ${collective(what)}` : collective(what);
}

/** How many of a node's ranks do what. */
function crowdRows(cells, now) {
  const kinds = cells.map((cell, c) => (now[c] < 0 ? null : cell.kinds[now[c]]));
  const of = (test) => `${kinds.filter((kind) => kind !== null && test(kind)).length} of ${cells.length}`;
  return [["work", of((kind) => kind !== WAIT && kind !== COMM), "work"], ["communicate", of((kind) => kind === COMM), "comm"], ["wait", of((kind) => kind === WAIT), "wait"]];
}

function behind(lane, cell, relNs) {
  const one = lane.kind === "rank" ? cell.hidden.find(({ start, end }) => start <= relNs && relNs < end) : null;
  return one ? `behind it ${collective(one.about)}` : "";
}

function lastNote(f, place, cells) {
  const near = cells.flatMap((cell) => cell.lasts).find((last) => Math.abs(f.axis.xAt(place.step, last.at) - place.x) < MARK_NS_PX);
  return near ? `▼ rank ${near.last} arrives last, ${duration(near.lateNs)} after the first` : "";
}

function collective({ op, group, seq, bytes }) {
  return `${op || "a collective"} ${count(seq)} of ${group}${bytes > 0 ? `, ${size(bytes)}` : ""}`;
}

function size(bytes) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const value = bytes / 1024 ** power;
  return `${value >= 10 || power === 0 ? Math.round(value) : value.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** A barrier as a sentence, for the reader who cannot see the mark. */
export function barrierWords(one, model) {
  const where = model.nodes[one.rank] ? ` on ${model.nodes[one.rank]}` : "";
  const late = one.lateNs === one.lateNs ? `, ${duration(one.lateNs)} after the first` : "";
  return `Step ${count(one.step)}: rank ${one.rank}${where} comes last at ${collective({ ...one.about, op: one.op })}${late}; ${count(one.waiting)} of the ranks drawn wait for it.`;
}

export function timelineLegend() {
  const entry = (kind, text) => h("li", {}, h("i", { class: `swatch ${kind}` }), text);
  return h("ul", { class: "legend", "aria-label": "Legend" },
    PHASES.map((name) => entry(name, name)),
    entry("comm", "communicates (half height)"), entry("behind", "communicates behind its work (line on top)"), entry("wait", "waits (floor)"),
    h("li", {}, h("span", { class: "mark-last", "aria-hidden": "true" }, "▼"), "came last at a barrier"),
    h("li", {}, h("span", { class: "mark-barrier", "aria-hidden": "true" }), "barrier"),
    entry("shares", "stacked bars: shares of the time, or of a node's ranks"));
}
