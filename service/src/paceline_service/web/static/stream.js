// Server-sent events over fetch, because EventSource cannot send a bearer token.

import { ApiError } from "./api.js";

const SILENCE_MS = 25_000; // the collector sends a keep-alive every 10 s
const POLL_MS = 2_000;
const FAILURES_BEFORE_POLLING = 3;
const POLLS_PER_STREAM_ATTEMPT = 6;

/** Split a text/event-stream into {event, data, id}; feed it decoded text. */
export class EventParser {
  #rest = "";
  #event = "";
  #data = [];
  #id = null;

  *feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) yield { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
        this.#event = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#event = value;
      else if (field === "data") this.#data.push(value);
      else if (field === "id") this.#id = value;
    }
  }
}

/** Keeps a job's events coming: streams, reconnects, and polls where streams do not get through. */
export class LiveStream {
  #stop = new AbortController();
  #failures = 0;
  #lastId = null;

  /** `onState` is told "live", "reconnecting", "polling" or "gone"; `poll` fetches once. */
  constructor({ api, path, onEvent, onState, poll }) {
    Object.assign(this, { api, path, onEvent, onState, poll });
  }

  start() {
    this.#run().catch((error) => { if (!this.#stop.signal.aborted) console.warn("paceline:", error); });
  }

  stop() {
    this.#stop.abort();
  }

  async #run() {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#stream();
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        if (error instanceof ApiError && error.status === 404) return this.onState("gone");
      }
      if (this.#stop.signal.aborted) return;
      this.#failures += 1;
      if (this.#failures < FAILURES_BEFORE_POLLING) {
        this.onState("reconnecting");
        await this.#sleep(250 * 2 ** this.#failures);
      } else {
        await this.#pollForAWhile();
      }
    }
  }

  async #stream() {
    const silence = new AbortController();
    const abort = () => silence.abort();
    this.#stop.signal.addEventListener("abort", abort);
    let timer = setTimeout(abort, SILENCE_MS);
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.#lastId !== null) headers["Last-Event-ID"] = this.#lastId;
      const response = await this.api.open(this.path, { headers, signal: silence.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(abort, SILENCE_MS);
        this.#failures = 0;
        this.onState("live");
        for (const { event, data, id } of parser.feed(value)) {
          this.onEvent(event, JSON.parse(data));
          if (id !== null) this.#lastId = id;
        }
      }
    } finally {
      clearTimeout(timer);
      this.#stop.signal.removeEventListener("abort", abort);
    }
  }

  async #pollForAWhile() {
    for (let i = 0; i < POLLS_PER_STREAM_ATTEMPT && !this.#stop.signal.aborted; i += 1) {
      try {
        await this.poll(this.#stop.signal);
        this.onState("polling");
      } catch {
        if (!this.#stop.signal.aborted) this.onState("reconnecting");
      }
      await this.#sleep(POLL_MS);
    }
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#stop.signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }
}
