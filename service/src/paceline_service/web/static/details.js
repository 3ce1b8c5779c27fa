// The true order within steps, fetched in pages from the API as it comes into view and forgotten
// again when it is far away. Zoomed out, nothing is fetched: the steps' sums are enough there.

import { ApiError } from "./api.js";
import { readTrace } from "./cells.js";

const SETTLE_MS = 150;
const SLICES_PER_PAGE = 12_000;
const MAX_STEPS = 200; // a page; the API would take more
export const MAX_RANKS = 1024; // the API's limit
const MAX_PIECES = 600_000; // kept; about 30 MB
const REST = 0.5; // a collector that needs 100 ms for a page is left in peace for 50 ms,
const REST_FOLLOWING = 3; // or for 300 ms where this goes on all the time
const LIVE_MS = 2_000; // new steps are gathered for so long: a page costs the collector the same for one as for ten
const LOOK_MS = 200;
const RETRY_MS = 8_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** [336, 337, 338, 0] -> "0,336-338". */
export function rankRanges(ranks) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0, j = 0; i < sorted.length; i = j) {
    for (j = i + 1; j < sorted.length && sorted[j] === sorted[j - 1] + 1; j += 1);
    parts.push(j - i > 1 ? `${sorted[i]}-${sorted[j - 1]}` : `${sorted[i]}`);
  }
  return parts.join(",");
}

export class Details {
  #cells = new Map();
  #answered = new Map();
  #gone = new Set();
  #wanted = null;
  #timer = 0;
  #busy = false;
  #pieces = 0;
  #perCell = 12;
  #newest = -1;
  #liveAt = -Infinity;

  /** `onChange()` is called when cells came or the state changed. */
  constructor(model, onChange) {
    Object.assign(this, { model, onChange, state: "idle", version: 0 });
  }

  /** Slices that one rank has in one step, as far as seen. */
  get perCell() {
    return this.#perCell;
  }

  /** The cell of a rank in a step: undefined not asked for yet, null without data. */
  get(step, rank) {
    if (!this.#answered.get(step)?.has(rank)) return undefined;
    return this.#cells.get(step)?.get(rank) ?? null;
  }

  isGone(step) {
    return this.#gone.has(step);
  }

  /** What is on the screen now: steps [from, to) of `ranks`; null wants nothing. */
  want(wanted) {
    this.#wanted = wanted && { ...wanted, ranks: wanted.ranks.slice(0, MAX_RANKS) };
    if (wanted && this.state !== "failed") this.#timer ||= setTimeout(() => { this.#timer = 0; this.#load(); }, SETTLE_MS);
    else if (!wanted) this.#tell("idle");
  }

  forget() {
    this.#cells.clear();
    this.#answered.clear();
    this.#gone.clear();
    this.#pieces = 0;
    this.#newest = -1;
    this.version += 1;
  }

  #tell(state) {
    if (this.state === state) return;
    this.state = state;
    this.onChange();
  }

  async #load() {
    if (this.#busy) return;
    this.#busy = true;
    for (let query = this.#next(); query; query = this.#next()) {
      const early = this.#liveAt + LIVE_MS - performance.now();
      if (query.from > this.#newest && this.#newest >= 0) {
        if (early > 0) {
          this.#tell("idle");
          await pause(Math.min(early, LOOK_MS)); // somebody may go elsewhere meanwhile
          continue;
        }
        this.#liveAt = performance.now();
      }
      this.#tell("loading");
      const began = performance.now();
      try {
        this.#take(query, await this.model.get("timeline", { from: query.from, to: query.to, limit: query.to - query.from + 1, ranks: rankRanges(query.ranks) }));
      } catch (error) {
        if (!this.#refused(query, error)) break;
      }
      await pause((performance.now() - began) * (this.#wanted?.follow ? REST_FOLLOWING : REST));
    }
    this.#busy = false;
    if (this.state === "loading") this.#tell("idle");
  }

  /** Take note of a refusal; returns whether to go on at once. */
  #refused(query, error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 400)) {
      for (let step = query.from; step <= query.to; step += 1) this.#gone.add(step);
      this.#tell("gone");
      return true;
    }
    this.#tell("failed");
    setTimeout(() => { this.#tell("idle"); }, RETRY_MS);
    return false;
  }

  /** Return {from, to, ranks} of the next page, the newest steps first; null when all is there. */
  #next() {
    if (!this.#wanted) return null;
    const { from, to, ranks } = this.#wanted;
    const lacks = (step) => !this.#gone.has(step) && ranks.some((rank) => !this.#answered.get(step)?.has(rank));
    let last = Math.min(to, this.model.store.last + 1) - 1;
    while (last >= from && !lacks(last)) last -= 1;
    if (last < from) return null;
    const missing = ranks.filter((rank) => !this.#answered.get(last)?.has(rank));
    const most = Math.min(MAX_STEPS, Math.max(1, Math.floor(SLICES_PER_PAGE / this.#perCell / missing.length)));
    let first = last;
    while (first > from && last - first + 1 < most && lacks(first - 1)) first -= 1;
    // Steps are placed by their lowest rank: with it in every page they all agree.
    return { from: first, to: last, ranks: missing.includes(0) ? missing : [0, ...missing] };
  }

  #take(query, trace) {
    const { cells, slices } = readTrace(trace);
    const end = Math.max(query.from, Math.min(query.to, trace.otherData.last_step ?? query.to));
    for (let step = query.from; step <= end; step += 1) {
      if (!this.#answered.has(step)) this.#answered.set(step, new Set());
      for (const rank of query.ranks) this.#answered.get(step).add(rank);
      if (!this.#cells.has(step)) this.#cells.set(step, new Map());
      for (const [rank, cell] of cells.get(step) ?? []) {
        if (!this.#cells.get(step).has(rank)) this.#pieces += cell.kinds.length;
        this.#cells.get(step).set(rank, cell);
      }
    }
    this.#newest = Math.max(this.#newest, end);
    const seen = (end - query.from + 1) * query.ranks.length;
    this.#perCell = Math.max(4, slices / Math.max(1, seen));
    this.#forget();
    this.version += 1;
    this.onChange();
  }

  /** Forget the steps that are farthest from the screen. */
  #forget() {
    if (this.#pieces <= MAX_PIECES || !this.#wanted) return;
    const middle = (this.#wanted.from + this.#wanted.to) / 2;
    const far = [...this.#cells.keys()].sort((a, b) => Math.abs(b - middle) - Math.abs(a - middle));
    for (const step of far) {
      if (this.#pieces <= MAX_PIECES * 0.8) return;
      for (const cell of this.#cells.get(step).values()) this.#pieces -= cell.kinds.length;
      this.#cells.delete(step);
      this.#answered.delete(step);
    }
  }
}
