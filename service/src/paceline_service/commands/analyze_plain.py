"""``paceline analyze`` as it is called most: paths, and how to write the answer on stdout.

Typer takes longer to import than such an answer takes, so these words are understood here. Whatever
else there is on the command line goes to ``commands.analyze``, which tells what is wrong with it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path

from paceline.cli import Done
from paceline.dataclass import dataclass

_FORMATS = ("text", "json")
_COLLECT_EVERY = 100_000
"""Objects, instead of 700: columns hold most of what is read, and hardly anything is circular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """What such a command line says."""

    paths: tuple[Path, ...]
    form: str
    strict: bool


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    gc.set_threshold(_COLLECT_EVERY)
    # Nothing here multiplies matrices: threads for it would only cost time and memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    plain = plain_words(argv)
    if plain is None:
        from paceline_service.commands.analyze import main as any_words

        return any_words(argv)
    from paceline_service.commands.run import guarded_call

    status = guarded_call("paceline analyze", lambda: _analyze(plain))
    return Done(status)


def plain_words(argv: Sequence[str]) -> Plain | None:
    """Return what a command line says; None where it says more than is understood here."""
    paths: list[Path] = []
    form, strict = "text", False
    words = iter(argv)
    for word in words:
        if word == "--format":
            form = next(words, "")
        elif word.startswith("--format="):
            form = word.removeprefix("--format=")
        elif word == "--strict":
            strict = True
        elif word.startswith("-") or not word:
            return None
        else:
            paths.append(Path(word))
    if not paths or form not in _FORMATS:
        return None
    return Plain(paths=tuple(paths), form=form, strict=strict)


def _analyze(plain: Plain) -> int:
    from paceline_service.commands.analyzed import analyzed

    with analyzed(plain.paths, verb="analyze", strict=plain.strict) as answer:
        from paceline_service.commands.output import ReportFormat, exit_status, write_report

        write_report(answer.report, ReportFormat(plain.form), None)
        return exit_status(answer.report, None)
