"""The answer of a report in sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.counted import counted
from paceline.ranks import format_ranks
from paceline_service.export.units import (
    format_gpu_s,
    format_ratio,
    format_times,
)

Json = Mapping[str, Any]

_LEAST_SLOWDOWN = 1.005
"""Under it a job has nothing to gain by having all ranks alike."""
_MAX_LISTED = 60
"""Characters of a rank list in a sentence; a longer one is counted instead."""
_CAUSES = {
    "gpu_throttle": "its GPU is throttled",
    "gpu_fault": "its GPU reports faults",
    "compute": "its own computation takes longer",
    "input": "its input data come late",
    "host": "its host is late",
    "gc": "Python's garbage collector stops it",
    "network": "its network is slow",
}
_CAUSES_OF_MANY = {
    "gpu_throttle": "their GPUs are throttled",
    "gpu_fault": "their GPUs report faults",
    "compute": "their own computation takes longer",
    "input": "their input data come late",
    "host": "their hosts are late",
    "gc": "Python's garbage collector stops them",
    "network": "their network is slow",
}


def clean(text: object) -> str:
    """Return ``text`` for a terminal: names from files and networks can hold escape sequences."""
    return "".join(
        "?" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
        for char in str(text)
    )


def headline(report: Json) -> str:
    """Return the verdict of a ``paceline.report/1`` object as one sentence without its stop."""
    finding = main_finding(report)
    if finding is None:
        return _without_finding(report)
    cost = costs(finding, report)
    return f"{statement(finding, report)}: {cost}" if cost else statement(finding, report)


def main_finding(report: Json) -> Json | None:
    """Return the finding that the verdict is about, or None: nothing was found."""
    findings: Sequence[Json] = report.get("findings") or ()
    matching = [f for f in findings if f.get("kind") == report.get("verdict")]
    if matching:
        return matching[0]
    if report.get("verdict") in ("healthy", "insufficient_evidence"):
        return None
    return findings[0] if findings else None


def statement(finding: Json, report: Json) -> str:
    """Return who has the trouble, where and since when, for example of one straggler."""
    since = _since(finding, report)
    collective = _collective(finding.get("collective"))
    kind = finding.get("kind")
    many = len(finding.get("ranks") or ()) != 1
    if kind == "straggler":
        where = f" in {clean(finding['phase'])}" if finding.get("phase") else ""
        return f"{who(finding)} {'are' if many else 'is'} slow{where}{since}"
    if kind == "communication":
        return f"Communication is slow {_links(finding)}{since}"
    if kind == "communication_bound":
        return f"The job waits for communication more than it computes{since}; no rank is at fault"
    if kind == "imbalance":
        return f"The work is uneven{since}: the slowest rank changes from step to step"
    if kind == "stage_imbalance":
        return (
            f"One pipeline stage has more to do than the others: {who(finding, start=False)}{since}"
        )
    if kind == "uniform_slowdown":
        return f"All ranks together became slower{since}"
    if kind == "hang" and not finding.get("ranks"):
        return f"The job hangs: everybody entered {collective} and nobody leaves it{since}"
    if kind == "hang":
        never = "never finished" if finding.get("cause") == "gpu_fault" else "never entered"
        return f"The job hangs: {who(finding, start=False)} {never} {collective}{since}"
    if kind == "desync" and not finding.get("collective"):
        if not finding.get("ranks"):
            return f"The replicas differ{since}, and nobody can say whose parameters are wrong"
        return (
            f"The replicas differ: {who(finding, start=False)} {'hold' if many else 'holds'} other "
            f"parameters than the others{since}"
        )
    if kind == "desync":
        return (
            f"The ranks disagree: {who(finding, start=False)} did not issue {collective} "
            f"as the others did{since}"
        )
    return f"{clean(kind)}: {who(finding)}{since}"


def costs(finding: Json, report: Json) -> str:
    """Return what a finding costs everyone as a clause; what is not known is left out."""
    they = finding.get("kind") == "straggler" and len(finding.get("ranks") or ()) > 1
    subject = "they" if they else "it" if finding.get("kind") == "straggler" else "this"
    ratio, wasted = finding.get("recoverable_ratio"), finding.get("wasted_gpu_s")
    so_far = " so far" if (report.get("job") or {}).get("state") == "running" else ""
    parts = []
    if ratio is not None and 0 < ratio < 1:
        factor = format_times(1 / (1 - ratio))
        parts.append(f"make{'' if they else 's'} every step {factor} as long")
    if wasted is not None:
        parts.append(f"{'have' if they else 'has'} cost {format_gpu_s(wasted)}{so_far}")
    return f"{subject} {' and '.join(parts)}" if parts else ""


def against_peers(finding: Json) -> str:
    """Return how much more time the ranks take than their peers, or an empty string."""
    slowdown = finding.get("slowdown")
    if finding.get("kind") != "straggler" or slowdown is None:
        return ""
    many = len(finding.get("ranks") or ()) > 1
    return (
        f"{'Their' if many else 'Its'} own work takes {format_times(slowdown)} as long as that of "
        f"{'their' if many else 'its'} peers."
    )


def because(finding: Json) -> str:
    """Return the cause as a sentence, or the sentence that it is not known."""
    if finding.get("kind") == "hang":
        return ""  # its evidence says whether a host or a device did not get that far
    causes = _CAUSES_OF_MANY if len(finding.get("ranks") or ()) > 1 else _CAUSES
    cause = str(finding.get("cause") or "unknown")
    if cause in causes:
        return f"Cause: {causes[cause]}."
    if finding.get("kind") not in ("straggler", "communication"):
        return ""
    return "The measurements do not tell the cause."


def gain(finding: Json) -> str:
    """Return what removing the finding would give back, or an empty string."""
    ratio = finding.get("recoverable_ratio")
    if ratio is None or ratio <= 0:
        return ""
    if finding.get("kind") == "straggler":
        subject = "them" if len(finding.get("ranks") or ()) > 1 else "it"
        return f"Without {subject} these steps would take {format_ratio(ratio)} less time."
    return f"Without this these steps would take {format_ratio(ratio)} less time."


def replayed(report: Json) -> str:
    """Return what the job would have been without its slow ranks, or an empty string."""
    what_if: Json = report.get("what_if") or {}
    if what_if.get("slowdown") is None or what_if["slowdown"] < _LEAST_SLOWDOWN:
        return ""
    told = (
        f"Replayed with all ranks alike, {counted(what_if.get('steps') or 0, 'step')} would have "
        f"been {format_times(what_if['slowdown'])} as fast (S)"
    )
    if what_if.get("m_w") is not None:
        told += f"; {format_ratio(what_if['m_w'])} of that goes with the slowest 3 % (M_W)"
    if what_if.get("m_s") is not None:
        told += f", {format_ratio(what_if['m_s'])} with the last stage (M_S)"
    return told + "."


def who(finding: Json, *, start: bool = True) -> str:
    """Return the ranks of a finding and the nodes they are on."""
    ranks: Sequence[int] = finding.get("ranks") or ()
    nodes = [clean(node) for node in finding.get("nodes") or () if node]
    text = ranks_in_words(ranks)
    if nodes:
        listed = " and ".join(nodes) if len(nodes) <= 2 else f"{len(nodes)} nodes"
        text += f" on {listed}"
    return text[0].upper() + text[1:] if start else text


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Return ``rank 5``, ``ranks 1, 3 and 8-15``, or a count where the list would be long."""
    if not ranks:
        return "no rank in particular"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    parts = format_ranks(sorted(ranks)).split(",")
    parts = [_every(part) if ":" in part else part for part in parts]
    listed = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    if len(listed) > _MAX_LISTED:
        return f"{len(ranks):,} ranks, {min(ranks)} to {max(ranks)},"
    return f"ranks {listed}"


def _every(run: str) -> str:
    extent, stride = run.split(":")
    return f"{extent} (every {stride})"


def _since(finding: Json, report: Json) -> str:
    first, last = finding.get("first_step"), finding.get("last_step")
    steps = (report.get("job") or {}).get("steps") or 0
    if first is None:
        return ""
    if last is None or last + 1 >= steps:
        return f" since step {first:,}" if first > 0 else " from the first step on"
    return f" in step {first:,}" if first == last else f" from step {first:,} to {last:,}"


def _links(finding: Json) -> str:
    links: Sequence[Sequence[int]] = finding.get("links") or ()
    if not links:
        return f"on {who(finding, start=False)}"
    named = [f"{link[0]} and {link[-1]}" for link in links[:2]]
    more = f" and {len(links) - 2} more links" if len(links) > 2 else ""
    return f"between ranks {', '.join(named)}{more}"


def _collective(collective: Json | None) -> str:
    if not collective:
        return "a collective"
    op = clean(collective.get("op") or "collective")
    seq = f" number {collective['seq']}" if collective.get("seq") is not None else ""
    group = f" of group {clean(collective['group'])}" if collective.get("group") else ""
    return f"{op}{seq}{group}"


def _without_finding(report: Json) -> str:
    job: Json = report.get("job") or {}
    steps, ranks = job.get("steps") or 0, job.get("ranks_observed") or 0
    in_steps = counted(steps, "step")
    of_ranks = counted(ranks, "rank")
    if report.get("verdict") == "healthy":
        idle = report.get("idle_ratio")
        waits = f"; they wait {format_ratio(idle)} of the time" if idle is not None else ""
        return f"Healthy: in {in_steps} none of {of_ranks} held the others back{waits}"
    if report.get("verdict") == "insufficient_evidence":
        timings: Json = (report.get("data") or {}).get("timings") or {}
        if timings.get("times_of_each_rank") is False:
            return "Not enough evidence for an answer: the log has no times of each rank"
        return f"Not enough evidence for an answer: {in_steps} of {of_ranks} seen"
    return f"{clean(report.get('verdict'))}: {in_steps} of {of_ranks} seen"
