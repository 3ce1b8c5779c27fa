// What is known of a job's steps: one row of typed arrays per step, indexed by global rank.

export const PHASES = ["host", "input", "forward", "backward", "optimizer", "copy", "checkpoint"];
const P = PHASES.length;
const BYTES = 72e6; // rows, without phases where only the lanes in sight have them
const PHASE_BYTES = 24e6;
const PHASED = 64; // up to so many ranks every step comes with its phases
export const BLOCK = 64; // steps whose sums are kept

/** Times are ns in Float32 (7 digits are plenty to draw); NaN where a rank has no data. */
function emptyRow(ranks, withPhases) {
  return {
    self: new Float32Array(ranks).fill(NaN),
    wait: new Float32Array(ranks).fill(NaN),
    comm: new Float32Array(ranks).fill(NaN),
    phases: withPhases ? new Float32Array(ranks * P).fill(NaN) : null,
    durationNs: NaN, startWallNs: NaN, slowest: -1, count: 1,
  };
}

export class StepStore {
  #rows = new Map();
  #bins = new Map();
  #blocks = new Map();
  #phased = [];
  #maxRows;

  constructor(worldSize) {
    this.ranks = Math.max(1, worldSize);
    this.first = Infinity;
    this.last = -1;
    this.version = 0; // goes up whenever something is added
    this.forgotten = 0; // goes up whenever phases had to make room
    this.#maxRows = Math.max(400, Math.floor(BYTES / (this.ranks * (this.ranks > PHASED ? 3 : 3 + P) * 4)));
  }

  /** Of how many steps phases are kept in a job where not all steps have them. */
  get phaseCapacity() {
    return this.ranks > PHASED ? Math.max(24, Math.floor(PHASE_BYTES / (this.ranks * P * 4))) : Infinity;
  }

  /** Take in a columnar `steps` object; returns whether anything was new. */
  add(columns) {
    const { ranks = [], steps = [] } = columns;
    this.version += 1;
    const top = ranks.reduce((a, b) => Math.max(a, b), -1);
    if (top >= this.ranks) this.#grow(top + 1);
    steps.forEach((step, i) => this.#addStep(step, i, columns));
    if (steps.length) this.#evict();
    return steps.length > 0;
  }

  #addStep(step, i, columns) {
    const phases = columns.phase_self_ns?.[i];
    let row = this.#rows.get(step);
    if (!row) this.#rows.set(step, (row = emptyRow(this.ranks, Boolean(phases))));
    if (phases && !row.phases) row.phases = new Float32Array(this.ranks * P).fill(NaN);
    if (phases && this.#phased.at(-1) !== step) this.#phased.push(step);
    row.durationNs = columns.duration_ns[i] ?? NaN;
    row.startWallNs = columns.start_wall_ns?.[i] ?? NaN;
    row.slowest = columns.slowest_rank?.[i] ?? -1;
    columns.ranks.forEach((rank, j) => {
      const self = columns.self_ns[i]?.[j];
      if (self === null || self === undefined) return;
      row.self[rank] = self;
      row.wait[rank] = columns.wait_ns[i][j] ?? NaN;
      row.comm[rank] = columns.comm_ns[i][j] ?? NaN;
      if (phases?.[j]) row.phases.set(phases[j].map((v) => v ?? NaN), rank * P);
    });
    this.first = Math.min(this.first, step);
    this.last = Math.max(this.last, step);
    this.#stale(step);
  }

  #stale(step) {
    for (const [k, bins] of this.#bins) bins.delete(Math.floor(step / k));
    this.#blocks.delete(Math.floor(step / BLOCK));
  }

  #grow(ranks) {
    for (const row of this.#rows.values()) {
      const bigger = emptyRow(ranks, Boolean(row.phases));
      for (const key of ["self", "wait", "comm", "phases"]) if (row[key]) bigger[key].set(row[key]);
      Object.assign(row, { self: bigger.self, wait: bigger.wait, comm: bigger.comm, phases: bigger.phases });
    }
    this.ranks = ranks;
    this.#bins.clear();
    this.#blocks.clear();
  }

  /** Forget the oldest rows, not those just fetched: live steps come at the end. */
  #evict() {
    const over = this.#phased.length - this.phaseCapacity;
    for (const step of over > 0 ? this.#phased.splice(0, over) : []) {
      const row = this.#rows.get(step);
      if (row && !this.#phased.includes(step)) row.phases = null;
      this.forgotten += 1;
    }
    if (this.#rows.size <= this.#maxRows) return;
    const steps = [...this.#rows.keys()].sort((a, b) => a - b);
    for (const step of steps.slice(0, this.#rows.size - this.#maxRows)) {
      this.#rows.delete(step);
      this.#stale(step);
    }
    this.first = steps[this.#rows.size ? steps.length - this.#rows.size : 0];
  }

  clear() {
    this.version += 1;
    this.#rows.clear();
    this.#bins.clear();
    this.#blocks.clear();
    this.#phased = [];
    this.first = Infinity;
    this.last = -1;
  }

  has(step) {
    return this.#rows.has(step);
  }

  get(step) {
    return this.#rows.get(step);
  }

  /** How many steps may be looked at at once without pushing each other out. */
  get capacity() {
    return this.#maxRows;
  }

  /** Return the sums of the loaded steps [b * BLOCK, (b + 1) * BLOCK) per rank: {self, wait, comm, steps}. */
  block(b) {
    if (!this.#blocks.has(b)) this.#blocks.set(b, this.sum(b * BLOCK, (b + 1) * BLOCK));
    return this.#blocks.get(b);
  }

  /** Return the sums of the loaded steps [first, end) per rank, Float64Arrays in ns, and the steps counted. */
  sum(first, end) {
    const [self, wait, comm, steps] = Array.from({ length: 4 }, () => new Float64Array(this.ranks));
    for (let step = first; step < end; step += 1) {
      const row = this.#rows.get(step);
      if (!row) continue;
      for (let r = 0; r < this.ranks; r += 1) {
        if (row.self[r] !== row.self[r]) continue;
        self[r] += row.self[r];
        wait[r] += row.wait[r] || 0;
        comm[r] += row.comm[r] || 0;
        steps[r] += 1;
      }
    }
    return { self, wait, comm, steps };
  }

  /** Return the mean of steps [b*k, (b+1)*k) as one row, or null where none is loaded. */
  bin(b, k) {
    if (k === 1) return this.#rows.get(b) ?? null;
    let bins = this.#bins.get(k);
    if (!bins) {
      if (this.#bins.size > 3) this.#bins.clear();
      this.#bins.set(k, (bins = new Map()));
    }
    if (!bins.has(b)) bins.set(b, this.#mean(b * k, (b + 1) * k));
    return bins.get(b);
  }

  #mean(from, to) {
    const rows = [];
    for (let step = from; step < to; step += 1) {
      const row = this.#rows.get(step);
      if (row) rows.push(row);
    }
    if (rows.length === 0) return null;
    const out = emptyRow(this.ranks, rows.some((row) => row.phases));
    out.count = rows.length;
    out.startWallNs = rows[0].startWallNs;
    out.durationNs = rows.reduce((sum, row) => sum + row.durationNs, 0) / rows.length;
    for (const key of ["self", "wait", "comm", "phases"]) if (out[key]) meanOf(rows, key, out[key]);
    out.slowest = mode(rows.map((row) => row.slowest));
    return out;
  }
}

function meanOf(rows, key, out) {
  const seen = new Uint16Array(out.length);
  out.fill(0);
  for (const row of rows) {
    const values = row[key];
    if (!values) continue;
    for (let i = 0; i < out.length; i += 1) {
      if (values[i] === values[i]) { out[i] += values[i]; seen[i] += 1; }
    }
  }
  for (let i = 0; i < out.length; i += 1) out[i] = seen[i] ? out[i] / seen[i] : NaN;
}

function mode(values) {
  const counts = new Map();
  let best = -1;
  for (const value of values) {
    counts.set(value, (counts.get(value) ?? 0) + 1);
    if (best < 0 || counts.get(value) > counts.get(best)) best = value;
  }
  return best;
}
