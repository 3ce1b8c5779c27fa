"""The report for a terminal of 80 columns: the answer first, then why, then what to do."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from paceline_service.export import missing, table, words
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
_COMMANDS = frozenset({"scontrol", "kubectl", "nvidia-smi", "sudo", "paceline"})
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
    return [*lines, _Line(""), *_job_figures(report, width), *_data(report, width)]


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


def _sentence(text: str) -> str:
    """Begin with a capital and end with a stop."""
    text = _capital(text)
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _capital(text: str) -> str:
    """Begin with a capital; a path or a name with digits keeps its letters."""
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
