"""How far the reading of files has come, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline_service.importers.progress import Progress

_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress_on_terminal() -> Iterator[Progress]:
    """Give what shows progress on stderr, wiped out at the end; nothing where it is no terminal."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    shown = _Line()
    try:
        yield shown
    finally:
        shown.close()


class _Line(Progress):
    """Names the file that is being read on one line."""

    def __init__(self) -> None:
        self._shown = 0

    def reading(self, path: Path) -> None:
        self._shown += 1
        name = "".join(c if c.isprintable() else "?" for c in path.name)[:60]
        sys.stderr.write(f"{_CLEAR_LINE}reading {name} ({self._shown})")
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
