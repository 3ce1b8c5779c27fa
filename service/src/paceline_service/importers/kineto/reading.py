"""Several traces read at once, by processes that only read; this one assembles.

It needs no numpy either: reading begins while whoever wants the traces still imports what it needs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import frames
from paceline_service.importers.kineto.piece import Piece
from paceline_service.importers.kineto.readers import Reader, start_reader

MAX_WORKERS = 16
WORTH_BYTES = 16 << 20
"""Of text, from where on further processes gain more time than they take to start."""
WORTH_ONE_BYTES = 1 << 20
"""From where on one process gains time, if numpy is imported meanwhile."""
_UNPACKED = 12
"""How many times longer than its gzip file a trace is, about."""
_WAITING = 256
"""Pieces that may wait to be assembled, so that readers never run away."""
_LOOK_S = 0.2
Arrival = tuple[int, Piece]
"""Which of the paths, and the next piece of it."""


@contextmanager
def reading(
    paths: Sequence[Path], faults: Faults, workers: int | None = None
) -> Iterator[Iterator[Arrival]]:
    """Give the pieces of all files; those of one file come in order, files may alternate.

    Args:
        paths: of traces.
        faults: told how far the reading has come.
        workers: how many processes read; 0 reads in this one, None decides.

    Raises:
        InputError: a file cannot be opened, or the process that read it died.
    """
    count = workers_for(paths) if workers is None else workers
    if not count or not sys.executable:
        yield _in_this_process(paths, faults)
        return
    pool = _Pool(paths, count)
    try:
        yield pool.arrivals(faults)
    finally:
        pool.end()


def workers_for(paths: Sequence[Path]) -> int:
    """Return how many processes should read these files; 0 where this one should."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text_bytes = sum(_text_bytes(path) for path in paths)
    if len(paths) < 2 or (cores or 1) < 2 or text_bytes < WORTH_ONE_BYTES:
        return 0
    if text_bytes < WORTH_BYTES:
        return 0 if "numpy" in sys.modules else 1
    return min(cores or 1, len(paths), MAX_WORKERS)


def _text_bytes(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size * _UNPACKED if path.suffix == ".gz" else size


def _in_this_process(paths: Sequence[Path], faults: Faults) -> Iterator[Arrival]:
    from paceline_service.importers.kineto.pieces import read_pieces  # who only takes needs none

    for index, path in enumerate(paths):
        faults.reading(path)
        for piece in read_pieces(path):
            faults.advanced(piece.packed_bytes)
            yield index, piece


class _Pool:
    """Processes that read, each with a thread that takes what it sends."""

    def __init__(self, paths: Sequence[Path], count: int) -> None:
        self._paths = paths
        self._todo: Queue[int] = Queue()
        for index in range(len(paths)):
            self._todo.put(index)
        self._arrived: Queue[tuple[int, bytes, bytes]] = Queue(maxsize=_WAITING)
        self._ending = False
        self._readers: list[Reader] = []
        self._threads: list[threading.Thread] = []
        try:
            for _ in range(count):
                self._readers.append(start_reader(self._readers))
        except BaseException:
            self.end()
            raise
        for reader in self._readers:
            thread = threading.Thread(target=self._serve, args=(reader,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def arrivals(self, faults: Faults) -> Iterator[Arrival]:
        """Yield pieces as they come.

        Raises:
            InputError: a file cannot be opened, or the process that read it died.
        """
        begun: set[int] = set()
        left = len(self._paths)
        while left:
            index, letter, content = self._arrived.get()
            path = self._paths[index]
            if letter == frames.REFUSED:
                raise InputError(content.decode())
            if letter == frames.FAILED:
                raise RuntimeError(f"{path} could not be read:\n{content.decode()}")
            if letter not in (frames.PIECE, frames.LAST):
                raise InputError(
                    f"{path}: the process that read it {content.decode()}; if memory is short, "
                    "give fewer files at a time"
                )
            if index not in begun:
                begun.add(index)
                faults.reading(path)
            piece = frames.unpacked(content)
            faults.advanced(piece.packed_bytes)
            left -= letter == frames.LAST
            yield index, piece

    def end(self) -> None:
        """Leave nobody behind, whatever happened."""
        self._ending = True
        for reader in self._readers:
            reader.kill()
        for thread in self._threads:
            thread.join()
        for reader in self._readers:
            reader.wait()
            reader.close()

    def _serve(self, reader: Reader) -> None:
        """Have one process read files until there are none left."""
        while True:
            try:
                index = self._todo.get_nowait()
            except Empty:
                return
            with suppress(BrokenPipeError):  # it is dead, and what follows tells
                path = os.fsencode(self._paths[index])
                frames.write_frame(reader.source, frames.PATH, path)
            while (frame := frames.read_frame(reader.sink)) is not None:
                if not self._hand_over((index, *frame)):
                    return
                if frame[0] != frames.PIECE:
                    break
            else:
                self._hand_over((index, b"", _how(reader.wait()).encode()))
                return

    def _hand_over(self, arrival: tuple[int, bytes, bytes]) -> bool:
        while not self._ending:
            try:
                self._arrived.put(arrival, timeout=_LOOK_S)
            except Full:
                continue
            return True
        return False


def _how(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
