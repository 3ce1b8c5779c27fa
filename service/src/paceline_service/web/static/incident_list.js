// A list of incidents that is kept up to date in place, so that what somebody types in stays.

import { h } from "./dom.js";
import { IncidentView } from "./incident_view.js";
import { Keyed } from "./keyed.js";

export class IncidentList {
  constructor({ api, onChanged, showJob = false, heading = "h3" }) {
    this.element = h("div", { class: "incident-list" });
    this.views = new Keyed(this.element, ({ id }) => id, (incident) => new IncidentView({ api, onChanged, showJob, heading, incident }));
  }

  update(incidents) {
    this.views.update(incidents);
  }

  /** Bring an incident into view and into focus; returns whether it is there. */
  go(id) {
    const element = this.views.get(Number(id))?.element;
    if (!element) return false;
    const folded = element.closest("details");
    if (folded) folded.open = true;
    element.scrollIntoView({ block: "center" });
    element.focus({ preventScroll: true });
    return true;
  }
}
