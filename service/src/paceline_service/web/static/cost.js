// Who costs what: the waits of others that a node or rank explains, and what leaving it out gives back.

import { fill, h, setText } from "./dom.js";
import { count, gpuTime, percent } from "./format.js";
import { fasterBy, gpuSecondsADay } from "./scaling.js";
import { card } from "./section.js";
import { cause } from "./words.js";

const ROWS = 10;
const BY_NODE_FROM_RANKS = 16;
const COLUMNS = [
  ["Who", "text"], ["Cause", "text"],
  ["GPU time lost", "", "time in which other ranks stood still because of it"],
  ["Share of all waiting", ""],
  ["Arrived last", "", "collectives at which it arrived last by more than the noise"],
  ["Faster without it", "", "how much faster steps would be if it were left out"],
  ["That is worth", "", "GPU-hours that the whole job would save if it runs all day"],
  ["", ""],
];

export class CostTable {
  #shown = "";

  /** `onAsk("node:NAME" or "rank:3")` asks the what-if about a row. */
  constructor({ model, onAsk, onPick }) {
    Object.assign(this, { model, onAsk, onPick });
    this.words = h("p", { class: "words" });
    this.by = h("select", { on: { change: () => { this.chosen = this.by.value; this.update(); } } },
      h("option", { value: "node" }, "node"), h("option", { value: "rank" }, "rank"));
    this.body = h("tbody");
    this.foot = h("tfoot");
    const scroll = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Cost" },
      h("table", { "aria-label": "Cost by node or rank" },
        h("thead", {}, h("tr", {}, COLUMNS.map(([name, kind, title]) => h("th", { scope: "col", class: kind, title: title ?? null }, h("span", {}, name || h("span", { class: "sr-only" }, "Actions")))))),
        this.body, this.foot));
    this.element = card({ id: "cost", title: "Who costs what", beside: this.words, tools: h("label", { class: "choice" }, "By ", this.by) }, scroll);
  }

  update() {
    const { report, nodes, whatIf } = this.model;
    if (!report) return;
    const nodeCount = new Set(Object.values(nodes)).size;
    const by = this.chosen ?? (nodeCount > 1 && report.job.world_size >= BY_NODE_FROM_RANKS ? "node" : "rank");
    this.by.value = by;
    const rows = grouped(report, nodes, by);
    const all = rows.reduce((sum, row) => sum + row.blamedNs, 0);
    const back = new Map((whatIf?.candidates ?? []).map((one) => [one.without, one.recoverable_ratio]));
    const top = rows.filter((row) => row.blamedNs > 0).slice(0, ROWS);
    const shown = JSON.stringify([by, all, top, [...back], report.wasted_gpu_s_by_cause, report.wasted_gpu_s]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    setText(this.words, summary(report));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    fill(this.body, top.map((row) => this.#row(row, all, back.get(row.without), report.job.world_size)));
    if (focused) this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    const rest = rows.slice(top.length).reduce((sum, row) => sum + row.blamedNs, 0);
    fill(this.foot, top.length === 0
      ? h("tr", {}, h("td", { class: "text", colspan: COLUMNS.length }, "Nobody is blamed for a wait."))
      : h("tr", {}, h("th", { scope: "row", class: "text" }, `All ${count(rows.length)} ${by}s`), h("td", { class: "text" }, ""),
        h("td", {}, gpuTime(all / 1e9)), h("td", {}, rest > 0 ? `${percent(rest / all)} by others` : ""), h("td", { colspan: COLUMNS.length - 4 }, "")));
  }

  #row(row, all, back, ranks) {
    const key = row.without;
    return h("tr", { class: row.flagged ? "slow" : "" },
      h("th", { scope: "row", class: "text" }, row.flagged ? h("span", { class: "tag bad" }, "named") : null, row.name),
      h("td", { class: "text" }, row.cause ? cause(row.cause) : "–"),
      h("td", {}, gpuTime(row.blamedNs / 1e9)),
      h("td", { class: "bar", vars: { "--share": `${(100 * row.blamedNs) / all}%` } }, percent(row.blamedNs / all)),
      h("td", {}, count(row.last)),
      h("td", {}, back === undefined ? "–" : percent(fasterBy(back))),
      h("td", {}, back === undefined ? "–" : `${gpuTime(gpuSecondsADay(back, ranks))} a day`),
      h("td", { class: "row" },
        h("button", { type: "button", class: "small", "data-key": `${key} what if`, "aria-label": `What if ${row.name} were left out`, on: { click: () => this.onAsk(key) } }, "What if"),
        h("button", { type: "button", class: "small", "data-key": `${key} lanes`, "aria-label": `Show ${row.name} in the sawtooth`, on: { click: () => this.onPick(row.ranks.slice(0, 8)) } }, "Show")));
  }
}

function summary(report) {
  const causes = Object.entries(report.wasted_gpu_s_by_cause ?? {}).filter(([, spent]) => spent > 0);
  const total = `All ranks together waited ${gpuTime(report.wasted_gpu_s)} so far.`;
  if (causes.length === 0) return total;
  return `${total} Of findings: ${causes.map(([name, spent]) => `${gpuTime(spent)} because ${cause(name)}`).join("; ")}.`;
}

/** Rows by node or by rank, the most blamed first. */
function grouped(report, nodes, by) {
  const named = new Set((report.findings ?? []).flatMap((finding) => finding.ranks ?? []));
  const out = new Map();
  for (const rank of report.ranks) {
    const node = nodes[rank.rank] ?? "";
    const byNode = by === "node" && node;
    const key = byNode ? `node:${node}` : `rank:${rank.rank}`;
    const row = out.get(key) ?? { without: key, name: byNode ? node : `rank ${rank.rank}${node ? ` on ${node}` : ""}`, ranks: [], blamedNs: 0, last: 0, cause: null, flagged: false };
    row.ranks.push(rank.rank);
    row.blamedNs += rank.blamed_wait_ns;
    row.last += rank.last_arriver;
    row.cause ??= rank.cause ?? null;
    row.flagged ||= named.has(rank.rank);
    out.set(key, row);
  }
  return [...out.values()].sort((a, b) => b.blamedNs - a.blamedNs);
}
