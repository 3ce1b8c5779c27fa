// One tooltip for the whole page; what it shows is text, and it never takes focus.

import { fill, h } from "./dom.js";

const GAP_PX = 14;

const box = () => document.getElementById("tooltip");

/** Show `title` and rows of [name, value, kind?] beside the pointer. */
export function showTooltip(clientX, clientY, title, rows, note = "") {
  const tip = box();
  fill(
    tip,
    h("div", { class: "tip-title" }, title),
    h("dl", {}, rows.map(([name, value, kind]) => [
      h("dt", {}, kind ? h("i", { class: `swatch ${kind}` }) : null, name), h("dd", {}, value),
    ])),
    note ? h("div", { class: "tip-note" }, note) : null,
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = clientX + GAP_PX + width > innerWidth ? clientX - GAP_PX - width : clientX + GAP_PX;
  const y = Math.min(clientY + GAP_PX, innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(4, Math.round(x))}px, ${Math.max(4, Math.round(y))}px)`;
}

export function hideTooltip() {
  box().hidden = true;
}
