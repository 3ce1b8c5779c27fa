// Every rank's totals: sortable, searchable, and only the rows in sight are in the page.

import { h, setText } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { Keyed } from "./keyed.js";
import { updateParams } from "./router.js";
import { flagWord } from "./words.js";

const ROW_PX = 30;
const MAX_ROWS_SHOWN = 14;
const SPARE = 6;

const all = (row) => row.self_ns + row.wait_ns + row.exposed_comm_ns;
const COLUMNS = [
  { key: "rank", name: "Rank", value: (r) => r.rank, show: (r) => count(r.rank) },
  { key: "node", name: "Node", value: (r) => r.node ?? "", show: (r) => r.node || "–", text: true },
  { key: "self", name: "Self", title: "time the rank worked itself", value: (r) => r.self_ns, show: (r) => duration(r.self_ns) },
  { key: "wait", name: "Waits", title: "time it waited for the last arriver", value: (r) => r.wait_ns, show: (r) => duration(r.wait_ns) },
  { key: "comm", name: "Exposed comm.", title: "time of transfer that nothing hid", value: (r) => r.exposed_comm_ns, show: (r) => duration(r.exposed_comm_ns) },
  { key: "idle", name: "Idle share", title: "waits over all of its time", value: (r) => r.wait_ns / all(r) || 0, show: (r) => percent(all(r) ? r.wait_ns / all(r) : NaN), bar: true },
  { key: "caused", name: "Caused wait", title: "waits of others where it arrived last", value: (r) => r.caused_wait_ns, show: (r) => duration(r.caused_wait_ns) },
  { key: "blamed", name: "Blamed wait", title: "waits of others that its own delay explains", value: (r) => r.blamed_wait_ns, show: (r) => duration(r.blamed_wait_ns), bar: true },
  { key: "last", name: "Last arriver", title: "collectives at which it arrived last", value: (r) => r.last_arriver, show: (r) => count(r.last_arriver) },
];

export class RankTable {
  #rows = [];
  #shown = [];

  constructor({ model, sort, onPick }) {
    Object.assign(this, { model, onPick });
    const [key, order] = (sort ?? "").split(".");
    this.sort = COLUMNS.some((column) => column.key === key) ? key : "blamed";
    this.descending = order !== "up";
    this.filter = h("input", { type: "search", placeholder: "rank or node", "aria-label": "Filter by rank or node", on: { input: () => this.#select() } });
    this.heads = COLUMNS.map((column) => this.#head(column));
    this.body = h("tbody");
    this.rows = new Keyed(this.body, (row) => row.rank, (row) => new RankRow(row.rank, onPick));
    this.pads = [0, 1].map(() => h("tr", { class: "pad", "aria-hidden": "true" }));
    this.table = h("table", { "aria-label": "Totals by rank" }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.scroller = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Table of ranks" }, this.table);
    this.scroller.addEventListener("scroll", () => this.#paint());
    this.range = h("span", { class: "range" });
    this.element = h("section", { class: "card", "aria-labelledby": "ranks-title" },
      h("div", { class: "card-head" }, h("h2", { id: "ranks-title" }, "Ranks"), this.range, h("div", { class: "tools" }, this.filter)),
      this.scroller);
  }

  #head(column) {
    const button = h("button", { type: "button", title: column.title, on: { click: () => this.#sortBy(column) } }, column.name);
    return h("th", { scope: "col", class: column.text ? "text" : "", "aria-sort": "none" }, button);
  }

  #sortBy(column) {
    this.descending = this.sort === column.key ? !this.descending : !(column.text || column.key === "rank");
    this.sort = column.key;
    updateParams({ sort: `${this.sort}.${this.descending ? "down" : "up"}` });
    this.#select();
  }

  update() {
    const { report, nodes } = this.model;
    const extra = new Map(this.model.rankRows.map((row) => [row.rank, row]));
    this.#rows = (report?.ranks ?? []).map((row) => ({ ...row, node: nodes[row.rank] ?? extra.get(row.rank)?.node, ended: extra.get(row.rank)?.ended }));
    this.tops = Object.fromEntries(COLUMNS.filter((c) => c.bar).map((c) => [c.key, Math.max(1e-9, ...this.#rows.map(c.value))]));
    this.#select();
  }

  #select() {
    const column = COLUMNS.find((c) => c.key === this.sort);
    const wanted = this.filter.value.trim().toLowerCase();
    const sign = this.descending ? -1 : 1;
    this.#shown = this.#rows
      .filter((row) => !wanted || String(row.rank) === wanted || (row.node ?? "").toLowerCase().includes(wanted))
      .sort((a, b) => sign * compare(column.value(a), column.value(b)) || a.rank - b.rank);
    this.heads.forEach((head, i) => {
      const mine = COLUMNS[i].key === this.sort;
      head.setAttribute("aria-sort", mine ? (this.descending ? "descending" : "ascending") : "none");
    });
    setText(this.range, this.#shown.length === this.#rows.length ? `${count(this.#rows.length)}` : `${count(this.#shown.length)} of ${count(this.#rows.length)}`);
    this.table.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    this.scroller.classList.toggle("tall", this.#shown.length > MAX_ROWS_SHOWN);
    this.#paint();
  }

  #paint() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE);
    const last = Math.min(this.#shown.length, first + MAX_ROWS_SHOWN + 2 * SPARE);
    const { flagged, report } = this.model;
    const pad = (i, rows) => {
      this.pads[i].style.setProperty("--height", `${rows * ROW_PX}px`);
      return rows > 0 ? [this.pads[i]] : [];
    };
    this.rows.update(
      this.#shown.slice(first, last).map((row, i) => ({ ...row, index: first + i, slow: flagged.has(row.rank) ? flagWord(report, [row.rank]) : "", tops: this.tops })),
      { before: pad(0, first), after: pad(1, this.#shown.length - last) });
  }
}

/** One rank; the button is for who has no mouse, the whole row for who has one. */
class RankRow {
  constructor(rank, onPick) {
    this.slow = h("span", { class: "tag bad", hidden: true });
    this.killed = h("span", { class: "tag", hidden: true }, "killed");
    this.pick = h("button", { type: "button", class: "link", "aria-label": `Rank ${rank}: show its lane` }, count(rank));
    this.cells = COLUMNS.slice(1).map((column) => h("td", { class: column.text ? "text" : column.bar ? "bar" : "" }));
    this.element = h("tr", { on: { click: () => onPick([rank]) } }, h("td", {}, this.slow, this.killed, this.pick), this.cells);
  }

  update(row) {
    this.element.classList.toggle("slow", Boolean(row.slow));
    this.element.setAttribute("aria-rowindex", String(row.index + 2));
    this.slow.hidden = !row.slow;
    setText(this.slow, row.slow);
    this.killed.hidden = row.ended !== "killed";
    COLUMNS.slice(1).forEach((column, i) => {
      setText(this.cells[i], column.show(row));
      if (column.bar) this.cells[i].style.setProperty("--share", `${(100 * column.value(row)) / row.tops[column.key]}%`);
    });
  }
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
