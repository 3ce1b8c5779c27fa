"""Processes that read traces: how one is started, and how it ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

_SIGKILL = 9  # ``signal`` makes enumerations of all of them, for as long as a piece is read
_START = (
    "import sys; sys.path[:] = sys.argv[1:]\n"
    "from paceline_service.importers.kineto.worker import main; main()"
)


class Reader:
    """One process, paths go into ``source`` and frames come out of ``sink``."""

    def __init__(self, pid: int, source: IO[bytes], sink: IO[bytes]) -> None:
        self.source, self.sink = source, sink
        self._pid = pid
        self._status: int | None = None

    def kill(self) -> None:
        """Have it end now."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, _SIGKILL)

    def wait(self) -> int:
        """Wait for its end and return its exit status, or the number of a signal below 0."""
        if self._status is None:
            try:
                _, status = os.waitpid(self._pid, 0)
            except ChildProcessError:  # waited for already, and interrupted before it was noted
                status = 0
            self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def close(self) -> None:
        """Let go of the pipes."""
        for pipe in (self.source, self.sink):
            with suppress(BrokenPipeError):  # a path that it did not come to read
                pipe.close()


def start_reader(others: Iterable[Reader]) -> Reader:
    """Start a process.

    Args:
        others: that were started before it.
    """
    to_read, give = os.pipe()
    take, to_write = os.pipe()
    # A copy of this process begins at once, and a new one after 50 ms; but a copy of a process
    # with threads may wait for ever for what another thread held.
    if sys.platform == "linux" and threading.active_count() == 1:
        pid = os.fork()
        if not pid:
            for other in others:
                os.close(other.source.fileno())
                os.close(other.sink.fileno())
            os.close(give)
            os.close(take)
            _serve_and_end(to_read, to_write)
    else:
        pid = _spawned(to_read, to_write)
    os.close(to_read)
    os.close(to_write)
    return Reader(pid, open(give, "wb"), open(take, "rb"))


def _serve_and_end(to_read: int, to_write: int) -> None:
    """Be a process that reads, whatever this one was before."""
    status = 1
    try:
        os.setsid()  # a terminal's Ctrl-C goes to the first process alone, which ends the others
        from paceline_service.importers.kineto.worker import serve

        with open(to_read, "rb") as source, open(to_write, "wb") as sink:
            serve(source, sink)
        status = 0
    finally:
        os._exit(status)


def _spawned(to_read: int, to_write: int) -> int:
    import subprocess  # takes as long to import as a small trace takes to read

    process = subprocess.Popen(
        [sys.executable, "-c", _START, *sys.path],
        stdin=to_read, stdout=to_write, start_new_session=True,
    )  # fmt: skip
    process.returncode = 0  # ``Reader`` waits for it
    return process.pid
