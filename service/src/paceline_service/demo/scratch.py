"""A folder for as long as a command runs, and what killed ones before it have left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_HELD = ".held"
"""A file that whoever uses the folder has locked; the kernel lets go of it when that one dies."""


@contextlib.contextmanager
def scratch_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Give a folder of our own; those of dead processes with this prefix are removed.

    Args:
        prefix: of its name, of this kind of folder alone.
        parent: where it is made; else where temporary folders are.
    """
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*"):
        _remove_if_left(left)
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=parent, ignore_cleanup_errors=True
    ) as directory:
        held = os.open(Path(directory) / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(directory)
        finally:
            os.close(held)


def _remove_if_left(directory: Path) -> None:
    with contextlib.suppress(OSError):  # somebody else's, or its owner is at work
        if directory.is_symlink() or directory.stat().st_uid != os.getuid():
            return
        held = os.open(directory / _HELD, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(held)
