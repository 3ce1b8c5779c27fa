"""The report for a terminal of 80 columns: the answer first, then why, then what to do."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline_service.export import missing, table, words
from paceline_service.export.device_time import device_sentences, device_times, device_word
from paceline_service.export.units import (
    format_confidence,
    format_gpu_s,
    format_ratio,
    format_times,
)
from paceline_service.export.words import Json, headline

__all__ = ["headline", "print_report", "render_text"]

_STYLES = {
    "healthy": "bold green",
    "insufficient_evidence": "bold yellow",
    "hang": "bold red",
    "desync": "bold red",
}
_FOUND_STYLE = "bold red"
_HEADING_STYLE = "bold"
_COMMAND_STYLE = "bold cyan"
_QUIET_STYLE = "dim"
_MAX_NOTES = 12
_MAX_EVIDENCE = 8


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    style: str = ""


def render_text(report: Json, *, width: int = 80) -> str:
    """Return a ``paceline.report/1`` object as plain text that ends with a newline."""
    return "\n".join(line.text for line in _lines(report, width)) + "\n"


def print_report(report: Json, stream: TextIO | None = None) -> None:
    """Write the report: in colour and the terminal's width where ``stream`` is one, else plain."""
    out = sys.stdout if stream is None else stream
    if not out.isatty():
        out.write(render_text(report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False, soft_wrap=True)
    for line in _lines(report, min(max(console.width, 60), 100)):
        console.print(Text(line.text, style=line.style))


def _lines(report: Json, width: int) -> list[_Line]:
    main = words.main_finding(report)
    lines = [_Line(_job_line(report), _QUIET_STYLE), _Line("")]
    lines += _verdict(report, main, width)
    if main is not None:
        lines += _reasons(main, width)
    others = [f for f in report.get("findings") or () if f is not main]
    for number, finding in enumerate(others, start=2):
        lines += [_Line(""), _Line(f"Finding {number}", _HEADING_STYLE)]
        lines += _paragraph(_sentences(finding, report), width)
        lines += _reasons(finding, width)
    rows = table.rank_table(report)
    if rows:
        lines += [_Line(""), _Line(table.title(report), _HEADING_STYLE)]
        heading, *body = rows
        lines.append(_Line(heading[0], _QUIET_STYLE))
        lines += [_Line(text, "red" if named else "") for text, named in body]
    lines += [_Line(""), *_devices(report, width), *_job_figures(report, width)]
    return [*lines, *_data(report, width)]


def _job_line(report: Json) -> str:
    job: Json = report.get("job") or {}
    parts = [words.clean(job["name"])] if job.get("name") else []
    if job.get("attempt") is not None:
        parts.append(f"attempt {job['attempt']}")
    if job.get("state"):
        parts.append(words.clean(job["state"]))
    return f"Paceline report: {', '.join(parts)}" if parts else "Paceline report"


def _verdict(report: Json, main: Json | None, width: int) -> list[_Line]:
    style = _STYLES.get(str(report.get("verdict")), _FOUND_STYLE)
    if main is not None:
        return _paragraph(_sentences(main, report), width, style)
    lines = _paragraph(words.headline(report) + ".", width, style)
    notes: Sequence[object] = (report.get("data") or {}).get("notes") or ()
    if report.get("verdict") == "insufficient_evidence":
        lines += [_Line(""), _Line("What is missing", _HEADING_STYLE)]
        lines += _bullets([*notes] or missing.what_is_missing(report), width)
        lines += [_Line(""), _Line("What to do", _HEADING_STYLE)]
        lines += _bullets(missing.what_to_do(report), width)
    elif notes:
        lines += [_Line(""), _Line("Notes", _HEADING_STYLE)]
        lines += _bullets(notes, width)
    return lines


def _sentences(finding: Json, report: Json) -> str:
    parts = [words.statement(finding, report) + "."]
    cost = words.costs(finding, report)
    if cost:
        parts.append(cost[0].upper() + cost[1:] + ".")
    parts += [words.gain(finding), words.against_peers(finding), words.because(finding)]
    return " ".join(part for part in parts if part)


def _reasons(finding: Json, width: int) -> list[_Line]:
    lines: list[_Line] = []
    evidence: list[object] = [*(finding.get("evidence") or ())]
    hidden = len(evidence) - _MAX_EVIDENCE
    if hidden > 0:
        evidence = [*evidence[:_MAX_EVIDENCE], f"{hidden} more; --format json has all."]
    if finding.get("confidence") is not None:
        evidence.append(f"Confidence: {format_confidence(finding['confidence'])}.")
    if evidence:
        lines += [_Line(""), _Line("Why", _HEADING_STYLE), *_bullets(evidence, width)]
    if finding.get("action"):
        lines += [_Line(""), _Line("What to do", _HEADING_STYLE)]
        # A command, for copying: it is never broken into lines.
        lines.append(_Line(f"  {words.clean(finding['action'])}", _COMMAND_STYLE))
    return lines


def _job_figures(report: Json, width: int) -> list[_Line]:
    parts = []
    if report.get("slowdown") is not None:
        parts.append(f"steps take {format_times(report['slowdown'])} the time they could")
    if report.get("idle_ratio") is not None:
        parts.append(f"ranks wait {format_ratio(report['idle_ratio'])} of it")
    if report.get("gamma") is not None:
        parts.append(f"exposed communication is {report['gamma']:.2f} of compute")
    if report.get("wasted_gpu_s") is not None:
        parts.append(f"{format_gpu_s(report['wasted_gpu_s'])} wasted")
    lines = _paragraph("Job: " + "; ".join(parts) + ".", width) if parts else []
    # The evidence of an uneven pipeline says the same.
    told = "" if report.get("verdict") == "stage_imbalance" else words.replayed(report)
    return lines + _paragraph(told, width) + _expected(report, width)


def _expected(report: Json, width: int) -> list[_Line]:
    if not report.get("expected"):
        return []
    from paceline_service.export import expected_words

    lines = _paragraph(expected_words.expected_sentence(report), width)
    lines += _paragraph(expected_words.gap_sentence(report), width)
    return lines + _bullets(expected_words.calibration_sentences(report), width)


def _devices(report: Json, width: int) -> list[_Line]:
    times = device_times(report)
    told = device_sentences(times)
    head = _Line(device_word(times), _HEADING_STYLE)
    return [head, *_bullets(told, width), _Line("")] if told else []


def _data(report: Json, width: int) -> list[_Line]:
    job: Json = report.get("job") or {}
    data: Json = report.get("data") or {}
    text = (
        f"Data: {'complete' if data.get('complete') else 'incomplete'}; "
        f"{counted(job.get('steps') or 0, 'step')}, "
        f"{counted(job.get('collectives') or 0, 'collective')}, "
        f"{job.get('ranks_observed') or 0:,} of {counted(job.get('world_size') or 0, 'rank')}."
    )
    dropped: Json = data.get("dropped") or {}
    losses = {str(reason): count for reason, count in dropped.items() if count}
    if losses:
        listed = ", ".join(f"{words.clean(r)} {count:,}" for r, count in sorted(losses.items()))
        text += f" Dropped: {listed}."
    lines = _paragraph(text, width, "" if data.get("complete") else "yellow")
    # Healthy and insufficient answers have told their notes at the top.
    if report.get("verdict") not in ("healthy", "insufficient_evidence"):
        notes: list[object] = [*(data.get("notes") or ())]
        lines += _bullets(notes[:_MAX_NOTES], width)
        if len(notes) > _MAX_NOTES:
            lines += _bullets([f"{len(notes) - _MAX_NOTES} more; --format json has all."], width)
    sources: Sequence[Json] = data.get("sources") or ()
    if len(sources) > 1:
        lines += _paragraph("Read from several formats, each of which says alone:", width)
        lines += _bullets([_source(one) for one in sources], width)
    return lines


def _source(source: Json) -> str:
    files = counted(len(source.get("files") or ()), "file")
    told = source.get("headline") or source.get("verdict")
    return f"{source.get('format')} ({files}): {told}"


def _paragraph(text: str, width: int, style: str = "", indent: str = "") -> list[_Line]:
    wrapped = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [_Line(line, style) for line in wrapped]


def _bullets(items: Sequence[object], width: int) -> list[_Line]:
    lines: list[_Line] = []
    for item in items:
        wrapped = textwrap.wrap(
            _sentence(words.clean(item)), width, initial_indent="  - ", subsequent_indent="    ",
            break_on_hyphens=False,
        )  # fmt: skip
        lines += [_Line(line) for line in wrapped]
    return lines


def _sentence(text: str) -> str:
    """Begin with a capital and end with a stop."""
    text = _capital(text)
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _capital(text: str) -> str:
    """Begin with a capital; a path or a name with digits keeps its letters."""
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
