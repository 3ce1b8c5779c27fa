"""The files of an input: those that are named, and those in directories at any depth."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.faults import Faults

MAX_DEPTH = 8
"""Folders within folders; profilers and launchers nest three to four."""
MAX_FILES = 200_000
"""Of one input; a file for each of 100,000 ranks in two formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One regular file.

    Attributes:
        path: as the user would write it.
        named: whether the user named it; else it lay in a directory.
        packed_bytes: its length on disk.
    """

    path: Path
    named: bool
    packed_bytes: int


def find_files(paths: Sequence[Path], faults: Faults) -> list[Found]:
    """Return the files of an input in order, each once, however many names lead to it.

    Hidden files and folders are left out. Links are followed, and a folder that leads back to
    itself is entered once. What is no regular file is never opened: a pipe would block for ever.

    Raises:
        InputError: a named path does not exist, is neither file nor directory, or a named
            directory cannot be read; or there are too many files.
    """
    found: dict[tuple[int, int], Found] = {}
    folders: set[tuple[int, int]] = set()
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            problem = "does not exist" if missing else f"cannot be read: {error.strerror}"
            raise InputError(f"{path} {problem}") from error
        if stat.S_ISDIR(status.st_mode):
            folders.add((status.st_dev, status.st_ino))
            for one, its in _inside(path, faults, folders, depth=0):
                _keep(found, one, its, named=False)
        elif stat.S_ISREG(status.st_mode):
            _keep(found, path, status, named=True)
        else:
            raise InputError(
                f"{path} is no regular file; write what comes out of it to a file first"
            )
    return list(found.values())


def _keep(
    found: dict[tuple[int, int], Found], path: Path, status: os.stat_result, *, named: bool
) -> None:
    key = (status.st_dev, status.st_ino)
    if named or key not in found:
        found[key] = Found(path=path, named=named, packed_bytes=status.st_size)
    if len(found) > MAX_FILES:
        raise InputError(f"over {MAX_FILES:,} files at {path.parent}; give the folder of one job")


def _inside(
    directory: Path, faults: Faults, entered: set[tuple[int, int]], *, depth: int
) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files below a directory, those directly in it first."""
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        if not depth:
            raise InputError(f"{directory} {problem}") from error
        faults.add("unusable_file", directory, None, problem)
        return
    folders: list[Path] = []
    for name in names:
        path = directory / name
        try:
            status = path.stat()
        except OSError as error:
            # A link that leads nowhere, or a file that has just gone.
            faults.add("skipped_file", path, None, f"left out: {error.strerror}")
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status
        elif not stat.S_ISDIR(status.st_mode):
            faults.add("skipped_file", path, None, "left out: no regular file")
        elif (key := (status.st_dev, status.st_ino)) not in entered:
            entered.add(key)
            folders.append(path)
    if folders and depth >= MAX_DEPTH:
        message = f"{len(folders)} folders in it are left out: over {MAX_DEPTH} levels deep"
        faults.add("skipped_file", directory, None, message, count=len(folders))
        return
    for folder in folders:
        yield from _inside(folder, faults, entered, depth=depth + 1)
