// Reads the timeline of the API (a Chrome trace) into cells: what one rank did in one step, in its
// true order. A cell's pieces follow each other and never overlap; its times are ns since the step
// began on the lowest rank drawn, so that they need no clock but the one that the API put them on.

import { PHASES } from "./steps.js";

export const KINDS = [...PHASES, "work", "comm", "wait"];
export const WORK = KINDS.indexOf("work");
export const COMM = KINDS.indexOf("comm");
export const WAIT = KINDS.indexOf("wait");
const HOST = KINDS.indexOf("host");
const SLIVER_NS = 1000; // shorter, it is rounding and no time of the host

/** Return {cells: Map(step -> Map(rank -> cell)), slices} of a trace. */
export function readTrace(trace) {
  const drafts = new Map();
  const draft = (event) => {
    const { step } = event.args;
    if (!drafts.has(step)) drafts.set(step, new Map());
    const ranks = drafts.get(step);
    const rank = event.pid - 1;
    if (!ranks.has(rank)) ranks.set(rank, { step: null, phases: [], holes: [], hidden: [], lasts: [] });
    return ranks.get(rank);
  };
  let slices = 0;
  for (const event of trace.traceEvents) {
    if (event.ph === "X") {
      slices += 1;
      take(draft(event), event);
    } else if (event.ph === "i" && event.cat === "last arriver") {
      const { args } = event;
      draft(event).lasts.push({ at: event.ts * 1e3, lateNs: args.late_by_ns, ...about("", args) });
    }
  }
  const cells = new Map();
  for (const [step, ranks] of drafts) {
    const origin = originOf(ranks);
    cells.set(step, new Map([...ranks].map(([rank, one]) => [rank, cellOf(one, origin)])));
  }
  return { cells, slices };
}

function about(op, args) {
  return { op, group: args.group, seq: args.seq, bytes: args.bytes, last: args.last_arriver ?? -1, key: `${args.group}|${args.seq}|${args.peer ?? ""}` };
}

function take(draft, { cat, name, ts, dur, args }) {
  const start = ts * 1e3;
  const end = start + dur * 1e3;
  if (cat === "step") draft.step = { start, end };
  else if (cat === "phase") draft.phases.push({ start, end, kind: Math.max(PHASES.indexOf(name), HOST) });
  else if (cat === "wait") draft.holes.push({ start, end, kind: WAIT, about: about(args.for, args) });
  else if (cat === "collective") {
    const exposed = args.exposed_comm_ns ?? 0;
    const what = about(name, args);
    draft.hidden.push({ start, end, about: what });
    if (exposed > 0) draft.holes.push({ start: end - exposed, end, kind: COMM, about: what });
  }
}

/** When the step began on the lowest rank that tells of it. */
function originOf(ranks) {
  let lowest = Infinity;
  let origin = Infinity;
  for (const [rank, one] of ranks) {
    if (one.step && rank < lowest) { lowest = rank; origin = one.step.start; }
  }
  if (origin < Infinity) return origin;
  for (const one of ranks.values()) for (const piece of [...one.phases, ...one.hidden]) origin = Math.min(origin, piece.start);
  return origin < Infinity ? origin : 0;
}

const byStart = (a, b) => a.start - b.start;

function cellOf(draft, origin) {
  draft.holes.sort(byStart);
  draft.hidden.sort(byStart);
  const holes = apart(draft.holes);
  const pieces = [...bases(draft).flatMap((base) => without(base, holes)), ...holes].sort(byStart);
  const times = new Float32Array(pieces.length * 2);
  pieces.forEach((piece, i) => { times[2 * i] = piece.start - origin; times[2 * i + 1] = piece.end - origin; });
  return {
    times, kinds: Uint8Array.from(pieces, (piece) => piece.kind), about: pieces.map((piece) => piece.about ?? null),
    // What is left of a collective when the rank does not stand still for anything runs behind its work.
    hidden: draft.hidden.flatMap((one) => without(one, holes)).map((one) => ({ ...one, start: one.start - origin, end: one.end - origin })),
    lasts: draft.lasts.map((one) => ({ ...one, at: one.at - origin })).sort((a, b) => a.at - b.at),
  };
}

/** Sorted pieces cut so that none begins before the one before has ended. */
function apart(sorted) {
  const out = [];
  let reached = -Infinity;
  for (const piece of sorted) {
    const start = Math.max(piece.start, reached);
    if (piece.end > start) out.push({ ...piece, start });
    reached = Math.max(reached, piece.end);
  }
  return out;
}

/** What `holes` (one after the other) leave of `base`. */
function without(base, holes) {
  const out = [];
  let at = base.start;
  let first = 0;
  for (let end = holes.length; first < end; ) {
    const middle = (first + end) >> 1;
    if (holes[middle].end <= at) first = middle + 1;
    else end = middle;
  }
  for (let i = first; i < holes.length && holes[i].start < base.end; i += 1) {
    const hole = holes[i];
    if (hole.start - at > SLIVER_NS) out.push({ ...base, start: at, end: hole.start });
    at = Math.max(at, hole.end);
  }
  if (base.end - at > SLIVER_NS) out.push({ ...base, start: at });
  return out;
}

/** Phases, and the host's time between them, as far as the step goes. */
function bases({ step, phases, hidden }) {
  phases.sort(byStart);
  const whole = step ?? (phases.length ? null : span(hidden));
  if (phases.length === 0) return whole ? [{ ...whole, kind: WORK }] : [];
  const out = [];
  let at = whole?.start ?? phases[0].start;
  for (const phase of phases) {
    const start = phase.start - at > SLIVER_NS ? phase.start : at;
    if (start > at) out.push({ start: at, end: start, kind: HOST });
    if (phase.end > start) out.push({ ...phase, start });
    at = Math.max(at, phase.end);
  }
  if (whole && whole.end - at > SLIVER_NS) out.push({ start: at, end: whole.end, kind: HOST });
  return out;
}

function span(pieces) {
  if (pieces.length === 0) return null;
  return { start: pieces[0].start, end: pieces.reduce((end, piece) => Math.max(end, piece.end), -Infinity) };
}
