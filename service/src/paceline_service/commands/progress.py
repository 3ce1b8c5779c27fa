"""How far the reading of files has come, on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline_service.export.words import clean
from paceline_service.importers.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_NAME_WIDTH = 28


@contextmanager
def progress_on_terminal() -> Iterator[Progress]:
    """Give what shows progress on stderr, wiped out at the end; nothing where it is no terminal."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    shown = _Shown()
    try:
        yield shown
    finally:
        shown.close()


class _Shown(Progress):
    """A bar over the bytes of all files, the time that is left, and the file that is read now."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._count = 0
        self._lock = threading.Lock()

    def expects(self, paths: Sequence[Path], packed_bytes: int) -> None:
        if self._bar is None:
            self._bar = _bar(len(paths))
            self._task = self._bar.add_task("", total=packed_bytes, count=0)
            self._bar.start()

    def reading(self, path: Path) -> None:
        with self._lock:
            self._count += 1
            name = clean(path.name)
            if len(name) > _NAME_WIDTH:
                # Ends differ where beginnings are alike.
                name = f"...{name[3 - _NAME_WIDTH :]}"
            self._update(description=name, count=self._count)

    def advanced(self, packed_bytes: int) -> None:
        self._update(advance=packed_bytes)

    def judging(self) -> None:
        self._update(description="analysing")

    def close(self) -> None:
        """Wipe the bar out."""
        if self._bar is not None:
            self._bar.stop()

    def _update(self, **told: Any) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, **told)


def _bar(files: int) -> Bar:
    # Imported only where it is shown: it takes longer than reading a small file.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TextColumn(f"file {{task.fields[count]}} of {files}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )
