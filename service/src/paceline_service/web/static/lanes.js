// Which lanes to draw, and in which order: all of a small job, the telling ones of a large one.

import { BLOCK, PHASES } from "./steps.js";

export const ALL_AT_ONCE = 32; // ranks that fit on a screen one by one
const NOTABLE_FLAGGED = 4; // enough to see them beside the others

/** Totals per rank over loaded steps [from, to): Float64Arrays in ns, and the steps counted. */
export function totals(store, from, to) {
  const first = Math.max(0, Math.floor(from));
  const end = Math.ceil(to);
  const key = `${first}|${end}|${store.version}`;
  const kept = memo.get(store) ?? new Map();
  memo.set(store, kept);
  if (!kept.has(key)) {
    if (kept.size >= 4) kept.clear();
    kept.set(key, sum(store, first, end));
  }
  return kept.get(key);
}

/** Charts on one page ask for the same sums. */
const memo = new WeakMap();

/** Whole blocks of steps are summed once; what is left at both ends each time. */
function sum(store, first, end) {
  const firstBlock = Math.ceil(first / BLOCK);
  const endBlock = Math.floor(end / BLOCK);
  if (endBlock <= firstBlock) return store.sum(first, end);
  const out = store.sum(first, firstBlock * BLOCK);
  const rest = [store.sum(endBlock * BLOCK, end)];
  for (let b = firstBlock; b < endBlock; b += 1) rest.push(store.block(b));
  for (const part of rest) {
    for (const key of ["self", "wait", "comm", "steps"]) for (let r = 0; r < store.ranks; r += 1) out[key][r] += part[key][r];
  }
  return out;
}

/** Share of its time that lane `ranks` waited; NaN where nothing is known. */
export function idleShare(sums, ranks) {
  let wait = 0;
  let all = 0;
  for (const r of ranks) {
    wait += sums.wait[r];
    all += sums.wait[r] + sums.self[r] + sums.comm[r];
  }
  return all > 0 ? wait / all : NaN;
}

/** Mean self time a step of lane `ranks`, ns. */
export function meanSelf(sums, ranks) {
  let self = 0;
  let steps = 0;
  for (const r of ranks) { self += sums.self[r]; steps += sums.steps[r]; }
  return steps ? self / steps : NaN;
}

/** Return the ranks of every node, nodes in the order of their first rank. */
export function byNode(ranks, nodes) {
  const out = new Map();
  for (let rank = 0; rank < ranks; rank += 1) {
    const node = nodes?.[rank] ?? "";
    if (!out.has(node)) out.set(node, []);
    out.get(node).push(rank);
  }
  return out;
}

/** Return the lanes of `mode` ("notable", "nodes" or "all"). */
export function chooseLanes({ mode, store, nodes, flagged, pinned, open, sums, byRank }) {
  const lane = (rank, role = "") => ({
    key: `r${rank}`, kind: "rank", ranks: [rank], node: nodes?.[rank] ?? "",
    label: `rank ${rank}`, role: flagged.has(rank) ? "slow" : role,
  });
  const every = Array.from({ length: store.ranks }, (_, r) => r);
  if (mode === "all") return every.map((r) => lane(r, pinned.has(r) ? "pinned" : ""));
  if (mode === "nodes") {
    const first = [...pinned].filter((r) => r < store.ranks).map((r) => lane(r, "pinned"));
    return [...first, ...nodeLanes({ store, nodes, flagged, open, sums, byRank, lane })];
  }
  const known = every.filter((r) => sums.steps[r] > 0).sort((a, b) => meanSelf(sums, [b]) - meanSelf(sums, [a]));
  const lanes = new Map();
  const put = (ranks, role) => ranks.forEach((r) => { if (!lanes.has(r)) lanes.set(r, lane(r, role)); });
  put([...pinned].filter((r) => r < store.ranks), "pinned");
  put([...flagged].slice(0, NOTABLE_FLAGGED), "slow");
  const rest = known.filter((r) => !lanes.has(r) && !flagged.has(r));
  const middle = Math.max(0, (rest.length >> 1) - 1);
  put(rest.slice(0, 3), "slowest");
  put(rest.slice(middle, middle + 3), "median");
  put(rest.slice(-3), "fastest");
  return [...lanes.values()];
}

function nodeLanes({ store, nodes, flagged, open, sums, byRank, lane }) {
  const out = [];
  for (const [node, ranks] of byNode(store.ranks, nodes)) {
    const slow = ranks.filter((r) => flagged.has(r)).length;
    out.push({
      key: `n${node}`, kind: "node", ranks, node, label: node || "node unknown", open: open.has(node),
      role: slow ? "slow" : "", self: meanSelf(sums, ranks),
    });
  }
  out.sort((a, b) => (b.role === "slow") - (a.role === "slow") || (byRank ? 0 : (b.self || 0) - (a.self || 0)));
  return out.flatMap((node) => (node.open ? [node, ...node.ranks.map((r) => ({ ...lane(r), inner: true }))] : [node]));
}

/** Mean times of a lane in one step or tooth, ns: phases (or null), self, comm, wait; null if unknown. */
export function laneTimes(row, ranks) {
  if (!row) return null;
  let seen = 0;
  let phased = 0;
  const out = { self: 0, comm: 0, wait: 0, phases: new Array(PHASES.length).fill(0) };
  for (const r of ranks) {
    if (row.self[r] !== row.self[r]) continue;
    seen += 1;
    out.self += row.self[r];
    out.comm += row.comm[r] || 0;
    out.wait += row.wait[r] || 0;
    const at = r * PHASES.length;
    if (!row.phases || row.phases[at] !== row.phases[at]) continue;
    phased += 1;
    for (let p = 0; p < PHASES.length; p += 1) out.phases[p] += row.phases[at + p] || 0;
  }
  if (seen === 0) return null;
  for (const key of ["self", "comm", "wait"]) out[key] /= seen;
  out.phases = phased ? out.phases.map((v) => v / phased) : null;
  return out;
}
