// How far the data can be trusted: ranks seen, drops by reason, notes, process groups.

import { fill, h } from "./dom.js";
import { ago, clock, count, rankList } from "./format.js";

export class Quality {
  #shown = "";

  constructor() {
    this.body = h("div", { class: "quality" });
    this.element = h("section", { class: "card", id: "data", "aria-labelledby": "data-title" },
      h("div", { class: "card-head" }, h("h2", { id: "data-title" }, "Data and identity")), this.body);
  }

  update({ report, detail, rankRows, nodes }) {
    const ended = rankRows.filter((row) => row.ended);
    const seen = new Set((report?.ranks ?? []).map((row) => row.rank));
    const missing = Array.from({ length: detail.world_size }, (_, r) => r).filter((r) => !seen.has(r));
    const rows = [
      ["Ranks seen", `${count(detail.ranks_seen)} of ${count(detail.world_size)}${report && missing.length ? `; nothing yet from ${rankList(missing)}` : ""}`],
      ["Complete", report ? (report.data.complete ? "yes, nothing is missing" : "no: figures are bounds where data is missing") : "–"],
      ["Dropped", dropText(report?.data.dropped ?? {})],
      ["Ended", endText(ended)],
      ["Nodes", nodeText(nodes)],
      ["Groups", (detail.groups ?? []).slice(0, 8).map((g) => `${g.name} (${[g.mesh_dim, g.backend, `ranks ${g.ranks}`].filter(Boolean).join(", ")})`).join("; ") || "–"],
      ["Run", `${detail.run_id || "–"}, attempt ${detail.attempt}, first seen ${clock(detail.first_seen_wall_ns)}, last ${ago(detail.last_seen_wall_ns)}`],
    ];
    for (const note of report?.data.notes ?? []) rows.push(["Note", note]);
    const text = JSON.stringify(rows);
    if (text === this.#shown) return;
    this.#shown = text;
    fill(this.body, h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }
}

function dropText(dropped) {
  const parts = Object.entries(dropped).filter(([, n]) => n > 0);
  return parts.length ? parts.map(([reason, n]) => `${count(n)} ${reason.replaceAll("_", " ")}`).join(", ") : "nothing";
}

function endText(ended) {
  if (ended.length === 0) return "no rank has ended";
  const killed = ended.filter((row) => row.ended === "killed").map((row) => row.rank);
  const rest = `${count(ended.length - killed.length)} closed`;
  return killed.length ? `${rest}; killed or crashed: rank ${rankList(killed)}` : rest;
}

function nodeText(nodes) {
  const names = [...new Set(Object.values(nodes))];
  const most = names.slice(0, 6).join(", ");
  return names.length ? `${count(names.length)}: ${most}${names.length > 6 ? " …" : ""}` : "–";
}
