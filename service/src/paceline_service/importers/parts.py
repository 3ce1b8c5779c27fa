"""What each format says of its files, with as many of them as can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import InputError
from paceline_service.importers.answer import Answer
from paceline_service.importers.faults import Faults
from paceline_service.importers.mixed import Part
from paceline_service.importers.source import Source

if TYPE_CHECKING:
    from paceline_service.importers.offline import See


def read_parts(
    files: Mapping[str, Sequence[Path]],
    sources: Sequence[Source],
    faults: Faults,
    see: See | None = None,
) -> list[Part]:
    """Return what each format says; one without a usable file is told, if there are others.

    Args:
        files: by the name of a source.
        sources: the formats, those that can tell most first.
        faults: told of formats and files that are left out.
        see: is shown the steps of each.

    Raises:
        InputError: of no format a file can be used; the error is that of the first.
    """
    parts: list[Part] = []
    refused: list[InputError] = []
    try:
        for index, source in enumerate(sources):
            mine = list(files.get(source.name, ()))
            if not mine:
                continue
            try:
                answer = _answer(source, mine, faults, see)
            except InputError as error:
                refused.append(error)
                message = str(error).removeprefix(f"{mine[0]}: ")
                faults.add("unusable_file", mine[0], None, message, count=len(mine))
                continue
            parts.append(Part(name=source.name, files=tuple(mine), answer=answer, weight=-index))
    except BaseException:
        for part in parts:
            part.close()
        raise
    if not parts:
        raise refused[0]
    return parts


def _answer(source: Source, files: list[Path], faults: Faults, see: See | None) -> Answer:
    """Answer for ``files``, from which those are taken away that went while they were read."""
    while True:
        own = Faults(progress=faults.progress)
        try:
            return source.analyze(files, own, see)
        except InputError:
            gone = {path: why for path in files if (why := _unreadable(path))}
            if not gone or len(gone) == len(files):
                raise
            for path, why in gone.items():
                faults.add(
                    "unusable_file", path, None, f"left out: it can no longer be read: {why}"
                )
                files.remove(path)


def _unreadable(path: Path) -> str:
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or str(error)
