// The verdict in plain words. Everything here turns the report's fields into sentences.

import { count, counted, gpuTime, percent, rankList, times } from "./format.js";

const STEPS_TO_BE_OVER = 16; // a live finding's last step lags a little behind the job's

const VERDICTS = {
  straggler: { label: "Straggler", tone: "bad", icon: "slow" },
  communication: { label: "Slow communication", tone: "bad", icon: "net" },
  communication_bound: { label: "Communication-bound", tone: "note", icon: "net" },
  imbalance: { label: "Imbalance", tone: "note", icon: "scale" },
  stage_imbalance: { label: "Stage imbalance", tone: "note", icon: "scale" },
  uniform_slowdown: { label: "Uniform slowdown", tone: "bad", icon: "slow" },
  hang: { label: "Hang", tone: "bad", icon: "stop" },
  desync: { label: "Desync", tone: "bad", icon: "stop" },
  healthy: { label: "Healthy", tone: "good", icon: "ok" },
  insufficient_evidence: { label: "Not enough evidence", tone: "none", icon: "unsure" },
};

const CAUSES = {
  gpu_throttle: "the GPU is throttled",
  gpu_fault: "the GPU reports faults",
  compute: "its compute takes longer",
  input: "its input pipeline is late",
  host: "its host is late",
  gc: "garbage collection pauses it",
  network: "its network is slow",
  unknown: "cause not known yet",
};

const PHASES = {
  host: "between phases, on the host",
  input: "loading input",
  forward: "in the forward pass",
  backward: "in the backward pass",
  optimizer: "in the optimizer",
  copy: "copying the batch to the device",
  checkpoint: "saving a checkpoint",
};

/** Return {label, tone, icon} of a verdict; unknown ones are shown by their own name. */
export function verdict(kind) {
  if (!kind) return VERDICTS.insufficient_evidence;
  return VERDICTS[kind] ?? { label: kind.replaceAll("_", " "), tone: "note", icon: "unsure" };
}

const FLAG_WORDS = { straggler: "slow", hang: "missing", desync: "out of step" };

/** One word for what a finding says of `ranks`. */
export function flagWord(report, ranks) {
  const finding = report?.findings.find((one) => one.ranks?.some((rank) => ranks.includes(rank)));
  if (finding?.kind === "desync" && !finding.collective) return "differs";
  return FLAG_WORDS[finding?.kind] ?? "named";
}

/** "its compute takes longer". */
export function cause(name) {
  return CAUSES[name] ?? (name || CAUSES.unknown).replaceAll("_", " ");
}

/** Who a finding is about: "Rank 2", "Ranks 8–15 (node-1)". */
export function who(finding) {
  const { ranks = [], nodes = [] } = finding;
  if (ranks.length === 0) return nodes.length ? nodes.join(", ") : "The job";
  if (ranks.length === 1) return `Rank ${ranks[0]}`;
  if (nodes.length === 1) return /^node/i.test(nodes[0]) ? nodes[0] : `Node ${nodes[0]}`;
  return `Ranks ${rankList(ranks)}`;
}

/** The ranks and nodes behind `who`, where that left something out; else "". */
export function whereabouts(finding) {
  const { ranks = [], nodes = [] } = finding;
  if (ranks.length > 1 && nodes.length === 1) return `ranks ${rankList(ranks)}`;
  return nodes.length ? `on ${nodes.slice(0, 3).join(", ")}${nodes.length > 3 ? " …" : ""}` : "";
}

/** Whether the finding had ended well before the last step. */
export function isOver(finding, steps) {
  return finding.last_step !== null && finding.last_step !== undefined && finding.last_step + STEPS_TO_BE_OVER < steps;
}

/** "since step 60", or "steps 60–188" when it is over; "" when not known. */
export function when(finding, steps) {
  if (finding.first_step === null || finding.first_step === undefined) return "";
  if (!isOver(finding, steps)) return `since step ${count(finding.first_step)}`;
  return `steps ${count(finding.first_step)}–${count(finding.last_step)}`;
}

/** One line that names the finding. */
export function title(finding, steps) {
  const subject = who(finding);
  const plural = finding.ranks?.length > 1 && finding.nodes?.length !== 1;
  const phase = finding.phase ? ` ${PHASES[finding.phase] ?? `in ${finding.phase}`}` : "";
  switch (finding.kind) {
    case "straggler": {
      const verb = isOver(finding, steps) ? (plural ? "were" : "was") : plural ? "are" : "is";
      return `${subject} ${verb} slow${phase}`;
    }
    case "communication": return `Communication is slow around ${subject.toLowerCase()}`;
    case "communication_bound": return "The job is bound by communication, no rank is at fault";
    case "imbalance": return `Work is unevenly spread${phase}`;
    case "stage_imbalance": return `One pipeline stage sets the pace: ${subject.toLowerCase()}`;
    case "uniform_slowdown": return `Every rank is slower than before${phase}`;
    case "hang": if (!finding.ranks?.length) return "The job hangs: everybody entered a collective and nobody leaves it";
      return `The job hangs: ${subject.toLowerCase()} ${plural ? "hold" : "holds"} everyone up`;
    case "desync": if (!finding.collective) return finding.ranks?.length
      ? `Replicas differ: ${subject.toLowerCase()} ${plural ? "hold" : "holds"} other parameters` : "Replicas differ, and nobody can say whose parameters are wrong";
      return `Ranks issue different collectives: ${subject.toLowerCase()}`;
    default: return `${subject}: ${verdict(finding.kind).label.toLowerCase()}`;
  }
}

/** What the finding costs everyone, in one or two sentences. */
export function cost(finding, { world_size: worldSize, steps }) {
  const { ranks = [], recoverable_ratio: back } = finding;
  const over = isOver(finding, steps);
  const since = when(finding, steps) && ` ${when(finding, steps)}`;
  const spent = finding.wasted_gpu_s > 0 ? `${gpuTime(finding.wasted_gpu_s)}${over ? "" : " so far"}` : "";
  if (!(back > 0 && back < 1)) return spent ? `It has cost ${spent}${over ? " in" : ""}${since}.` : "";
  const others = worldSize - ranks.length;
  const waiting = finding.kind !== "straggler" || others < 1 ? ""
    : ` while ${others === 1 ? "the other rank" : `${count(others)} other ranks`} ${over ? "waited" : others === 1 ? "waits" : "wait"}`;
  const subject = over && since ? `Steps${since.slice(" steps".length)} took` : `Every step${since} takes`;
  return `${subject} ${times(1 / (1 - back))} as long${waiting}${spent ? `: ${spent}` : ""}.`;
}

/** The finding's figures and place, as short clauses. */
export function facts(finding) {
  const sure = finding.confidence >= 0.9995 ? "over 99.9 %" : percent(finding.confidence);
  const ratioName = finding.kind === "straggler" ? "the time of its peers" : "as slow as it should be";
  return [
    `Cause: ${cause(finding.cause)}`,
    finding.slowdown > 1 ? `${times(finding.slowdown)} ${ratioName}` : "",
    finding.recoverable_ratio > 0 ? `without it steps would be ${percent(finding.recoverable_ratio)} shorter` : "",
    whereabouts(finding),
    finding.period_steps ? `returns every ${count(finding.period_steps)} steps` : "",
    finding.confidence === null || finding.confidence === undefined ? "" : `confidence ${sure}`,
  ].filter(Boolean).join(" · ");
}

/** Title and text where there is no finding. */
export function quiet(report) {
  const { steps, world_size: size } = report.job;
  if (report.verdict === "healthy") {
    return {
      title: "Healthy: no rank sets the pace",
      text: `${counted(steps, "step")} of ${counted(size, "rank")}, which wait ${percent(report.idle_ratio)} of their time. Who arrives last is chance.`,
    };
  }
  if (report.verdict === "insufficient_evidence") {
    return {
      title: "Not enough evidence yet",
      text: `${counted(steps, "step")} seen. The answer comes as soon as it can be given without guessing.`,
    };
  }
  return { title: verdict(report.verdict).label, text: report.job.headline ?? "" };
}
