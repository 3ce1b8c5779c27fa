"""Where a verb puts its answer: the terminal, a pipe, or a file that is complete or absent."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from paceline.errors import InputError
from paceline_service.analysis.report import KINDS
from paceline_service.commands.run import EXIT_FINDINGS, EXIT_INSUFFICIENT, EXIT_OK
from paceline_service.export.words import Json

if TYPE_CHECKING:
    from paceline_service.export.html import Story

_FULL = (errno.ENOSPC, errno.EDQUOT)
ANY = "any"
"""Beside the kinds of ``--fail-on``: any finding."""


class Format(str, Enum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(str, Enum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


_BY_SUFFIX = {
    ".html": ReportFormat.HTML, ".htm": ReportFormat.HTML, ".json": ReportFormat.JSON
}  # fmt: skip


def report_format(form: ReportFormat | None, output: Path | None) -> ReportFormat:
    """Return the format that is asked for, else the one that the name of the file says.

    Raises:
        InputError: an HTML document would be written to a terminal.
    """
    if form is None:
        return _BY_SUFFIX.get(
            output.suffix.lower() if output is not None else "", ReportFormat.TEXT
        )
    if form is ReportFormat.HTML and output is None and sys.stdout.isatty():
        raise InputError("--format html is for a file, not a terminal: give -o FILE.html")
    return form


def write_report(
    report: Json, form: ReportFormat, output: Path | None, story: Story | None = None
) -> None:
    """Write a ``paceline.report/1`` object to ``output``, or to stdout when it is None.

    Args:
        report: the object.
        form: text, JSON or HTML.
        output: the file.
        story: what HTML shows beside the report.
    """
    if output is None and form is ReportFormat.TEXT:
        from paceline_service.export.text import print_report  # programs ask for JSON

        print_report(report)
        return
    if form is ReportFormat.JSON:
        text = json.dumps(report, indent=2) + "\n"
    elif form is ReportFormat.HTML:
        from paceline_service.export.html import html_report  # heavy, and for one form only

        text = html_report(report, story)
    else:
        from paceline_service.export.text import render_text

        text = render_text(report)
    if output is None:
        print(text, end="")
        return
    with replacing(output) as file:
        file.write(text.encode())


def kinds_to_fail_on(fail_on: str | None, *more: str) -> frozenset[str] | None:
    """Return the kinds that ``--fail-on`` names, None where it is not given.

    Args:
        fail_on: kinds with commas between them; ``any`` stands for any finding.
        more: words beside the kinds of findings that are allowed.

    Raises:
        InputError: one of them is no kind.
    """
    if fail_on is None:
        return None
    kinds = frozenset(word.strip() for word in fail_on.split(",")) - {""}
    allowed = (ANY, *more, *KINDS)
    unknown = sorted(kinds - set(allowed))
    if unknown or not kinds:
        told = unknown[0] if unknown else fail_on
        raise InputError(f"--fail-on {told!r} is none of {', '.join(allowed)}")
    return kinds


def exit_status(report: Json, fail_on: frozenset[str] | None) -> int:
    """Return 0 healthy, 1 findings, 3 insufficient evidence; with ``fail_on`` 1 for it, else 0."""
    verdict = report["verdict"]
    if fail_on is not None:
        kinds = {verdict, *(finding["kind"] for finding in report["findings"])}
        if ANY in fail_on and report["findings"]:
            return EXIT_FINDINGS
        return EXIT_FINDINGS if fail_on & kinds else EXIT_OK
    if verdict == "insufficient_evidence":
        return EXIT_INSUFFICIENT
    return EXIT_OK if verdict == "healthy" else EXIT_FINDINGS


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` that takes its place when all went well, and vanishes otherwise.

    Raises:
        InputError: the directory of ``path`` cannot be written, or its disk is full.
    """
    import secrets  # brings random numbers and hashes, which no other output needs

    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        file = unfinished.open("xb")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
        os.replace(unfinished, path)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
