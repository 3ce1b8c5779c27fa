// An incident in plain words: since when, what it cost, who knows of it, who silenced it.

import { ago, count, gpuTime, moment, span, times } from "./format.js";
import * as words from "./words.js";

const CLOSED = {
  recovered: "it recovered",
  withdrawn: "withdrawn, because with more evidence it does not stand",
  ended: "the job ended",
};

/** The finding of an incident as a title: in the present while it lasts. */
export function title(incident) {
  return words.title(incident, incident.open ? 0 : Infinity);
}

/** "Open since 14:03:22 (12 min ago), since step 60: 91.7 GPU-s so far." */
export function life(incident) {
  const { open, opened_wall_ns: opened, closed_wall_ns: closed } = incident;
  const when = open
    ? `Open since ${moment(opened)} (${ago(opened)})`
    : `Closed: ${CLOSED[incident.closed_reason] ?? "it is over"}. It lasted ${span((closed - opened) / 1e9)}, from ${moment(opened)} to ${moment(closed)}`;
  const steps = words.when(incident, open ? 0 : Infinity);
  const back = incident.recoverable_ratio;
  const slower = back > 0 && back < 1 ? `; every step ${open ? "takes" : "took"} ${times(1 / (1 - back))} as long` : "";
  const spent = incident.wasted_gpu_s > 0 ? `: ${gpuTime(incident.wasted_gpu_s)}${open ? " so far" : ""}` : "";
  return `${when}${steps ? `, ${steps}` : ""}${slower}${spent}.`;
}

/** Who has acknowledged it, and what they said. */
export function acknowledged({ acknowledged: said, open }) {
  if (!said) return open ? "Nobody has acknowledged it." : "";
  return `Acknowledged by ${said.by || "somebody"} at ${moment(said.at_wall_ns)}${said.note ? `: “${said.note}”` : "."}`;
}

/** Until when it is silenced, and why. */
export function silenced({ silenced: silence }) {
  if (!silence) return "";
  return `Silenced until ${moment(silence.until_wall_ns)} by ${silence.created_by || "somebody"}${silence.note ? `: “${silence.note}”` : "."}`;
}

/** "3 earlier incidents of other jobs or launches named the same node or GPU in the 30 days before." */
export function earlier({ earlier_incidents: n, nodes = [] }) {
  if (!(n > 0)) return "";
  const where = nodes.length === 1 ? nodes[0] : "the same hardware";
  return `Repeat offender: ${n === 1 ? "1 earlier incident" : `${count(n)} earlier incidents`} of other jobs or launches named ${where} in the 30 days before.`;
}
