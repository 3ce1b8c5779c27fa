// Which steps are on the screen: shared by all charts.

export const MIN_SPAN = 0.02; // of a step: the timeline looks into one
const DEFAULT_SPAN = 16;
const LEAST_AT_FIRST = 6;
const GLIDE_MS = 220;

export class Viewport {
  #listeners = new Set();
  #animation = 0;
  last = -1;
  follow = true;
  span = DEFAULT_SPAN;
  from = 0;
  to = DEFAULT_SPAN;

  constructor(maxSpan) {
    this.maxSpan = maxSpan;
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  /** Show about `steps` steps as long as nobody has chosen otherwise. */
  suggest(steps) {
    if (this.chosen) return;
    const span = Math.max(LEAST_AT_FIRST, Math.floor(steps));
    if (span === this.span) return;
    this.span = span;
    if (this.follow) Object.assign(this, this.#clamp(this.last + 1 - span, this.last + 1));
  }

  /** Forget which steps there are; a view that was chosen is kept as far as it can be. */
  reset() {
    this.last = -1;
  }

  /** The newest step is now `last`; a following view moves with it. */
  setLast(last) {
    if (last <= this.last) return;
    const wasEmpty = this.last < 0;
    this.last = last;
    if (this.follow) this.#glide(this.#clamp(last + 1 - this.span, last + 1), wasEmpty);
    else this.#emit();
  }

  setFollow(follow) {
    this.follow = follow;
    if (follow) this.#glide(this.#clamp(this.last + 1 - this.span, this.last + 1));
    else this.#emit();
  }

  /** Show [from, to); stops following unless that is the newest end. */
  show(from, to, { glide = false } = {}) {
    const target = this.#clamp(from, to);
    this.chosen = true;
    this.span = target.to - target.from;
    this.follow = target.to >= this.last + 1;
    this.#glide(target, !glide);
  }

  pan(steps) {
    const { from, to } = this.target ?? this;
    this.show(from + steps, to + steps);
  }

  /** Zoom around `anchor` (a step); factor < 1 shows fewer steps. */
  zoom(factor, anchor = null) {
    const { from, to } = this.target ?? this;
    const span = Math.min(this.#most(), Math.max(MIN_SPAN, (to - from) * factor));
    const fixed = anchor ?? (this.follow ? to : (from + to) / 2);
    const share = (fixed - from) / (to - from);
    this.show(fixed - share * span, fixed + (1 - share) * span);
    this.span = span;
  }

  #most() {
    return Math.max(8, Math.min(this.maxSpan, this.last + 1));
  }

  #clamp(from, to) {
    const span = Math.min(this.#most(), Math.max(MIN_SPAN, to - from));
    const end = Math.max(span, this.last + 1);
    const start = Math.max(0, Math.min(from, end - span));
    return { from: start, to: start + span };
  }

  #glide(target, jump = false) {
    cancelAnimationFrame(this.#animation);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden;
    if (jump || still || Math.abs(target.to - this.to) > 4 * this.span) {
      this.target = null;
      Object.assign(this, target);
      this.#emit();
      return;
    }
    this.target = target;
    const start = { from: this.from, to: this.to, at: performance.now() };
    const frame = (now) => {
      const t = Math.min(1, Math.max(0, (now - start.at) / GLIDE_MS));
      const eased = 1 - (1 - t) ** 3;
      this.from = start.from + (target.from - start.from) * eased;
      this.to = start.to + (target.to - start.to) * eased;
      if (t < 1) this.#animation = requestAnimationFrame(frame);
      else this.target = null;
      this.#emit();
    };
    this.#animation = requestAnimationFrame(frame);
  }

  #emit() {
    for (const listener of this.#listeners) listener();
  }
}
