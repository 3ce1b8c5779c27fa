// One incident: what it is, who knows of it, and the buttons to say so, to silence it, to see its steps.

import { fill, h, icon, setText } from "./dom.js";
import * as told from "./incident_words.js";
import { incidentLink, jobLink } from "./router.js";
import { verdict } from "./words.js";

const WHO_KEY = "paceline-who";
const SILENCE_FOR = [[3600, "1 hour"], [14_400, "4 hours"], [86_400, "1 day"], [604_800, "7 days"], [2_592_000, "30 days"]];
const STEPS_BEFORE = 8;
const STEPS_SHOWN = 40;
const RANKS_PINNED = 4;

function storedWho() {
  try { return localStorage.getItem(WHO_KEY) ?? ""; } catch { return ""; }
}

/** Link to the steps at which a finding of `job` begins; null where it names none. */
export function stepsLink({ job, attempt, first_step: first, ranks = [] }) {
  if (first === null || first === undefined) return null;
  const from = Math.max(0, first - STEPS_BEFORE);
  const query = { attempt, from, to: from + STEPS_SHOWN, at: "sawtooth" };
  if (ranks.length) query.rank = ranks.slice(0, RANKS_PINNED).join(",");
  return jobLink(job, query);
}

export class IncidentView {
  /** `onChanged` is called after a change; `showJob` names the job; `heading` is the tag of the title. */
  constructor({ api, incident, onChanged, showJob = false, heading = "h3" }) {
    Object.assign(this, { api, incident, onChanged });
    const { id, job, kind } = incident;
    const { icon: name, label, tone } = verdict(kind);
    this.title = h(heading, {});
    this.life = h("p", { class: "lead" });
    this.acknowledged = h("p", { class: "said" });
    this.silenced = h("p", { class: "said" });
    this.earlier = h("p", { class: "said" });
    this.status = h("p", { class: "status", role: "status" });
    this.slot = h("div", {});
    this.ack = h("button", { type: "button", "aria-expanded": "false", on: { click: () => this.#ackClicked() } });
    this.silence = h("button", { type: "button", "aria-expanded": "false", on: { click: () => this.#silenceClicked() } });
    const steps = stepsLink(incident);
    this.element = h("article", { class: `incident tone-${tone}`, id: `incident-${id}`, "data-incident": id, tabindex: -1 },
      h("div", { class: "answer" }, icon(name), h("div", {},
        h("p", { class: "kind" }, label, " · ", h("a", { href: incidentLink(id) }, `incident ${id}`),
          showJob ? [" · job ", h("a", { href: jobLink(job, { attempt: incident.attempt, at: "incidents" }) }, job)] : null),
        this.title, this.life, this.earlier, this.acknowledged, this.silenced,
        h("div", { class: "row" }, this.ack, this.silence, steps ? h("a", { class: "button", href: steps }, "See where it begins") : null),
        this.slot, this.status)));
    this.update(incident);
  }

  update(incident) {
    this.incident = incident;
    const open = incident.open;
    setText(this.title, told.title(incident));
    setText(this.life, told.life(incident));
    for (const part of ["acknowledged", "silenced", "earlier"]) setText(this[part], told[part](incident));
    this.acknowledged.classList.toggle("todo", open && !incident.acknowledged);
    setText(this.ack, incident.acknowledged ? "Take the acknowledgement back" : "Acknowledge");
    setText(this.silence, incident.silenced ? "End the silence" : "Silence");
    this.ack.hidden = !open && !incident.acknowledged;
    this.silence.hidden = !open && !incident.silenced;
    this.element.classList.toggle("over", !open);
  }

  #ackClicked() {
    if (this.incident.acknowledged) this.#send("DELETE", "ack", undefined, "The acknowledgement was taken back.", this.ack);
    else this.#form(this.ack, "Acknowledge", null, (said) => this.#send("POST", "ack", said, "Acknowledged.", this.ack));
  }

  #silenceClicked() {
    const { silenced } = this.incident;
    if (silenced) this.#change("DELETE", `v1/silences/${silenced.id}`, undefined, "The silence has ended.", this.silence);
    else {
      const length = h("select", {}, SILENCE_FOR.map(([seconds, name]) => h("option", { value: seconds, selected: seconds === 14_400 }, name)));
      this.#form(this.silence, "Silence alerts and messages", h("label", {}, "For ", length),
        (said) => this.#send("POST", "silence", { ...said, for_s: Number(length.value) }, "Silenced.", this.silence));
    }
  }

  /** Ask for name and note below the buttons; a second click on the same button closes it again. */
  #form(button, action, first, send) {
    const again = button.getAttribute("aria-expanded") === "true";
    this.#close();
    if (again) return;
    button.setAttribute("aria-expanded", "true");
    const who = h("input", { type: "text", name: "who", maxlength: 128, autocomplete: "name", value: storedWho() });
    const note = h("input", { type: "text", name: "note", maxlength: 2000, autocomplete: "off", class: "wide" });
    const form = h("form", { class: "say" }, first, h("label", {}, "Your name ", who), h("label", { class: "wide" }, "Note ", note),
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, action),
        h("button", { type: "button", on: { click: () => { this.#close(); button.focus(); } } }, "Cancel")));
    form.addEventListener("keydown", (event) => { if (event.key === "Escape") { this.#close(); button.focus(); } });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try { localStorage.setItem(WHO_KEY, who.value.trim()); } catch { /* private mode */ }
      send({ who: who.value.trim(), note: note.value.trim() });
    });
    fill(this.slot, form);
    (first?.querySelector("select") ?? note).focus();
  }

  #close() {
    fill(this.slot);
    for (const button of [this.ack, this.silence]) button.setAttribute("aria-expanded", "false");
  }

  #send(method, what, body, done, button) {
    return this.#change(method, `v1/incidents/${this.incident.id}/${what}`, body, done, button);
  }

  async #change(method, path, body, done, button) {
    setText(this.status, "");
    try {
      const answer = await this.api.change(method, path, body);
      if (answer === null) return;
      this.#close();
      await this.onChanged();
      setText(this.status, done);
      button.focus();
    } catch (error) {
      setText(this.status, `Not done: ${error.message}`);
    }
  }
}
