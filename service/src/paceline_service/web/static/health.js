// How the agents of a job are: who is silent, lags, lost something, runs other versions. Figures only.

export const SILENT_S = 15; // as the collector takes a job for silent

/** Return {rows, troubled, missing, versions}: one row per rank with what is wrong with it. */
export function healthOf({ rankRows, detail, state }) {
  const newestWallNs = Math.max(0, ...rankRows.map((row) => row.last_seen_wall_ns ?? 0));
  const versions = versionsOf(rankRows);
  const rows = rankRows.map((row) => {
    // Against the rank heard of last: that needs no clock of this browser.
    const quietS = row.last_seen_wall_ns ? (newestWallNs - row.last_seen_wall_ns) / 1e9 : NaN;
    const dropped = Object.values(row.dropped ?? {}).reduce((a, b) => a + b, 0);
    const silent = state === "running" && !row.ended && quietS > SILENT_S;
    const wrong = [
      silent ? "silent" : "", row.ended === "killed" ? "killed" : "", dropped > 0 ? "lost records" : "",
      versions.length > 1 && versionOf(row) !== versions[0].name ? "other versions" : "",
    ].filter(Boolean);
    return { ...row, quietS, lost: dropped, silent, wrong };
  });
  const seen = new Set(rankRows.map((row) => row.rank));
  const missing = Array.from({ length: detail.world_size }, (_, rank) => rank).filter((rank) => !seen.has(rank));
  return { rows, troubled: rows.filter((row) => row.wrong.length), missing, versions };
}

/** Return the nodes of `rows`, those with trouble first: {node, ranks, quietS, step, lost, wrong, version}. */
export function byNode(rows) {
  const nodes = new Map();
  for (const row of rows) {
    const known = nodes.get(row.node) ?? { node: row.node, ranks: [], quietS: 0, step: Infinity, lost: 0, wrong: new Set(), pendingS: 0, version: versionOf(row) };
    known.ranks.push(row.rank);
    known.quietS = Math.max(known.quietS, row.quietS || 0);
    known.step = Math.min(known.step, row.step ?? Infinity);
    known.lost += row.lost;
    known.pendingS = Math.max(known.pendingS, row.pending_s ?? 0);
    for (const what of row.wrong) known.wrong.add(what);
    nodes.set(row.node, known);
  }
  return [...nodes.values()].sort((a, b) => b.wrong.size - a.wrong.size || b.quietS - a.quietS || (a.node < b.node ? -1 : 1));
}

/** "paceline 0.1.0, torch 2.13.0, Python 3.11.2"; "" where the rank tells none. */
export function versionOf({ versions = {} }) {
  const names = { paceline: "paceline", torch: "torch", nccl: "NCCL", cuda: "CUDA", python: "Python" };
  return Object.entries(names).filter(([key]) => versions?.[key]).map(([key, name]) => `${name} ${versions[key]}`).join(", ");
}

/** Return [{name, ranks}], what most ranks run first. */
function versionsOf(rankRows) {
  const found = new Map();
  for (const row of rankRows) {
    const name = versionOf(row);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(row.rank);
  }
  return [...found].map(([name, ranks]) => ({ name, ranks })).sort((a, b) => b.ranks.length - a.ranks.length);
}
