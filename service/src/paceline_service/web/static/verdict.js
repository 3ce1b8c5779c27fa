// The answer: who, why, what it costs, what to do; and what else was found.

import { fill, h, icon, setText } from "./dom.js";
import { count } from "./format.js";
import * as words from "./words.js";

/** The verdict and its findings, updated in place so that a selection or a focus stays. */
export class VerdictCard {
  #shape = "";
  #views = [];

  constructor() {
    this.element = h("section", { class: "verdict", "aria-labelledby": "verdict-title" },
      h("p", { class: "waiting" }, "Waiting for the first report …"));
  }

  update(report) {
    const findings = report.findings ?? [];
    const shape = JSON.stringify([report.verdict, findings.map((f) => [f.kind, f.ranks, f.phase, Boolean(f.action), f.evidence.length])]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#build(report, findings);
    }
    this.#views.forEach((view, i) => view.update(findings[i], report));
    if (findings.length === 0) this.#quiet(report);
  }

  #build(report, findings) {
    const { tone } = words.verdict(report.verdict);
    this.element.className = `verdict tone-${tone}`;
    this.#views = findings.map((finding, i) => new FindingView(finding, i === 0));
    const rest = this.#views.slice(1);
    if (findings.length === 0) {
      const { icon: name } = words.verdict(report.verdict);
      this.title = h("h1", { id: "verdict-title" });
      this.text = h("p", { class: "lead" });
      this.notes = h("ul", { class: "evidence" });
      fill(this.element, h("div", { class: "answer" }, icon(name), h("div", {}, this.title, this.text, this.notes)));
      return;
    }
    fill(this.element, this.#views[0].element,
      rest.length ? h("details", { class: "more" },
        h("summary", {}, rest.length === 1 ? "1 more finding" : `${count(rest.length)} more findings`),
        rest.map((view) => view.element)) : null);
  }

  #quiet(report) {
    const { title, text } = words.quiet(report);
    setText(this.title, title);
    setText(this.text, text);
    const notes = report.data?.notes ?? [];
    if (JSON.stringify(notes) !== this.notes.dataset.shown) {
      this.notes.dataset.shown = JSON.stringify(notes);
      fill(this.notes, notes.map((note) => h("li", {}, note)));
    }
  }
}

class FindingView {
  constructor(finding, main) {
    const { icon: name, label } = words.verdict(finding.kind);
    this.title = h(main ? "h1" : "h2", main ? { id: "verdict-title" } : {});
    this.kind = h("p", { class: "kind" }, label);
    this.lead = h("p", { class: "lead" });
    this.evidence = finding.evidence.map(() => h("li", {}));
    this.facts = h("p", { class: "facts" });
    this.action = h("pre", { class: "command", tabindex: 0 });
    this.element = h("article", { class: main ? "finding main" : "finding" },
      h("div", { class: "answer" }, icon(name), h("div", {}, this.kind, this.title, this.lead, this.facts)),
      h("div", { class: "why" },
        this.evidence.length ? [h(main ? "h2" : "h3", { class: "sub" }, "Evidence"), h("ul", { class: "evidence" }, this.evidence)] : null),
      finding.action ? h("div", { class: "next" }, h(main ? "h2" : "h3", { class: "sub" }, "Next"), this.action, copyButton(this.action)) : null);
  }

  update(finding, report) {
    setText(this.title, words.title(finding, report.job.steps));
    setText(this.lead, words.cost(finding, report.job));
    setText(this.facts, words.facts(finding));
    finding.evidence.forEach((text, i) => setText(this.evidence[i], text));
    if (finding.action) setText(this.action, finding.action);
  }
}

export function copyButton(source) {
  const button = h("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // no clipboard without a secure context
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
