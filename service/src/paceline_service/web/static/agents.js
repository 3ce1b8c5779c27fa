// The agents' health: what is wrong in sentences, every node in a table.

import { fill, h, icon, setText } from "./dom.js";
import { count, counted, rankList, span } from "./format.js";
import { byNode, healthOf } from "./health.js";
import { Keyed } from "./keyed.js";
import { card } from "./section.js";

const SHOWN = 8;
const MOST = 300;
const REASONS = 6;

export class AgentsCard {
  #shown = "";

  /** `onCount` is told how many ranks have something wrong. */
  constructor({ model, onCount }) {
    Object.assign(this, { model, onCount });
    this.words = h("p", { class: "words" }, "Asking …");
    this.list = h("ul", { class: "troubles" });
    this.body = h("tbody");
    this.rows = new Keyed(this.body, (node) => node.node, (node) => new NodeRow(node));
    this.all = h("button", { type: "button", hidden: true, on: { click: () => { this.everything = true; this.#shown = ""; this.update(); } } });
    const scroll = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Table of agents" },
      h("table", { "aria-label": "Agents by node" },
        h("thead", {}, h("tr", {}, [["Node", "text"], ["State", "text"], ["Ranks", "text"], ["Behind", ""], ["Step", ""], ["Lost", ""], ["In a collective for", ""], ["Versions", "text"]].map(([name, kind]) =>
          h("th", { scope: "col", class: kind }, h("span", {}, name))))),
        this.body));
    this.element = card({ id: "agents", title: "Agents", beside: this.words }, this.list, scroll, this.all);
  }

  update() {
    const { model } = this;
    const state = model.report?.job.state ?? model.detail.state;
    const health = healthOf({ rankRows: model.rankRows, detail: model.detail, state });
    const nodes = byNode(health.rows);
    const shown = JSON.stringify([state, health.missing.length, nodes.map((node) => [node.node, Math.round(node.quietS), node.step, node.lost, Math.round(node.pendingS), node.version, [...node.wrong]])]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const troubled = health.troubled.length + health.missing.length;
    this.onCount(troubled);
    setText(this.words, wordsOf(state, health, troubled));
    fill(this.list, troubles(health, model.report).map(([name, text]) => h("li", {}, icon(name), h("span", {}, text))));
    const most = this.everything ? MOST : SHOWN;
    this.rows.update(nodes.slice(0, most));
    this.all.hidden = this.everything || nodes.length <= SHOWN;
    setText(this.all, `All ${count(nodes.length)} nodes`);
  }
}

function wordsOf(state, { rows, missing }, troubled) {
  if (rows.length === 0) return "Nothing was heard of any rank.";
  if (state !== "running") return state === "ended" ? "The job has ended; this is how its ranks were last." : "The whole job is silent.";
  const all = rows.length + missing.length;
  if (troubled) return `${count(troubled)} of ${counted(all, "rank")} ${troubled === 1 ? "needs" : "need"} a look.`;
  return all === 1 ? "Its one rank is heard of and nothing was lost." : `All ${count(all)} ranks are heard of and nothing was lost.`;
}

function troubles({ rows, missing, versions }, report) {
  const of = (what) => rows.filter((row) => row.wrong.includes(what));
  const named = (list) => `rank${list.length > 1 ? "s" : ""} ${rankList(list.map((row) => row.rank ?? row))}`;
  const out = [];
  const silent = of("silent");
  if (silent.length) {
    out.push(["stop", `Silent: ${named(silent)}${nodesOf(silent)}, for up to ${span(Math.max(...silent.map((row) => row.quietS)))}. Is the sidecar there alive? “paceline doctor” on that node says.`]);
  }
  const killed = of("killed");
  if (killed.length) out.push(["stop", `Killed or crashed: ${named(killed)}${nodesOf(killed)}.`]);
  if (missing.length) out.push(["unsure", `Nothing yet from ${named(missing)}: ${missing.length === 1 ? "does its node" : "do their nodes"} reach the collector?`]);
  const lost = of("lost records");
  if (lost.length) out.push(["unsure", `Records lost by ${named(lost)}: ${reasons(lost)}. Figures are bounds where data is missing.`]);
  if (versions.length > 1) {
    out.push(["unsure", `Versions differ: ${versions.slice(0, 3).map(({ name, ranks }) => `${name || "not told"} on ${named(ranks)}`).join("; ")}${versions.length > 3 ? " …" : ""}.`]);
  }
  const left = report?.data.steps_left_out;
  if (left) out.push(["ok", `${counted(left, "step")} ${left === 1 ? "was" : "were"} left out on purpose, by the stride or level of the settings below.`]);
  return out;
}

function nodesOf(rows) {
  const names = [...new Set(rows.map((row) => row.node).filter(Boolean))];
  return names.length ? ` on ${names.slice(0, 3).join(", ")}${names.length > 3 ? " …" : ""}` : "";
}

function reasons(rows) {
  const sums = {};
  for (const row of rows) for (const [reason, n] of Object.entries(row.dropped)) sums[reason] = (sums[reason] ?? 0) + n;
  return Object.entries(sums).sort((a, b) => b[1] - a[1]).slice(0, REASONS).map(([reason, n]) => `${count(n)} ${reason.replaceAll("_", " ")}`).join(", ");
}

class NodeRow {
  constructor({ node }) {
    this.cells = ["text", "text", "", "", "", "", "text"].map((kind) => h("td", { class: kind }));
    this.cells[2].title = "behind the rank that was heard of last";
    this.element = h("tr", {}, h("th", { scope: "row", class: "text" }, node || "node unknown"), this.cells);
  }

  update({ wrong, ranks, quietS, step, lost, pendingS, version }) {
    this.element.classList.toggle("slow", wrong.size > 0);
    const texts = [
      wrong.size ? [...wrong].join(", ") : "well", rankList(ranks), quietS < 1 ? "–" : span(quietS),
      Number.isFinite(step) ? count(step) : "–", lost ? count(lost) : "nothing", pendingS >= 1 ? span(pendingS) : "–", version || "not told",
    ];
    texts.forEach((text, i) => setText(this.cells[i], text));
  }
}
