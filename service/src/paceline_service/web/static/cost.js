// Who costs what: the waits of others that a node or rank explains, and what leaving it out gives back.

import { h, setText } from "./dom.js";
import { count, gpuTime, percent } from "./format.js";
import { Keyed } from "./keyed.js";
import { fasterBy, gpuSecondsADay } from "./scaling.js";
import { card } from "./section.js";
import { WORTH_TELLING } from "./whatif.js";
import { cause, flagWord } from "./words.js";

const ROWS = 10;
const MOST_LANES = 8;
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
  /** `onAsk("node:NAME" or "rank:3")` asks the what-if about a row. */
  constructor({ model, onAsk, onPick }) {
    Object.assign(this, { model, onAsk, onPick });
    this.words = h("p", { class: "words" });
    this.by = h("select", { on: { change: () => { this.chosen = this.by.value; this.update(); } } },
      h("option", { value: "node" }, "node"), h("option", { value: "rank" }, "rank"));
    this.body = h("tbody");
    this.rows = new Keyed(this.body, (row) => row.without, (row) => new CostRow(row, onAsk, onPick));
    this.all = { name: h("th", { scope: "row", class: "text" }), spent: h("td"), others: h("td") };
    this.foot = h("tfoot", {}, h("tr", {}, this.all.name, h("td"), this.all.spent, this.all.others, h("td", { colspan: COLUMNS.length - 4 })));
    const scroll = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Table of costs" },
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
    const rest = rows.slice(top.length).reduce((sum, row) => sum + row.blamedNs, 0);
    setText(this.words, summary(report));
    this.rows.update(top.map((row) => ({ ...row, all, back: back.get(row.without), word: row.flagged ? flagWord(report, row.ranks) : "", ranks_of_job: report.job.world_size })));
    setText(this.all.name, top.length ? `All ${count(rows.length)} ${by}s` : "Nobody is blamed for a wait.");
    setText(this.all.spent, top.length ? gpuTime(all / 1e9) : "");
    setText(this.all.others, rest > 0 ? `${percent(rest / all)} by others` : "");
  }
}

class CostRow {
  constructor({ without, name }, onAsk, onPick) {
    this.named = h("span", { class: "tag bad", hidden: true });
    this.cells = ["text", "", "bar", "", "", ""].map((kind) => h("td", { class: kind }));
    const button = (text, title, click) => h("button", { type: "button", class: "small", "aria-label": title, on: { click } }, text);
    this.element = h("tr", {}, h("th", { scope: "row", class: "text" }, this.named, name), this.cells,
      h("td", { class: "row" },
        button("What if", `What if ${name} were left out`, () => onAsk(without)),
        button("Show", `Show ${name} in the charts`, () => onPick(this.ranks.slice(0, MOST_LANES)))));
  }

  update({ ranks, flagged, word, cause: why, blamedNs, all, last, back, ranks_of_job: ofJob }) {
    this.ranks = ranks;
    this.element.classList.toggle("slow", flagged);
    this.named.hidden = !flagged;
    setText(this.named, word);
    const known = back > WORTH_TELLING;
    const texts = [
      why ? cause(why) : "–", gpuTime(blamedNs / 1e9), percent(blamedNs / all), count(last),
      known ? percent(fasterBy(back)) : "–", known ? `${gpuTime(gpuSecondsADay(back, ofJob))} a day` : "–",
    ];
    texts.forEach((text, i) => setText(this.cells[i], text));
    this.cells[2].style.setProperty("--share", `${(100 * blamedNs) / all}%`);
  }
}

function summary(report) {
  const causes = Object.entries(report.wasted_gpu_s_by_cause ?? {}).filter(([, spent]) => spent > 0);
  const total = `All ranks together waited ${gpuTime(report.wasted_gpu_s)} so far.`;
  if (report.verdict === "healthy") return `${total} Nobody stands out: who is listed came last by chance.`;
  if (report.verdict === "insufficient_evidence") return `${total} Too early to blame anybody.`;
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
