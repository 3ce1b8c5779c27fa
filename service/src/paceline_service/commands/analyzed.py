"""Files to their answer, as every verb that reads files does it: shown, told, refused if asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import InputError
from paceline_service.commands.progress import progress_on_terminal
from paceline_service.commands.run import warn
from paceline_service.export.words import headline
from paceline_service.importers.answer import Answer
from paceline_service.importers.sources import answer_paths

if TYPE_CHECKING:
    from paceline_service.importers.offline import See


@contextmanager
def analyzed(
    paths: Sequence[Path], *, verb: str, strict: bool = False, see: See | None = None
) -> Iterator[Answer]:
    """Give the answer for the files at ``paths``; its timed records (``log``) are there meanwhile.

    How far the reading has come is shown on a terminal, and gone before this gives the answer;
    what was wrong with the files is told on stderr.

    Args:
        paths: files and directories.
        verb: that the user gave, for messages.
        strict: refuse input of which anything was unusable.
        see: is shown the steps, where there are timed records.

    Raises:
        InputError: there is no honest answer, or ``strict`` is given and something is unusable.
    """
    with progress_on_terminal() as progress:
        answering = answer_paths(paths, progress, see)
        answer = answering.__enter__()
    try:
        if strict and answer.faults.lossy:
            raise InputError(f"--strict, and not all is usable: {'; '.join(answer.faults.notes())}")
        for note in answer.faults.notes():
            warn(f"paceline {verb}: {note}")
        for told, part in zip(answer.report["data"]["sources"], answer.parts, strict=True):
            told["headline"] = headline(part)
        yield answer
    finally:
        answering.__exit__(None, None, None)
