// Asks for something again and again while it is looked at; one request at a time.

export class Refresher {
  #stop = new AbortController();
  #timer = 0;
  #busy = null;

  /** `refresh(signal)` fetches and shows; `onLink` is told "" or "reconnecting". */
  constructor(refresh, { everyMs, onLink = () => {} }) {
    Object.assign(this, { refresh, everyMs, onLink });
  }

  /** Refresh now, or wait for the refresh that is under way; raises what it raises. */
  now() {
    this.#busy ??= this.refresh(this.#stop.signal).finally(() => { this.#busy = null; });
    return this.#busy;
  }

  start() {
    this.#timer = setInterval(() => { if (!document.hidden) this.#quietly(); }, this.everyMs);
  }

  /** Refresh within `ms`, because something has changed. */
  soon(ms = 300) {
    this.#stop.signal.aborted || setTimeout(() => { if (!this.#stop.signal.aborted) this.#quietly(); }, ms);
  }

  stop() {
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  async #quietly() {
    try {
      await this.now();
      if (!this.#stop.signal.aborted) this.onLink("");
    } catch {
      if (!this.#stop.signal.aborted) this.onLink("reconnecting");
    }
  }
}
