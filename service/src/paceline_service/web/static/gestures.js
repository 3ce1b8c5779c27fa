// Pointer, touch and wheel on a chart of steps: drag pans, two fingers or Ctrl + wheel zoom.

import { hideTooltip } from "./tooltip.js";

const CLICK_PX = 4;
const WHEEL_PER_E = 300;

/**
 * Make `canvas` move `on.viewport`. `on.plot()` is {left, width, steps}: where steps are drawn on the
 * page, and how many; `on` also has stepAt(event), hover(event), leave() and click(event).
 */
export function gestures(canvas, on) {
  const { viewport } = on;
  const down = new Map();
  let drag = null;

  const begin = () => {
    const xs = [...down.values()];
    drag = { xs, from: viewport.from, to: viewport.to, moved: drag?.moved ?? false };
  };
  const lift = (event) => {
    down.delete(event.pointerId);
    if (down.size) begin();
    else drag = null;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    down.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    begin();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId)) return on.hover(event);
    down.set(event.pointerId, event.clientX);
    const now = [...down.values()];
    if (Math.abs(now[0] - drag.xs[0]) > CLICK_PX || now.length > 1) drag.moved = true;
    if (!drag.moved) return;
    hideTooltip();
    move(on, drag, now);
  });
  canvas.addEventListener("pointerup", (event) => {
    const click = drag && !drag.moved;
    lift(event);
    if (click) on.click(event);
  });
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => on.leave());
  canvas.addEventListener("dblclick", (event) => viewport.zoom(0.4, on.stepAt(event)));
  canvas.addEventListener("wheel", (event) => {
    const zooms = event.ctrlKey || event.metaKey;
    if (!zooms && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (zooms) viewport.zoom(Math.exp(event.deltaY / WHEEL_PER_E), on.stepAt(event));
    else viewport.pan((event.deltaX / on.plot().width) * on.plot().steps);
  }, { passive: false });
}

/** Move the view so that the steps under the fingers stay under them. */
function move(on, drag, now) {
  const { left, width, steps: shown } = on.plot();
  const perPx = shown / width;
  if (now.length < 2) {
    const steps = (now[0] - drag.xs[0]) * perPx;
    return on.viewport.show(drag.from - steps, drag.to - steps);
  }
  const apart = (xs) => Math.max(20, Math.abs(xs[1] - xs[0]));
  const factor = apart(drag.xs) / apart(now);
  const middle = (xs) => (xs[0] + xs[1]) / 2 - left;
  const fixed = drag.from + middle(drag.xs) * perPx;
  const from = fixed - middle(now) * perPx * factor;
  on.viewport.show(from, from + (drag.to - drag.from) * factor);
}

/** What keys do on every chart of steps: {key: action}. */
export function stepKeys(viewport) {
  const stride = () => (viewport.to - viewport.from) / 4;
  const follow = () => viewport.setFollow(!viewport.follow);
  return {
    ArrowLeft: () => viewport.pan(-stride()), ArrowRight: () => viewport.pan(stride()),
    "+": () => viewport.zoom(0.5), "=": () => viewport.zoom(0.5), "-": () => viewport.zoom(2),
    f: follow, F: follow,
    Home: () => viewport.show(0, viewport.to - viewport.from), End: () => viewport.setFollow(true),
    Escape: () => hideTooltip(),
  };
}
