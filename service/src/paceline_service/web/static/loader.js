// Fetches the steps that come into view and are not there yet, a few at a time.

import { PHASES } from "./steps.js";

const NUMBERS_PER_REQUEST = 120_000;
const SETTLE_MS = 120;
const PHASE_RANKS = 256;
const PHASE_STEPS = 200; // more on the screen, and phases are too narrow to be seen

export class StepLoader {
  #asked = new Set();
  #timer = 0;
  #wants = new Map();
  #busy = false;
  #forgotten = 0;

  constructor(model) {
    this.model = model;
  }

  /** `who` wants steps [from, to) of all ranks, and phases of `ranks` where not all steps have them. */
  want(who, from, to, ranks = []) {
    const shown = to - from <= Math.min(PHASE_STEPS, this.model.store.phaseCapacity / 2) ? ranks.slice(0, PHASE_RANKS) : [];
    this.#wants.set(who, { from: Math.max(0, Math.floor(from)), to: Math.ceil(to), ranks: shown });
    this.#timer ||= setTimeout(() => { this.#timer = 0; this.#load(); }, SETTLE_MS);
  }

  /** What was fetched is gone: it may be asked for again. */
  forget() {
    this.#asked.clear();
  }

  async #load() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let request = this.#nextOfAll(); request; request = this.#nextOfAll()) {
        this.model.addSteps(await this.model.get("steps", request));
      }
    } catch { /* asked steps stay blank; moving the view away and back asks for newer ones */ } finally {
      this.#busy = false;
    }
  }

  #nextOfAll() {
    for (const want of this.#wants.values()) {
      const request = this.#next(want);
      if (request) return request;
    }
    return null;
  }

  /** Return the query of the next request, newest steps first, or null. */
  #next({ from, to, ranks }) {
    const { store, allPhases } = this.model;
    if (this.#forgotten !== store.forgotten) {
      this.#forgotten = store.forgotten;
      for (const key of this.#asked) if (key.includes("/")) this.#asked.delete(key);
    }
    const end = Math.min(to - 1, store.last);
    const most = Math.max(1, Math.floor(NUMBERS_PER_REQUEST / (store.ranks * (allPhases ? 8 : 3))));
    const missing = this.#run(end, from, most, (step) => !store.has(step) && !this.#asked.has(`${step}`));
    if (missing) {
      for (let step = missing.from; step <= missing.to; step += 1) this.#asked.add(`${step}`);
      return { ...missing, limit: most, phases: allPhases ? 1 : null };
    }
    if (ranks.length === 0) return null;
    const lacks = (step, rank) => {
      const row = store.get(step);
      return row && row.self[rank] === row.self[rank] && !(row.phases?.[rank * PHASES.length] >= 0) && !this.#asked.has(`${step}/${rank}`);
    };
    const bare = this.#run(end, from, Math.max(1, Math.floor(NUMBERS_PER_REQUEST / (ranks.length * 8))), (step) => ranks.some((rank) => lacks(step, rank)));
    if (!bare) return null;
    const lacking = ranks.filter((rank) => lacks(bare.to, rank) || lacks(bare.from, rank));
    const chosen = lacking.length ? lacking : ranks;
    for (let step = bare.from; step <= bare.to; step += 1) {
      for (const rank of chosen) this.#asked.add(`${step}/${rank}`);
    }
    return { ...bare, limit: bare.to - bare.from + 1, ranks: chosen.join(","), phases: 1 };
  }

  /** Return the newest run {from, to} of at most `most` steps within [low, high] that `test` wants. */
  #run(high, low, most, test) {
    let to = high;
    while (to >= low && !test(to)) to -= 1;
    if (to < low) return null;
    let from = to;
    while (from > low && to - from + 1 < most && test(from - 1)) from -= 1;
    return { from, to };
  }
}
