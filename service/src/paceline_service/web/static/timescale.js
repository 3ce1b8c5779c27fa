// Where steps lie on the time axis. Steps are as wide as they were long, so a slow job looks slow;
// a step far longer than the others (start-up, a checkpoint) is cut and drawn torn.

const TOOTH_PX = 20;
const CUT_AT_MEDIANS = 4;

/** Return how many steps one drawn tooth averages: the power of two that keeps teeth readable. */
export function stepsPerTooth(view, width) {
  let k = 1;
  while (((view.to - view.from) / k) * TOOTH_PX > width) k *= 2;
  return k;
}

/** Return the teeth of `view` over `width` px: [{bin, first, last, row, x0, x1, cut}] and mappings. */
export function layout(store, view, width, k = stepsPerTooth(view, width)) {
  const firstBin = Math.floor(view.from / k);
  const lastBin = Math.ceil(view.to / k) - 1;
  const teeth = [];
  for (let bin = firstBin; bin <= lastBin; bin += 1) {
    const first = Math.max(bin * k, 0);
    const last = Math.min((bin + 1) * k, Math.ceil(view.to)) - 1;
    if (last >= first) teeth.push({ bin, first, last, row: store.bin(bin, k), x0: 0, x1: 0, cut: false });
  }
  const usual = median(teeth.map((tooth) => tooth.row?.durationNs).filter(Number.isFinite)) || 1;
  const limit = usual * CUT_AT_MEDIANS;
  let total = 0;
  for (const tooth of teeth) {
    const each = Number.isFinite(tooth.row?.durationNs) ? tooth.row.durationNs : usual;
    tooth.cut = each > limit;
    tooth.t0 = total;
    total += Math.min(each, limit) * (tooth.last - tooth.first + 1);
    tooth.t1 = total;
  }
  const timeAt = (step) => {
    const tooth = teeth.find((t) => step < t.last + 1) ?? teeth.at(-1);
    if (!tooth) return 0;
    const share = (step - tooth.first) / (tooth.last + 1 - tooth.first);
    return tooth.t0 + share * (tooth.t1 - tooth.t0);
  };
  const origin = timeAt(view.from);
  const scale = width / Math.max(1, timeAt(view.to) - origin);
  for (const tooth of teeth) {
    tooth.x0 = (tooth.t0 - origin) * scale;
    tooth.x1 = (tooth.t1 - origin) * scale;
  }
  return {
    teeth, k, usual,
    toothAt: (x) => teeth.find((t) => x >= t.x0 && x < t.x1) ?? null,
    xOf: (step) => (timeAt(step) - origin) * scale,
  };
}

/** Return the median of `values`, NaN when there are none. */
export function median(values) {
  if (values.length === 0) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/** Return a round tick distance (1, 2, 5, 10, ...) that gives at most `most` ticks. */
export function tickEvery(steps, most) {
  for (let base = 1; ; base *= 10) {
    for (const factor of [1, 2, 5]) if (steps / (base * factor) <= most) return base * factor;
  }
}
