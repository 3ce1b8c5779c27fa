// What is recorded of the job, changed while it runs: level, stride, on or off, telemetry.

import { h, setText } from "./dom.js";
import { jobPath } from "./api.js";
import { count, moment } from "./format.js";
import { card } from "./section.js";

const LEVELS = {
  off: "nothing is written; steps and collectives are counted on",
  steps: "steps and phases",
  collectives: "also every collective",
  full: "also times on the device, garbage collection, starvation",
};
const FOLLOWING_MS = 1_000;
const FOLLOWING_S = 60;

export class SettingsCard {
  #touched = false;
  #shown = null;
  #until = 0;

  constructor({ model }) {
    this.model = model;
    this.words = h("p", { class: "words" }, "Asking …");
    this.level = h("select", { name: "level", "aria-describedby": "level-words", on: { change: () => this.#explain() } },
      h("option", { value: "" }, "as each rank was started"), Object.keys(LEVELS).map((level) => h("option", { value: level }, level)));
    this.levelWords = h("p", { class: "hint", id: "level-words" });
    this.stride = h("input", { type: "number", name: "stride", min: 1, max: 10_000, required: true });
    this.enabled = h("input", { type: "checkbox", name: "enabled" });
    this.interval = h("input", { type: "number", name: "telemetry", min: 0, max: 60, step: 0.1, placeholder: "default" });
    this.submit = h("button", { type: "submit", class: "primary" }, "Apply");
    this.undo = h("button", { type: "button", hidden: true, on: { click: () => { this.#touched = false; this.#take(this.#shown); } } }, "Leave as it is");
    this.status = h("p", { class: "status", role: "status" });
    this.follow = h("ul", { class: "evidence" });
    this.form = h("form", { class: "settings" },
      h("label", {}, "Level ", this.level), h("label", { title: "steps whose number it divides are kept whole" }, "Every n-th step, n = ", this.stride),
      h("label", { title: "seconds between samples; 0: none; empty: as each sidecar was started" }, "Telemetry every ", this.interval, " s"),
      h("label", {}, this.enabled, " record"), h("div", { class: "row" }, this.submit, this.undo));
    this.form.addEventListener("input", () => { this.#touched = true; this.undo.hidden = false; });
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#apply(); });
    this.element = card({ id: "settings", title: "Settings", beside: this.words }, this.form, this.levelWords, this.status, this.follow);
  }

  async refresh() {
    this.#take(await this.model.get("settings"));
  }

  #take(settings) {
    this.#shown = settings;
    setText(this.words, told(settings));
    this.undo.hidden = !this.#touched;
    if (!this.#touched) {
      this.level.value = settings.level ?? "";
      this.stride.value = settings.stride ?? 1;
      this.enabled.checked = settings.enabled ?? true;
      this.interval.value = settings.telemetry_interval_s ?? "";
      this.#explain();
    }
    const lines = followers(settings);
    if (lines.join() !== this.follow.dataset.shown) {
      this.follow.dataset.shown = lines.join();
      this.follow.replaceChildren(...lines.map((line) => h("li", {}, line)));
    }
  }

  #explain() {
    setText(this.levelWords, this.level.value ? `Level ${this.level.value}: ${LEVELS[this.level.value]}. The job is not touched: all ranks change at one step that they agree on.`
      : "Nobody asked for a level: each rank records what PACELINE_LEVEL said when it was started.");
  }

  async #apply() {
    const now = this.#shown ?? {};
    const wanted = {
      level: this.level.value || undefined, stride: Number(this.stride.value), enabled: this.enabled.checked,
      telemetry_interval_s: this.interval.value === "" ? null : Number(this.interval.value),
    };
    const was = { level: now.level ?? undefined, stride: now.stride ?? 1, enabled: now.enabled ?? true, telemetry_interval_s: now.telemetry_interval_s ?? null };
    const change = Object.fromEntries(Object.entries(wanted).filter(([name, value]) => value !== undefined && value !== was[name]));
    if (Object.keys(change).length === 0) return setText(this.status, "Nothing is different from what is asked for already.");
    setText(this.status, "");
    try {
      const answer = await this.model.api.change("PUT", jobPath(this.model.job, "settings"), change);
      if (answer === null) return undefined;
      this.#touched = false;
      this.#take(answer);
      setText(this.status, "Asked for. The ranks change together at a step that is agreed now.");
      this.#until = Date.now() + FOLLOWING_S * 1e3;
      this.#followUp();
    } catch (error) {
      setText(this.status, `Not done: ${error.message}`);
    }
    this.submit.focus();
    return undefined;
  }

  /** Look often until every rank follows. */
  #followUp() {
    setTimeout(async () => {
      if (!this.element.isConnected || Date.now() > this.#until) return;
      await this.refresh().catch(() => {});
      if (this.#shown.effective_step === null || this.#shown.ranks.waits) this.#followUp();
    }, FOLLOWING_MS);
  }
}

function told({ generation, updated_by: by, updated_wall_ns: at, relief_stride: relief, effective_step: step, level, stride, enabled }) {
  if (!generation) return "Nobody asked for anything.";
  const what = enabled === false ? "recording is off" : `${level ? `level ${level}` : "the level of the start"}, every ${stride > 1 ? `${count(stride)}th ` : ""}step`;
  const since = step === null ? "not agreed with this attempt yet" : `from step ${count(step)} on`;
  const extra = relief > 1 ? ` The collector cannot keep up and asks for every ${count(relief)}th step by itself.` : "";
  return `Asked for by ${by || "somebody"} at ${moment(at)}: ${what}, ${since}.${extra}`;
}

function followers({ generation, effective_step: step, ranks }) {
  if (!generation || step === null) return [];
  const missed = Object.entries(ranks.missed ?? {});
  return [
    ranks.follows && `follow: ranks ${ranks.follows}`,
    ranks.waits && `have not come to step ${count(step)} yet: ranks ${ranks.waits}`,
    missed.length && `came later: ${missed.slice(0, 6).map(([rank, from]) => `rank ${rank} from step ${count(from)}`).join(", ")}`,
    ranks.silent && `do not say that they follow: ranks ${ranks.silent} (an old agent or sidecar, or a ring that it may not write)`,
  ].filter(Boolean);
}
