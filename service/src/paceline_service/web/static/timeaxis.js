// Real time from left to right: each step begins where the clock says, the time between two steps
// is there too, and one that is far longer than the others (a pause, a checkpoint) is cut short.

import { median } from "./timescale.js";

const CUT_AT_MEDIANS = 4;

export class TimeAxis {
  /** `timesOf(step)` returns {startWallNs, durationNs}, NaN where not known; `view` is in steps. */
  constructor(view, width, timesOf) {
    this.view = view;
    this.width = width;
    this.first = Math.max(0, Math.floor(view.from));
    this.end = Math.max(this.first + 1, Math.ceil(view.to));
    const n = this.end - this.first;
    this.starts = new Float64Array(n + 1).fill(NaN);
    this.durations = new Float64Array(n).fill(NaN);
    for (let i = 0; i <= n; i += 1) {
      const known = timesOf(this.first + i);
      if (known) this.starts[i] = known.startWallNs;
      if (known && i < n) this.durations[i] = known.durationNs;
    }
    this.#layOut(n);
  }

  #layOut(n) {
    this.real = new Float64Array(n);
    for (let i = 0; i < n; i += 1) {
      const whole = this.starts[i + 1] - this.starts[i];
      this.real[i] = whole > 0 ? whole : this.durations[i];
    }
    this.usual = median([...this.real].filter((ns) => ns > 0)) || 1e9;
    const limit = this.usual * CUT_AT_MEDIANS;
    this.drawn = this.real.map((ns) => (ns > 0 ? Math.min(ns, limit) : this.usual));
    this.real = this.real.map((ns) => (ns > 0 ? ns : this.usual));
    this.at = new Float64Array(n + 1);
    for (let i = 0; i < n; i += 1) this.at[i + 1] = this.at[i] + this.drawn[i];
    this.origin = this.#placeOf(this.view.from);
    this.scale = this.width / Math.max(1, this.#placeOf(this.view.to) - this.origin);
  }

  #placeOf(step) {
    const i = Math.min(this.drawn.length - 1, Math.max(0, Math.floor(step) - this.first));
    return this.at[i] + (step - this.first - i) * this.drawn[i];
  }

  /** Where a (fractional) step lies, px. */
  x(step) {
    return (this.#placeOf(step) - this.origin) * this.scale;
  }

  /** Where a moment lies that is `relNs` after the beginning of `step`, px. */
  xAt(step, relNs) {
    let i = Math.min(this.drawn.length - 1, Math.max(0, step - this.first));
    let rel = relNs;
    while (rel < 0 && i > 0) { i -= 1; rel += this.real[i]; }
    while (rel > this.real[i] && i + 1 < this.drawn.length) { rel -= this.real[i]; i += 1; }
    return (this.at[i] + (rel / this.real[i]) * this.drawn[i] - this.origin) * this.scale;
  }

  /** What lies at `x` px: {step, relNs, place (in steps), wallNs}. */
  under(x) {
    const place = this.origin + x / this.scale;
    let low = 0;
    let high = this.drawn.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.at[middle] <= place) low = middle;
      else high = middle - 1;
    }
    const share = (place - this.at[low]) / this.drawn[low];
    const relNs = share * this.real[low];
    return { step: this.first + low, relNs, place: this.first + low + share, wallNs: this.starts[low] + relNs };
  }

  /** Whether a step is drawn shorter than it was. */
  isCut(step) {
    const i = step - this.first;
    return i >= 0 && i < this.drawn.length && this.real[i] > this.drawn[i] * 1.001;
  }

  /** How long the view is by the clock, ns. */
  get spanNs() {
    let sum = 0;
    for (let i = 0; i < this.real.length; i += 1) {
      const share = Math.min(this.view.to, this.first + i + 1) - Math.max(this.view.from, this.first + i);
      if (share > 0) sum += share * this.real[i];
    }
    return sum;
  }
}

const NICE = [1, 2, 5];

/** Round moments of the wall clock within the axis: [{x, text, full}]; `full` ones name the second. */
export function clockTicks(axis, apart = 74) {
  const from = axis.under(0).wallNs;
  const to = axis.under(axis.width).wallNs;
  if (!(to > from)) return [];
  let every = 1e3;
  for (let i = 0; ((to - from) / every) * apart > axis.width; i += 1) every = 1e3 * NICE[i % 3] * 10 ** Math.floor(i / 3);
  if (every >= 1e10) every = [1e10, 1.5e10, 3e10, 6e10, 3e11, 6e11, 1.8e12, 3.6e12].find((ns) => ns >= every) ?? every;
  const ticks = [];
  let second = NaN;
  let last = -Infinity;
  for (let wall = Math.ceil(from / every) * every; wall <= to; wall += every) {
    const x = xOfWall(axis, wall);
    if (x === null || x - last < apart * 0.8) continue;
    last = x;
    const whole = Math.floor((wall + 500) / 1e9);
    const full = whole !== second;
    const seconds = full ? new Date(whole * 1e3).toLocaleTimeString([], { hour12: false }) : "";
    ticks.push({ x, text: seconds + fraction(wall, every), full });
    second = whole;
  }
  return ticks;
}

function xOfWall(axis, wall) {
  for (let i = axis.drawn.length - 1; i >= 0; i -= 1) {
    if (axis.starts[i] <= wall) return axis.xAt(axis.first + i, wall - axis.starts[i]);
  }
  return null;
}

/** ".050" where ticks are closer than a second. */
function fraction(wall, every) {
  if (every >= 1e9) return "";
  const digits = every >= 1e6 ? 3 : 6;
  const unit = 10 ** (9 - digits);
  const part = Math.round((wall % 1e9) / unit) % 10 ** digits;
  return `.${String(part).padStart(digits, "0")}`;
}
