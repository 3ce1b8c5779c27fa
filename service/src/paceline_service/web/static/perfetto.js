// The timeline of some steps as a file for Perfetto, every collective in it.

import { jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { card } from "./section.js";

const MOST_STEPS = 1000;

export class TraceCard {
  /** Offers the steps that `viewport` shows. */
  constructor({ model, viewport }) {
    Object.assign(this, { model, viewport });
    const number = (name) => h("input", { type: "number", name, min: 0, required: true });
    this.from = number("from");
    this.to = number("to");
    this.ranks = h("input", { type: "text", name: "ranks", placeholder: "those that matter", pattern: "[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", title: "a rank list such as 0,5-7", autocomplete: "off" });
    this.button = h("button", { type: "submit" }, "Download");
    this.status = h("p", { class: "status", role: "status" });
    this.command = h("pre", { class: "command", tabindex: 0 });
    const form = h("form", { class: "settings" }, h("label", {}, "Steps ", this.from), h("label", {}, "to ", this.to), h("label", {}, "Ranks ", this.ranks), this.button);
    form.addEventListener("input", () => { this.touched = true; this.#tell(); });
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#download(); });
    this.element = card({ id: "trace", title: "Timeline for Perfetto" },
      h("p", { class: "words" }, "Every phase, collective and wait of some steps as a trace file. Open it at ",
        h("a", { href: "https://ui.perfetto.dev", target: "_blank", rel: "noreferrer noopener" }, "ui.perfetto.dev"),
        " (Open trace file; the file stays in your browser) or chrome://tracing. As long as raw frames are kept."),
      form, this.status, this.command);
    viewport.onChange(() => this.#follow());
  }

  #follow() {
    if (this.touched || this.viewport.last < 0) return;
    this.from.value = Math.max(0, Math.floor(this.viewport.from));
    this.to.value = Math.max(0, Math.min(this.viewport.last, Math.ceil(this.viewport.to) - 1));
    this.#tell();
  }

  #tell() {
    const ranks = this.ranks.value ? ` --ranks ${this.ranks.value}` : "";
    setText(this.command, `paceline timeline ${this.model.job} --from ${this.from.value} --to ${this.to.value}${ranks} -o trace.json`);
  }

  async #download() {
    const { model } = this;
    const [from, to] = [Number(this.from.value), Number(this.to.value)];
    const query = { attempt: model.detail.attempt, from, to, limit: Math.min(MOST_STEPS, Math.max(1, to - from + 1)), ranks: this.ranks.value || null };
    this.button.disabled = true;
    setText(this.status, "The collector reads the raw frames of these steps …");
    try {
      const response = await model.api.open(jobPath(model.job, "timeline", query)); // a link could not send a token
      const url = URL.createObjectURL(await response.blob());
      h("a", { href: url, download: `${model.job}-${from}-${to}.trace.json` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      setText(this.status, "Downloaded.");
    } catch (error) {
      setText(this.status, `Not done: ${error.message}`);
    } finally {
      this.button.disabled = false;
    }
  }
}
