// Everything the page knows of one job, kept up to date; views listen for what changed.

import { jobPath } from "./api.js";
import { StepStore } from "./steps.js";
import { LiveStream } from "./stream.js";

const REFRESH_MS = 10_000;
const HISTORY_STEPS = 5000; // the API's limit of one answer
export const PHASES_FOR_ALL = 64; // up to so many ranks every step comes with its phases

export class JobModel {
  #listeners = new Set();
  #stop = new AbortController();
  #bare = [];
  #fetching = null;
  report = null;
  detail = null;
  rankRows = [];
  whatIf = null;
  history = { steps: [], durationNs: [], startWallNs: [] };

  constructor(api, job, attempt) {
    Object.assign(this, { api, job, attempt });
  }

  /** `listener(what)`; what is "detail", "report", "steps", "history", "link", "reload" or "attempt". */
  onChange(listener) {
    this.#listeners.add(listener);
  }

  #emit(what) {
    if (!this.#stop.signal.aborted) for (const listener of this.#listeners) listener(what);
  }

  get(resource, query = {}) {
    const path = jobPath(this.job, resource, { attempt: this.attempt, ...query });
    return this.api.json(path, { signal: this.#stop.signal });
  }

  get allPhases() {
    return this.store.ranks <= PHASES_FOR_ALL;
  }

  /** Load what is needed at once; raises ApiError for an unknown job. */
  async open() {
    this.detail = await this.get("");
    this.store = new StepStore(this.detail.world_size);
    const stream = new LiveStream({
      api: this.api,
      path: jobPath(this.job, "events", { attempt: this.attempt }),
      onEvent: (event, data) => this.#onEvent(event, data),
      onState: (state) => this.#setLink(state),
      poll: () => this.#poll(),
    });
    stream.start();
    this.#stop.signal.addEventListener("abort", () => stream.stop());
    this.#loadHistory().catch(() => {});
    this.#refreshRanks();
    const timer = setInterval(() => this.#refresh(), REFRESH_MS);
    this.#stop.signal.addEventListener("abort", () => clearInterval(timer));
  }

  close() {
    this.#stop.abort();
  }

  addSteps(columns) {
    if (this.store.add(columns)) this.#emit("steps");
  }

  /** Node name by rank. */
  get nodes() {
    return this.detail?.nodes ?? {};
  }

  /** Ranks that a finding names. */
  get flagged() {
    return new Set((this.report?.findings ?? []).flatMap((finding) => finding.ranks ?? []));
  }

  /** When a step began and how long it took: {startWallNs, durationNs}, NaN for what is not known; or null. */
  timesOf(step) {
    const row = this.store.get(step);
    if (row) return row;
    const { steps, durationNs, startWallNs } = this.history;
    let at = step - (steps[0] ?? 0); // right away where no step is missing
    if (steps[at] !== step) at = steps.indexOf(step);
    return at < 0 ? null : { startWallNs: startWallNs[at] ?? NaN, durationNs: durationNs[at] ?? NaN };
  }

  #setLink(state) {
    if (this.link === state) return;
    this.link = state;
    this.#emit("link");
  }

  #onEvent(event, data) {
    const attempt = event === "report" ? data.job?.attempt : data.attempt;
    if (this.attempt === null && attempt !== undefined && attempt > this.detail.attempt) {
      this.#emit("attempt"); // the job was restarted; the stream has gone on with the new attempt
    } else if (event === "report") {
      this.report = data;
      this.#emit("report");
    } else if (event === "reload") {
      this.#beginAnew().catch(() => {}); // the next refresh tries again
    } else if (event === "steps") {
      this.#extendHistory(data);
      if (this.allPhases && !data.phase_self_ns) this.#addWithPhases(data);
      else this.addSteps(data);
    }
  }

  /** The stream cannot go on where it was: what is known of steps may have a gap, or be of other ones. */
  async #beginAnew() {
    this.store.clear();
    this.history = { steps: [], durationNs: [], startWallNs: [] };
    this.#emit("reload");
    await this.#loadHistory();
    await this.#refresh();
  }

  /** The stream has no phases: of a small job fetch them first, so that no step changes its look. */
  #addWithPhases(data) {
    this.#bare.push(data);
    this.#fetching ??= this.#fetchPhases().finally(() => { this.#fetching = null; });
  }

  async #fetchPhases() {
    while (this.#bare.length) {
      const bare = this.#bare.splice(0);
      const steps = bare.flatMap((columns) => columns.steps);
      const query = { from: steps[0], to: steps.at(-1), limit: Math.min(steps.length, HISTORY_STEPS), phases: 1 };
      try {
        this.addSteps(await this.get("steps", query));
      } catch {
        for (const columns of bare) this.addSteps(columns);
      }
    }
  }

  async #poll() {
    const from = this.store.last >= 0 ? this.store.last + 1 : null;
    const phases = this.allPhases ? 1 : null;
    this.#onEvent("report", await this.get("report"));
    this.#onEvent("steps", await this.get("steps", { from, phases, limit: this.allPhases ? 200 : 30 }));
  }

  async #loadHistory() {
    const columns = await this.get("steps", { ranks: "0", limit: HISTORY_STEPS });
    const newer = this.history.steps.findIndex((step) => step > (columns.steps.at(-1) ?? -1));
    const tail = (key) => (newer < 0 ? [] : this.history[key].slice(newer));
    this.history = {
      steps: [...columns.steps, ...tail("steps")], durationNs: [...columns.duration_ns, ...tail("durationNs")],
      startWallNs: [...columns.start_wall_ns, ...tail("startWallNs")],
    };
    this.#emit("history");
  }

  #extendHistory(columns) {
    const { steps, durationNs, startWallNs } = this.history;
    columns.steps.forEach((step, i) => {
      if (step <= (steps.at(-1) ?? -1)) return;
      steps.push(step);
      durationNs.push(columns.duration_ns[i]);
      startWallNs.push(columns.start_wall_ns[i]);
    });
    const over = steps.length - HISTORY_STEPS;
    if (over > 0) for (const values of [steps, durationNs, startWallNs]) values.splice(0, over);
    this.#emit("history");
  }

  async #refreshRanks() {
    try {
      [this.rankRows, this.whatIf] = await Promise.all([this.#allRanks(), this.get("what-if").catch(() => this.whatIf)]);
      this.#emit("detail");
    } catch { /* the next refresh tries again */ }
  }

  async #allRanks() {
    const { ranks, next } = await this.get("ranks");
    for (let cursor = next; cursor; ) {
      const page = await this.get("ranks", { cursor });
      ranks.push(...page.ranks);
      cursor = page.next;
    }
    return ranks;
  }

  async #refresh() {
    if (document.hidden) return;
    try {
      const detail = await this.get("");
      if (this.attempt === null && detail.attempt > this.detail.attempt) return this.#emit("attempt");
      this.detail = detail;
      await this.#refreshRanks();
    } catch { /* the link state says so */ }
    return undefined;
  }
}
