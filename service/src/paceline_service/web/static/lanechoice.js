// Which lanes a chart shows: the mode, which nodes are open, and the pins that charts share.

import { ALL_AT_ONCE, chooseLanes, totals } from "./lanes.js";

const RECENT_STEPS = 40;
const MAX_OPENED = 16; // ranks of a node that is opened unasked

/** Ranks that somebody wants to see whatever else is shown; one set for all charts. */
export class Pins {
  #listeners = new Set();

  constructor(ranks, onPins) {
    this.ranks = new Set(ranks);
    this.onPins = onPins;
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  toggle(rank) {
    if (this.ranks.has(rank)) this.ranks.delete(rank);
    else this.ranks.add(rank);
    this.onPins(this.ranks);
    for (const listener of this.#listeners) listener();
  }
}

/**
 * `usual` is the mode of a large job; `byRank` keeps nodes in their order instead of by what they cost. `open` are the
 * nodes that somebody has opened, null where nobody has chosen; `onOpen` is told when somebody does.
 */
export class LaneChoice {
  lanes = [];
  #key = "";

  constructor({ model, pins, mode, usual = "notable", byRank = false, open = null, onOpen = () => {} }) {
    Object.assign(this, { model, pins, byRank, onOpen });
    this.open = new Set(open);
    this.opened = open !== null;
    if (new Set(Object.values(model.nodes)).size < 2) usual = "notable";
    this.mode = ["notable", "nodes", "all"].includes(mode) ? mode : model.store.ranks > ALL_AT_ONCE ? usual : "all";
  }

  /** Whether there is anything to choose from. */
  get hasModes() {
    return this.model.store.ranks > 8 || Object.keys(this.model.nodes).length > 8;
  }

  /** Choose the lanes anew; cheap enough for every report, not for every frame. */
  refresh() {
    const { store, nodes, flagged } = this.model;
    const { mode, open, pins, byRank } = this;
    if (mode === "nodes" && !this.opened && flagged.size) this.#openFlagged();
    const sums = totals(store, store.last + 1 - RECENT_STEPS, store.last + 1);
    this.lanes = chooseLanes({ mode, store, nodes, flagged, pinned: pins.ranks, open, sums, byRank });
    this.#key = this.#present();
  }

  /** Open the first node that a finding names, once: what is wrong should be in sight. */
  #openFlagged() {
    this.opened = true;
    const { nodes, flagged } = this.model;
    const node = nodes[[...flagged][0]];
    const size = Object.values(nodes).filter((name) => name === node).length;
    if (node && size <= MAX_OPENED) this.open.add(node);
  }

  /** Refresh where what the choice rests on has changed. */
  keepFresh() {
    if (this.#key !== this.#present()) this.refresh();
  }

  toggleNode(node) {
    if (this.open.has(node)) this.open.delete(node);
    else this.open.add(node);
    this.opened = true;
    this.onOpen([...this.open]);
    this.refresh();
  }

  #present() {
    const { store, flagged, nodes } = this.model;
    const age = Math.floor(store.last / (RECENT_STEPS / 2));
    return [this.mode, store.ranks, age, [...flagged].join(), Object.keys(nodes).length].join("|");
  }
}
