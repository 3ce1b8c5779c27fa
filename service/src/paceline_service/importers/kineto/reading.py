"""Several traces read at once, by processes that only read; this one assembles.

It needs no numpy either: reading begins while whoever wants the traces still imports what it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue

import msgspec

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import worker
from paceline_service.importers.kineto.pieces import Piece, read_pieces

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
_START = (
    "import sys; sys.path[:] = sys.argv[1:]\n"
    "from paceline_service.importers.kineto.worker import main; main()"
)

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
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        try:
            for _ in range(count):
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", _START, *sys.path],
                        # A terminal's Ctrl-C goes to this process alone, which ends the others.
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                    )
                )  # fmt: skip
        except BaseException:
            self.end()
            raise
        for process in self._processes:
            thread = threading.Thread(target=self._serve, args=(process,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def arrivals(self, faults: Faults) -> Iterator[Arrival]:
        """Yield pieces as they come.

        Raises:
            InputError: a file cannot be opened, or the process that read it died.
        """
        decode = msgspec.msgpack.Decoder(Piece).decode
        begun: set[int] = set()
        left = len(self._paths)
        while left:
            index, letter, content = self._arrived.get()
            path = self._paths[index]
            if letter == worker.REFUSED:
                raise InputError(content.decode())
            if letter == worker.FAILED:
                raise RuntimeError(f"{path} could not be read:\n{content.decode()}")
            if letter not in (worker.PIECE, worker.LAST):
                raise InputError(
                    f"{path}: the process that read it {content.decode()}; if memory is short, "
                    "give fewer files at a time"
                )
            if index not in begun:
                begun.add(index)
                faults.reading(path)
            piece = decode(content)
            faults.advanced(piece.packed_bytes)
            left -= letter == worker.LAST
            yield index, piece

    def end(self) -> None:
        """Leave nobody behind, whatever happened."""
        self._ending = True
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # a path that it did not come to read
                        pipe.close()

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Have one process read files until there are none left."""
        assert process.stdin is not None
        assert process.stdout is not None
        while True:
            try:
                index = self._todo.get_nowait()
            except Empty:
                return
            with suppress(BrokenPipeError):  # it is dead, and what follows tells
                path = os.fsencode(self._paths[index])
                worker.write_frame(process.stdin, worker.PATH, path)
            while (frame := worker.read_frame(process.stdout)) is not None:
                if not self._hand_over((index, *frame)):
                    return
                if frame[0] != worker.PIECE:
                    break
            else:
                self._hand_over((index, b"", _how(process.wait()).encode()))
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
