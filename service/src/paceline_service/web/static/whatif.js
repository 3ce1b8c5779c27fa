// What the job would have gained without some ranks or nodes.

import { fill, h, setText } from "./dom.js";
import { count, counted, gpuTime, percent } from "./format.js";
import { updateParams } from "./router.js";
import { fasterBy, gpuSecondsADay } from "./scaling.js";
import { card } from "./section.js";

const SUGGESTED = 5;
export const WORTH_TELLING = 0.001;
const LISTED_NODES = 2000;

/** "3", "0-7, 12" -> "rank:0-7,12"; a node's name -> "node:NAME". */
export function asked(text) {
  const plain = text.trim().replace(/^(rank|node):/, "");
  if (/^node:/.test(text.trim())) return `node:${plain}`;
  const ranks = plain.replace(/\branks?\b/gi, "").replaceAll("–", "-").replace(/\s+/g, "");
  return /^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(ranks) ? `rank:${ranks}` : `node:${plain}`;
}

/** "rank:0-7" -> "ranks 0-7", "node:a" -> "a". */
export function nameOf(without) {
  const [kind, name] = [without.slice(0, 4), without.slice(5)];
  return kind === "node" ? name : `rank${/[-,]/.test(name) ? "s" : ""} ${name}`;
}

/** "Without node-7: 12 % faster, 31.0 GPU-h a day." */
export function gain(name, back, ranks, atLeast = false) {
  if (back === null || back === undefined) return `Without ${name}: not known yet, no step was analysed.`;
  if (!(back > WORTH_TELLING)) return `Without ${name}: no faster. It does not set the pace.`;
  const least = atLeast ? "at least " : "";
  return `Without ${name}: ${least}${percent(fasterBy(back))} faster, ${least}${gpuTime(gpuSecondsADay(back, ranks))} a day.`;
}

export class WhatIf {
  #shown = "";
  #nodes = "";

  constructor({ model, without }) {
    this.model = model;
    this.input = h("input", { type: "text", name: "without", list: "what-if-nodes", autocomplete: "off", placeholder: "3, 0-7 or a node", "aria-label": "Ranks or node to leave out" });
    this.options = h("datalist", { id: "what-if-nodes" });
    this.answer = h("p", { class: "lead", role: "status" });
    this.list = h("ul", { class: "gains" });
    this.basis = h("p", { class: "hint" });
    const form = h("form", { class: "row" }, h("label", {}, "Leave out ", this.input), this.options, h("button", { type: "submit" }, "What if?"));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.ask(asked(this.input.value)); });
    this.element = card({ id: "what-if", title: "What if", tools: form }, this.answer, this.list, this.basis);
    this.wanted = without;
  }

  /** Ask about one rank list or node, and say the answer. */
  async ask(without) {
    if (without.length <= 5) return;
    this.input.value = without.slice(5);
    updateParams({ without });
    try {
      const answer = await this.model.get("what-if", { without });
      const figures = gain(nameOf(without), answer.recoverable_ratio, this.model.detail.world_size, answer.at_least);
      setText(this.answer, `${figures} Over ${counted(answer.steps, "step")}.`);
    } catch (error) {
      setText(this.answer, error.status ? error.message : "The collector cannot be reached; ask again.");
    }
  }

  update() {
    const { whatIf, detail, nodes } = this.model;
    if (this.wanted) {
      this.ask(this.wanted);
      this.wanted = null;
    }
    const names = [...new Set(Object.values(nodes))].slice(0, LISTED_NODES);
    if (names.join() !== this.#nodes) {
      this.#nodes = names.join();
      fill(this.options, names.map((name) => h("option", { value: name })));
    }
    if (!whatIf) return;
    const found = whatIf.candidates.filter((one) => one.recoverable_ratio > WORTH_TELLING).slice(0, SUGGESTED);
    const lines = found.map((one) => gain(nameOf(one.without), one.recoverable_ratio, detail.world_size));
    const shown = JSON.stringify([lines, whatIf.steps]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    fill(this.list, lines.length ? lines.map((line) => h("li", {}, line)) : h("li", {}, "Leaving out any single rank or node would not make it faster."));
    setText(this.basis, `Over ${counted(whatIf.steps, "step")}: by how much the longest self time of each step would have been shorter. A day’s GPU-hours are those of all ${count(detail.world_size)} ranks, if the job runs all day. The work of who is left out is not given to the others.`);
  }
}
