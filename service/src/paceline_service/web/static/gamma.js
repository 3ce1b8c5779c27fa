// Gamma in words, and the number of ranks at which communication would exceed compute.

import { fill, h, setText } from "./dom.js";
import { count, percent, ratio } from "./format.js";
import { breakEven, gammaAt, gammaOfManyRanks } from "./scaling.js";
import { card } from "./section.js";

export class GammaCard {
  #shown = "";

  constructor() {
    this.words = h("p", { class: "lead" }, "Waiting for the first report …");
    this.even = h("p", { class: "lead" });
    this.body = h("tbody");
    this.table = h("table", { class: "plain" },
      h("caption", { class: "sr-only" }, "Gamma at other numbers of ranks, at the same batch of the whole job"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Ranks"), h("th", { scope: "col" }, "Gamma"), h("th", { scope: "col", class: "text" }, "Note"))), this.body);
    this.assumed = h("p", { class: "hint" });
    this.element = card({ id: "gamma", title: "Gamma: communication against compute" }, this.words, this.even, this.table, this.assumed);
  }

  update({ gamma, job }) {
    const ranks = job.ranks_observed;
    const shown = JSON.stringify([ratio(gamma), ranks]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    setText(this.words, meaning(gamma));
    const known = gamma > 0 && ranks > 1;
    this.table.hidden = this.assumed.hidden = !known;
    setText(this.even, known ? breakEvenWords(gamma, ranks) : "");
    setText(this.assumed, known ? assumption(gamma, ranks) : "");
    if (known) fill(this.body, examples(gamma, ranks).map((n) => row(n, gamma, ranks)));
  }
}

function meaning(gamma) {
  if (gamma === null || gamma === undefined) return "Gamma is not known yet: it needs steps with collectives.";
  const what = `Gamma is ${ratio(gamma)}: for each second that a rank computes, it stands ${ratio(gamma)} s in transfers that nothing hides.`;
  if (gamma > 1) return `${what} Communication takes longer than compute: the network sets the pace.`;
  return `${what} Compute sets the pace; transfers take ${percent(gamma / (1 + gamma))} of the time in which nobody waits.`;
}

function breakEvenWords(gamma, ranks) {
  const even = breakEven(gamma, ranks);
  const larger = even > ranks ? `above about ${count(round(even))} ranks` : `already above ${even > 1 ? `about ${count(round(even))} ranks` : "1 rank"}`;
  return `Break-even: with the batch of the whole job as it is, communication exceeds compute ${larger}; now there are ${count(ranks)}.`;
}

function assumption(gamma, ranks) {
  return `Assumed: ranks are added or taken away as data-parallel ones, each computes its share of the same batch, and what is exposed are ring transfers of the same bytes, bound by bandwidth. Then gamma(n) = ${ratio(gamma)} × (n − 1) / ${count(ranks - 1)}. Where each rank brings its own share of the batch instead, gamma stays below ${ratio(gammaOfManyRanks(gamma, ranks))}. Transfers that compute hides today come out as it shrinks, and start-up times grow with the ranks: the real break-even comes rather earlier.`;
}

/** Half, double and four times the ranks, and the break-even, in their order. */
function examples(gamma, ranks) {
  const all = [ranks / 2, ranks, ranks * 2, ranks * 4, round(breakEven(gamma, ranks))];
  return [...new Set(all.map(Math.round))].filter((n) => n >= 2).sort((a, b) => a - b);
}

/** Two digits of it: more would say that it is known better than it is. */
function round(ranks) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(ranks)) - 1);
  return Math.floor(ranks / unit) * unit;
}

function row(n, gamma, ranks) {
  const there = gammaAt(n, gamma, ranks);
  const note = [n === ranks ? "now" : "", n === round(breakEven(gamma, ranks)) ? "break-even" : "", there > 1 ? "communication exceeds compute" : ""];
  return h("tr", {}, h("th", { scope: "row" }, count(n)),
    h("td", { class: "bar", vars: { "--share": `${Math.min(100, 50 * there)}%` } }, ratio(there)),
    h("td", { class: "text" }, note.filter(Boolean).join(", ")));
}
