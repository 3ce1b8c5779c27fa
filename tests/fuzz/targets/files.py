"""Several files in one input, and what all importers must keep to."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from paceline.errors import InputError
from paceline_service.importers.sources import analyze_paths
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.targets.frames import assert_tellable

SEPARATOR = b"\n--- next file ---\n"
MAX_FILES = 8
Change = Callable[[bytes, random.Random], bytes]


def join(files: list[bytes]) -> bytes:
    """Return several files as one input."""
    return SEPARATOR.join(files)


def check_files(data: bytes, names: Callable[[int], str]) -> None:
    """Analyse the files in ``data``: it gives a report that can be told, or an ``InputError``."""
    directory = Path(tempfile.mkdtemp(prefix="paceline-fuzz-", dir=_fast_directory()))
    try:
        for number, content in enumerate(data.split(SEPARATOR)[:MAX_FILES]):
            (directory / names(number)).write_bytes(content)
        try:
            answer = analyze_paths([directory])
        except InputError as error:
            if not str(error).strip():
                raise AssertionError("an error without a word") from error
            return
        assert_tellable(answer.report)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def mutate_files(data: bytes, rng: random.Random, change: Change) -> bytes:
    """Return ``data`` with one of its files changed by ``change``, left out or repeated."""
    files = data.split(SEPARATOR)
    at = rng.randrange(len(files))
    what = rng.random()
    if what < 0.03 and len(files) > 1:
        del files[at]
    elif what < 0.06 and len(files) < MAX_FILES:
        files.append(files[at])
    elif what < 0.16:
        files[at] = mutate_bytes(files[at], rng)
    else:
        files[at] = change(files[at], rng)
    return SEPARATOR.join(files)


def _fast_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
