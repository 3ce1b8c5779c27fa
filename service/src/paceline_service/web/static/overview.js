// The whole job in one strip: step time over steps, what a finding covers, the window on screen.

import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { prepare } from "./paint.js";
import { colours, onTheme } from "./theme.js";
import { hideTooltip, showTooltip } from "./tooltip.js";
import { when } from "./words.js";

const HEIGHT = 48;
const TOP = 14;

export class Overview {
  #frame = 0;

  constructor({ model, viewport }) {
    Object.assign(this, { model, viewport });
    this.canvas = h("canvas", { role: "slider", tabindex: 0, "aria-label": "Steps on the screen, within the whole job", "aria-valuemin": 0 });
    this.element = h("div", { class: "overview" }, this.canvas);
    onTheme(() => this.schedule());
    viewport.onChange(() => this.schedule());
    new ResizeObserver(() => this.schedule()).observe(this.element);
    this.#listen();
  }

  schedule() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.canvas.isConnected) this.draw();
    });
  }

  get #domain() {
    const { steps } = this.model.history;
    const first = Math.max(0, steps[0] ?? 0);
    return { first, end: Math.max(first + 8, (steps.at(-1) ?? 0) + 1) };
  }

  draw() {
    const width = Math.floor(this.element.clientWidth);
    const context = prepare(this.canvas, width, HEIGHT);
    const c = colours();
    const { steps, durationNs } = this.model.history;
    const { first, end } = this.#domain;
    const xOf = (step) => ((step - first) / (end - first)) * width;
    const bottom = HEIGHT - 2;
    const columns = columnMeans(steps, durationNs, first, end, Math.max(1, Math.floor(width / 2)));
    const sorted = columns.filter(Number.isFinite).sort((a, b) => a - b);
    const top = (sorted[Math.floor(sorted.length * 0.98)] || 1) * 1.15;
    this.scale = { first, end, width };
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const finding of this.model.report?.findings ?? []) {
      if (finding.first_step === null) continue;
      const x = Math.max(0, xOf(finding.first_step));
      context.fillStyle = c["bad-soft"];
      context.fillRect(x, TOP - 2, xOf((finding.last_step ?? end) + 1) - x, bottom - TOP + 2);
    }
    context.fillStyle = c["ink-3"];
    columns.forEach((value, i) => {
      if (!Number.isFinite(value)) return;
      const tall = Math.min(1, value / top) * (bottom - TOP);
      context.fillRect((i / columns.length) * width, bottom - tall, Math.max(1, width / columns.length - 0.6), tall);
    });
    this.#drawMarks(context, c, xOf, width, bottom);
    const { from, to, last } = this.viewport;
    const x0 = Math.max(0, xOf(from));
    const x1 = Math.min(width, Math.max(xOf(to), x0 + 4));
    context.fillStyle = c["focus-soft"];
    context.fillRect(x0, TOP - 2, x1 - x0, bottom - TOP + 4);
    context.strokeStyle = c.focus;
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, TOP - 1.25, Math.max(2, x1 - x0 - 1.5), bottom - TOP + 2.5);
    this.canvas.setAttribute("aria-valuemax", String(Math.max(0, last)));
    this.canvas.setAttribute("aria-valuenow", String(Math.max(0, Math.round(to) - 1)));
    this.canvas.setAttribute("aria-valuetext", `steps ${count(Math.floor(from))} to ${count(Math.round(to) - 1)} of ${count(last + 1)}`);
  }

  #drawMarks(context, c, xOf, width, bottom) {
    context.fillStyle = c["ink-3"];
    context.textAlign = "left";
    const { steps } = this.model.history;
    context.fillText(steps.length ? `step time · steps ${count(steps[0])}–${count(steps.at(-1))}` : "step time", 0, 6);
    const worst = (this.model.report?.findings ?? []).find((finding) => finding.first_step !== null);
    if (!worst) return;
    const x = xOf(worst.first_step);
    const text = when(worst, this.model.report.job.steps);
    const room = context.measureText(text).width;
    if (x < 150 || x + 4 > width) return;
    context.fillStyle = c.bad;
    context.fillRect(x - 0.5, 2, 1.5, bottom - 2);
    const fits = x + 8 + room < width;
    context.textAlign = fits ? "left" : "right";
    context.fillText(text, fits ? x + 5 : x - 5, 6);
  }

  #stepAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { first, end, width } = this.scale;
    return first + ((event.clientX - box.left) / width) * (end - first);
  }

  #listen() {
    const { canvas, viewport } = this;
    const centre = (event) => {
      const half = (viewport.to - viewport.from) / 2;
      viewport.show(this.#stepAt(event) - half, this.#stepAt(event) + half);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.dragging = true;
      centre(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.scale) return;
      if (this.dragging) return centre(event);
      const step = Math.floor(this.#stepAt(event));
      const at = this.model.history.steps.indexOf(step);
      if (at < 0) return hideTooltip();
      showTooltip(event.clientX, event.clientY, `step ${count(step)}`, [["took", duration(this.model.history.durationNs[at])]]);
    });
    canvas.addEventListener("pointerup", () => { this.dragging = false; });
    canvas.addEventListener("pointercancel", () => { this.dragging = false; });
    canvas.addEventListener("pointerleave", () => hideTooltip());
    canvas.addEventListener("keydown", (event) => {
      const span = viewport.to - viewport.from;
      const moves = { ArrowLeft: -span / 4, ArrowRight: span / 4, PageDown: -span * 4, PageUp: span * 4 };
      if (event.key in moves) viewport.pan(moves[event.key]);
      else if (event.key === "Home") viewport.show(0, span);
      else if (event.key === "End") viewport.setFollow(true);
      else return;
      event.preventDefault();
    });
  }
}

function columnMeans(steps, values, first, end, columns) {
  const n = Math.min(columns, end - first);
  const sums = new Float64Array(n);
  const counts = new Uint32Array(n);
  steps.forEach((step, i) => {
    const at = Math.floor(((step - first) * n) / (end - first));
    if (at < 0 || at >= n || !Number.isFinite(values[i])) return;
    sums[at] += values[i];
    counts[at] += 1;
  });
  return Array.from(sums, (sum, i) => (counts[i] ? sum / counts[i] : NaN));
}
