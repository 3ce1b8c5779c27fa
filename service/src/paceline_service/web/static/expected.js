// The step that healthy ranks would take beside the one that is seen, and what the difference comes from.

import { fill, h, setText } from "./dom.js";
import { count, digits, duration, percent } from "./format.js";
import { card } from "./section.js";
import { standing } from "./standstill.js";

const MADE_OF = [["compute_s", "Compute", "compute"], ["communication_s", "Transfers", "transfers"], ["barrier_s", "Waiting for each other", "barrier"]];
const LOST_TO = [
  ["straggler", "Slow ranks"], ["network", "Slow network"], ["imbalance", "Uneven work"], ["host", "Late hosts and input"],
  ["slowdown", "All ranks slower than before"], ["unexplained", "Unexplained"],
];
const LEAST_SHARE = 0.0005; // of the step: what is less is not drawn
const NO_GAP = 0.01;
const SHOWN_FITS = 6;

export class ExpectedCard {
  #shown = "";

  constructor() {
    this.words = h("p", { class: "lead" }, "Waiting for the first report …");
    this.bars = h("div", { class: "step-bars", "aria-hidden": "true" });
    this.body = h("tbody");
    this.table = h("div", { class: "table-scroll", hidden: true }, h("table", { class: "plain" },
      h("caption", { class: "sr-only" }, "What a step is made of, and what it loses"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Part"), h("th", { scope: "col" }, "Per step"), h("th", { scope: "col" }, "Of expected"))), this.body));
    this.fits = h("tbody");
    this.fitted = h("details", { hidden: true }, h("summary", {}, "What was fitted from this job"),
      h("div", { class: "table-scroll" }, h("table", { class: "plain" },
        h("thead", {}, h("tr", {}, ["Ranks or group", "What", "Start-up (alpha)", "Out of a rank"].map((name, i) => h("th", { scope: "col", class: i < 2 ? "text" : null }, name)))), this.fits)),
      h("p", { class: "hint" }, "In brackets: 95 % intervals. Start-up is of the whole collective; bandwidth is what leaves a rank."));
    this.element = card({ id: "expected", title: "Expected step" }, this.words, this.bars, this.table, this.fitted);
  }

  update(report) {
    const { expected, calibration } = report;
    const still = Boolean(standing(report));
    const shown = JSON.stringify([still, expected, calibration?.transfers, calibration?.compute]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const known = Boolean(expected?.expected_step_s);
    setText(this.words, known ? lead(expected, still) : unknown(expected));
    this.table.hidden = this.bars.hidden = !known;
    if (known) {
      const parts = partsOf(expected);
      fill(this.bars, bars(expected, parts));
      fill(this.body, parts.map((part) => row(part, expected)));
    }
    const fits = calibration ? fitRows(calibration) : [];
    this.fitted.hidden = !fits.length;
    fill(this.fits, fits);
  }
}

/** Seconds -> "39.9 ms". */
function time(seconds) {
  return duration(seconds * 1e9);
}

function unknown(expected) {
  if (!expected) return "Not known: this report was made before such figures were.";
  return `Not known yet, for ${expected.reason}.`;
}

function lead(expected, still) {
  const [low, high] = expected.expected_step_interval_s;
  const begin = `${still ? "The job stands still. Before, a step took" : "A step takes"} ${time(expected.observed_step_s)}. With healthy ranks it would ${still ? "have taken" : "take"} ${time(expected.expected_step_s)} (${time(low)} to ${time(high)}), by this job’s own compute, start-up times and bandwidths: `;
  const { gap_ratio: gap } = expected;
  if (Math.abs(gap) < NO_GAP) return `${begin}it ${still ? "took" : "takes"} what it should.`;
  const [name] = LOST_TO.reduce((most, one) => (expected.gap_parts_s[one[0]] > expected.gap_parts_s[most[0]] ? one : most));
  const words = Object.fromEntries(LOST_TO)[name].toLowerCase();
  const is = still ? "was" : "is";
  return gap < 0 ? `${begin}it ${is} ${percent(-gap)} shorter.` : `${begin}it ${is} ${percent(gap)} longer, most of that: ${words}.`;
}

/** What a step is made of, then what it loses: [name, words, seconds]. */
function partsOf(expected) {
  const made = MADE_OF.map(([key, words, name]) => [name, words, expected[key]]);
  const lost = LOST_TO.map(([name, words]) => [name, words, expected.gap_parts_s[name]]);
  const least = LEAST_SHARE * expected.expected_step_s;
  return [...made, ...lost.filter(([, , seconds]) => Math.abs(seconds) >= least)];
}

function bars(expected, parts) {
  const whole = Math.max(expected.observed_step_s, expected.expected_step_s);
  const bar = (label, shown, seconds) => [h("span", { class: "label" }, label),
    h("span", { class: "track" }, shown.filter(([, , part]) => part > 0).map(([name, words, part]) =>
      h("span", { class: `swatch ${style(name)}`, title: `${words}: ${time(part)}`, vars: { "--share": `${(100 * part) / whole}%` } }))),
    h("span", { class: "label" }, time(seconds))];
  return [bar("Expected", parts.slice(0, MADE_OF.length), expected.expected_step_s), bar("Observed", parts, expected.observed_step_s)];
}

/** The class of a part; `host` is a phase in the charts. */
function style(name) {
  return name === "host" ? "late-host" : name;
}

function row([name, words, seconds], expected) {
  return h("tr", {}, h("th", { scope: "row" }, h("span", { class: `swatch ${style(name)}` }), ` ${words}`),
    h("td", {}, seconds < 0 ? `−${time(-seconds)}` : time(seconds)),
    h("td", {}, `${seconds < 0 ? "−" : ""}${percent(Math.abs(seconds) / expected.expected_step_s)}`));
}

function fitRows({ compute, transfers }) {
  const rows = compute.slice(0, SHOWN_FITS).map((fit) => h("tr", {}, h("th", { scope: "row" }, `ranks ${fit.ranks}`),
    h("td", { class: "text" }, `compute, ${time(fit.compute_s)} ${interval(fit.compute_interval_s, time)}`), h("td", {}, ""), h("td", {}, "")));
  return [...rows, ...transfers.slice(0, SHOWN_FITS).map((fit) => h("tr", {},
    h("th", { scope: "row" }, fit.links.length ? `${fit.links[0].join(" → ")}` : fit.group),
    h("td", { class: "text" }, `${fit.op}, ${count(fit.members)} ranks`),
    fit.reason ? h("td", { class: "text wrap", colspan: 2 }, fit.reason) : [
      h("td", {}, `${time(fit.alpha_s)} ${interval(fit.alpha_interval_s, time)}`),
      h("td", {}, fit.bandwidth_bytes_per_s ? `${rate(fit.bandwidth_bytes_per_s)} ${interval(fit.bandwidth_interval_bytes_per_s, rate)}` : "")]))];
}

function interval([low, high], words) {
  return high === null ? `(from ${words(low)})` : `(${words(low)} to ${words(high)})`;
}

/** Bytes per second -> "5.00 GB/s". */
function rate(bytes) {
  return bytes >= 1e9 ? `${digits(bytes / 1e9)} GB/s` : `${digits(bytes / 1e6)} MB/s`;
}
