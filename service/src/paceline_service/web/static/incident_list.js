// A list of incidents that is kept up to date in place, so that what somebody types in stays.

import { fill, h } from "./dom.js";
import { IncidentView } from "./incident_view.js";

export class IncidentList {
  #views = new Map();

  constructor({ api, onChanged, showJob = false }) {
    Object.assign(this, { api, onChanged, showJob });
    this.element = h("div", { class: "incident-list" });
  }

  update(incidents) {
    const old = this.#views;
    this.#views = new Map();
    for (const incident of incidents) {
      const view = old.get(incident.id) ?? new IncidentView({ ...this, incident });
      view.update(incident);
      this.#views.set(incident.id, view);
    }
    const wanted = [...this.#views.values()].map((view) => view.element);
    const { children } = this.element;
    if (wanted.length !== children.length || wanted.some((node, i) => node !== children[i])) fill(this.element, wanted);
  }

  /** Bring an incident into view and into focus. */
  go(id) {
    const element = this.#views.get(Number(id))?.element;
    if (!element) return false;
    const folded = element.closest("details");
    if (folded) folded.open = true;
    element.scrollIntoView({ block: "center" });
    element.focus({ preventScroll: true });
    return true;
  }
}
