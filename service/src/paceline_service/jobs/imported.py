"""What a replayed job brings beside its records: what only its files tell (docs/replay.md).

A trace is judged a little differently from a live job: how many of its first steps are settling
and how exactly releases are known are measured while it is read, and sentences, causes and figures
that its format adds are no records. ``paceline replay`` sends them as JSON under one name of a
frame's ``info``, so that the collector's report is that of ``paceline analyze``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import CAUSES, KINDS
from paceline_service.jobs.sinks import Sink

INFO_KEY = "imported"
MAX_TEXT_BYTES = 1 << 18
"""Of one frame's JSON; what is longer is not taken."""
MAX_SETTLING_STEPS = 1000
MAX_NOISE_NS = 1_000_000_000
MAX_SENTENCES = 200
MAX_CHARS = 1000
_FIGURES = ("slowdown", "idle_ratio", "gamma", "wasted_gpu_s")
_OF_FINDING = (
    "slowdown", "recoverable_ratio", "wasted_gpu_s", "confidence", "first_step", "last_step",
    "period_steps",
)  # fmt: skip
_TEXTS = ("phase", "action")
_BLOCKS = ("what_if", "expected", "calibration")
"""Of the report; a format that knows no times has none of them."""


class FindingTold(msgspec.Struct, omit_defaults=True):
    """What the files tell of the finding with this kind and these ranks."""

    kind: str
    ranks: list[int]
    cause: str = ""
    evidence: list[str] | None = None
    figures: dict[str, int | float | None] = {}
    texts: dict[str, str | None] = {}
    gone: bool = False
    """The format cannot carry it."""


class Told(msgspec.Struct, omit_defaults=True):
    """How the report on the files differs from the one on their records alone."""

    verdict: str = ""
    figures: dict[str, float | None] = {}
    without: list[str] = []
    gap_parts_s: dict[str, float | None] = {}
    notes: list[str] | None = None
    findings: list[FindingTold] = []
    data: dict[str, Any] = {}


class Imported(msgspec.Struct, omit_defaults=True):
    """What one frame brings; ``noise_ns`` is by the frame's own number of the group."""

    settling_steps: int | None = None
    noise_ns: dict[int, int] = {}
    told: Told | None = None


def imported_of(info: Mapping[str, str]) -> Imported | None:
    """Return what a frame's ``info`` brings; None where that is nothing, or makes no sense."""
    text = info.get(INFO_KEY, "")
    if not text or len(text) > MAX_TEXT_BYTES:
        return None
    try:
        brought = msgspec.json.decode(text, type=Imported)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if brought.settling_steps is not None:
        brought.settling_steps = min(max(brought.settling_steps, 0), MAX_SETTLING_STEPS)
    brought.noise_ns = {g: n for g, n in brought.noise_ns.items() if 0 <= n <= MAX_NOISE_NS}
    return brought


def begin(info: Mapping[str, str], sink: Sink) -> None:
    """Take what the very first frame of a job brings."""
    brought = imported_of(info)
    if brought is not None and brought.settling_steps is not None:
        sink.settle_after(brought.settling_steps)


def take(info: Mapping[str, str], group_of_local: Int64Array, sink: Sink) -> str:
    """Take what a frame brings; return its text where it tells of the report, to be kept."""
    brought = imported_of(info)
    if brought is None:
        return ""
    for local, noise_ns in brought.noise_ns.items():
        if 0 <= local < len(group_of_local) and group_of_local[local] >= 0:
            sink.assume_noise(int(group_of_local[local]), noise_ns)
    return info[INFO_KEY] if brought.told is not None else ""


def as_info(brought: Imported) -> dict[str, str]:
    """Return the entry of ``info``; empty where there is nothing to say or too much."""
    text = msgspec.json.encode(brought).decode()
    if len(text) > MAX_TEXT_BYTES and brought.told is not None:
        # The tables of a very large job; the sentences matter more.
        brought.told.data = {}
        text = msgspec.json.encode(brought).decode()
    return {INFO_KEY: text} if text != "{}" and len(text) <= MAX_TEXT_BYTES else {}


def told_of(records_alone: Mapping[str, Any], files: Mapping[str, Any]) -> Told:
    """Return how the report on files differs from the one on their records alone."""
    told = Told()
    if files["verdict"] != records_alone["verdict"]:
        told.verdict = files["verdict"]
    told.figures = {n: files[n] for n in _FIGURES if files[n] != records_alone[n]}
    told.without = [name for name in _BLOCKS if name in records_alone and name not in files]
    parts = _gap_parts(files)
    if parts != _gap_parts(records_alone):
        told.gap_parts_s = parts
    if files["data"]["notes"] != records_alone["data"]["notes"]:
        told.notes = files["data"]["notes"]
    known = {_key(finding): finding for finding in files["findings"]}
    for finding in records_alone["findings"]:
        after = known.get(_key(finding))
        one = FindingTold(kind=finding["kind"], ranks=finding["ranks"], gone=after is None)
        if after is not None:
            one.cause = after["cause"] if after["cause"] != finding["cause"] else ""
            one.evidence = after["evidence"] if after["evidence"] != finding["evidence"] else None
            one.figures = {n: after[n] for n in _OF_FINDING if after.get(n) != finding.get(n)}
            one.texts = {n: after[n] for n in _TEXTS if after.get(n) != finding.get(n)}
        if one.gone or one.cause or one.evidence is not None or one.figures or one.texts:
            told.findings.append(one)
    of_records = ("complete", "dropped", "notes", "sources", *records_alone["data"])
    told.data = {n: v for n, v in files["data"].items() if n not in of_records}
    return told


def apply(told: Told, report: dict[str, Any]) -> None:
    """Let ``report`` (``paceline.report/1``) say what the files tell, in place."""
    if told.verdict in KINDS:
        report["verdict"] = told.verdict
    report.update({n: v for n, v in told.figures.items() if n in _FIGURES})
    for name in _BLOCKS:
        if name in told.without:
            report.pop(name, None)
    # Whose a difference is follows from causes; how large it is, from the records.
    parts = _gap_parts(report)
    parts.update({n: v for n, v in told.gap_parts_s.items() if n in parts})
    if told.notes is not None:
        report["data"]["notes"] = _sentences(told.notes)
    for name, value in told.data.items():
        report["data"].setdefault(name[:80], value)
    changes = {(one.kind, tuple(one.ranks)): one for one in told.findings}
    kept = []
    for finding in report["findings"]:
        one = changes.get(_key(finding))
        if one is None or not one.gone:
            kept.append(finding)
        if one is None:
            continue
        if one.cause in CAUSES:
            finding["cause"] = one.cause
        if one.evidence is not None:
            finding["evidence"] = _sentences(one.evidence)
        finding.update({n: v for n, v in one.figures.items() if n in _OF_FINDING})
        finding.update({n: v and v[:MAX_CHARS] for n, v in one.texts.items() if n in _TEXTS})
    report["findings"] = kept
    if told.findings:
        report["wasted_gpu_s_by_cause"] = _by_cause(kept)
        _tell_ranks(report)


def _gap_parts(report: Mapping[str, Any]) -> dict[str, float | None]:
    return (report.get("expected") or {}).get("gap_parts_s") or {}


def _by_cause(findings: list[dict[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for finding in findings:
        if finding["wasted_gpu_s"] is not None:
            total[finding["cause"]] = total.get(finding["cause"], 0.0) + finding["wasted_gpu_s"]
    return {cause: round(s, 9) for cause, s in sorted(total.items(), key=lambda item: -item[1])}


def _tell_ranks(report: dict[str, Any]) -> None:
    """Give each rank the cause of the costliest finding about it, as docs/report.md says."""
    causes: dict[int, str] = {}
    for finding in report["findings"]:
        for rank in finding["ranks"]:
            causes.setdefault(rank, finding["cause"])
    for row in report.get("ranks", ()):
        row["cause"] = causes.get(row["rank"])


def _key(finding: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    return finding["kind"], tuple(finding["ranks"])


def _sentences(texts: list[str]) -> list[str]:
    return [text[:MAX_CHARS] for text in texts[:MAX_SENTENCES]]
