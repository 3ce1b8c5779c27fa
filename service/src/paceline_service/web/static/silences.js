// Silences that hold, also those that no incident was the reason for, and how to end one.

import { h, setText } from "./dom.js";
import { count, moment } from "./format.js";
import { Keyed } from "./keyed.js";
import { verdict } from "./words.js";

export class Silences {
  /** `onChanged` is called after one was ended. */
  constructor({ api, onChanged }) {
    this.summary = h("summary", {});
    this.list = h("ul", { class: "silences" });
    this.status = h("p", { class: "status", role: "status" });
    this.element = h("details", { class: "card more", hidden: true }, this.summary, this.list, this.status);
    this.rows = new Keyed(this.list, ({ id }) => id, (silence) => new SilenceRow(silence, () => this.#end(api, silence, onChanged)));
  }

  update(silences) {
    this.element.hidden = silences.length === 0 && !this.status.textContent;
    setText(this.summary, silences.length === 1 ? "1 silence holds" : `${count(silences.length)} silences hold`);
    this.rows.update(silences);
  }

  async #end(api, silence, onChanged) {
    try {
      if ((await api.change("DELETE", `v1/silences/${silence.id}`)) === null) return;
      setText(this.status, "The silence has ended.");
      this.summary.focus();
      await onChanged();
    } catch (error) {
      setText(this.status, `Not done: ${error.message}`);
    }
  }
}

class SilenceRow {
  constructor(silence, end) {
    this.text = h("span", {});
    this.element = h("li", {}, this.text, h("button", { type: "button", class: "small", "aria-label": `End the silence of ${covered(silence)}`, on: { click: end } }, "End"));
  }

  update(silence) {
    setText(this.text, `${covered(silence)}, until ${moment(silence.until_wall_ns)}, by ${silence.created_by || "somebody"}${silence.note ? `: “${silence.note}”` : ""}`);
  }
}

/** "Straggler of job llm, ranks 8-15, on node-b". */
function covered({ job, kind, ranks, node }) {
  const what = kind ? verdict(kind).label : "Everything";
  return [`${what} of ${job ? `job ${job}` : "all jobs"}`, ranks ? `ranks ${ranks}` : "", node ? `on ${node}` : ""].filter(Boolean).join(", ");
}
