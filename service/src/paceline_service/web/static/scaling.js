// How gamma changes with the number of ranks, and what a share of the time is worth. Figures only.
//
// A ring moves (n - 1) / n of the bytes through each rank. Where the batch of the whole job stays, a rank
// computes 1 / n of it; then gamma(n) = gamma (n - 1) / (N - 1), with N the ranks that it was measured at.

const DAY_S = 86_400;

/** Gamma at `ranks`, the batch of the whole job as it is; `gamma` was measured at `measured` ranks. */
export function gammaAt(ranks, gamma, measured) {
  return measured > 1 ? (gamma * (ranks - 1)) / (measured - 1) : NaN;
}

/** The most ranks at which exposed communication does not exceed compute; NaN where that is not known. */
export function breakEven(gamma, measured) {
  return measured > 1 && gamma > 0 ? Math.max(1, Math.floor(1 + (measured - 1) / gamma + 1e-9)) : NaN;
}

/** What gamma cannot exceed by adding ranks that bring their own share of the batch. */
export function gammaOfManyRanks(gamma, measured) {
  return measured > 1 ? (gamma * measured) / (measured - 1) : NaN;
}

/** How much faster a job is when steps lose `ratio` of their time: 0.2 of it makes it 1.25 times as fast. */
export function fasterBy(ratio) {
  return ratio < 1 ? 1 / (1 - ratio) - 1 : NaN;
}

/** GPU-seconds that `ratio` of the time of `ranks` is worth in a day. */
export function gpuSecondsADay(ratio, ranks) {
  return ratio * ranks * DAY_S;
}
