// The incidents of a job: those that last first, those that are over folded below.

import { h, setText } from "./dom.js";
import { count } from "./format.js";
import { IncidentList } from "./incident_list.js";
import { card } from "./section.js";

const MOST = 200;

export class JobIncidents {
  /** `onCount` is told how many are open, and how many of them nobody has acknowledged. */
  constructor({ model, onCount, onChanged }) {
    Object.assign(this, { model, onCount });
    const shared = { api: model.api, onChanged };
    this.open = new IncidentList(shared);
    this.over = new IncidentList(shared);
    this.words = h("p", { class: "words" }, "Asking …");
    this.summary = h("summary", {});
    this.folded = h("details", { class: "more", hidden: true }, this.summary, this.over.element);
    this.element = card({ id: "incidents", title: "Incidents", beside: this.words }, this.open.element, this.folded);
  }

  async refresh() {
    const { incidents } = await this.model.get("incidents", { limit: MOST });
    const open = incidents.filter((one) => one.open);
    const over = incidents.filter((one) => !one.open);
    this.open.update(open);
    this.over.update(over);
    this.folded.hidden = over.length === 0;
    setText(this.summary, `${count(over.length)}${incidents.length === MOST ? " or more" : ""} that ${over.length === 1 ? "is" : "are"} over`);
    const quiet = open.filter((one) => !one.acknowledged).length;
    setText(this.words, open.length
      ? `${count(open.length)} open${quiet ? `, ${count(quiet)} of them not acknowledged` : ", all acknowledged"}`
      : over.length ? "None is open." : "None. A finding that lasts becomes one; it can be acknowledged and silenced here.");
    this.onCount(open.length, quiet);
    if (this.wanted) this.go(this.wanted);
  }

  /** Show one incident now, or as soon as it is known. */
  go(id) {
    const there = this.open.go(id) || this.over.go(id);
    this.wanted = there ? null : id;
  }
}
