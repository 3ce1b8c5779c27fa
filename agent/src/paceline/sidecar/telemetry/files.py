"""Small files of procfs and sysfs: each may be missing, unreadable, or hold anything."""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 1 << 16
MAX_ENTRIES = 4096
_LARGEST = 1 << 64


def read_text(path: Path | str, max_bytes: int = MAX_BYTES) -> str:
    """Return the start of a file, or an empty string where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        data = os.read(fd, max_bytes)
        # procfs gives some files in pieces.
        while data and len(data) < max_bytes and (more := os.read(fd, max_bytes - len(data))):
            data += more
        return data.decode("utf-8", errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_int(path: Path | str) -> int | None:
    """Return the whole number that a file holds, or None."""
    return whole(read_text(path, 64))


def whole(text: str) -> int | None:
    """Return ``text`` as a number that a counter can have, or None."""
    try:
        value = int(text)
    except ValueError:
        return None
    return value if 0 <= value < _LARGEST else None


def names_in(directory: Path) -> list[str]:
    """Return the sorted names in a directory, none where there is no such directory."""
    try:
        return sorted(os.listdir(directory))[:MAX_ENTRIES]
    except OSError:
        return []
