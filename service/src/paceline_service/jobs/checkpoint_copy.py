"""A copy of this process writes an attempt down, so that its analysis goes on meanwhile.

The copy (fork) sees memory as it was at that moment, and the kernel copies only the pages that
change; Redis saves its snapshots in the same way. It runs one thread, the one that forked: it
needs nothing that another thread could have held, but for what the C library and Python put right
after a fork. Should it hang all the same, it is killed after ``PATIENCE_S``.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from paceline_service.jobs.checkpoint_codec import CheckpointError, pack

PATIENCE_S = 120.0
NICENESS = 10
"""It takes the processor when the analysis does not want it."""
_LENGTH_BYTES = 8
_FAILED = 3
CAN_COPY = hasattr(os, "fork") and hasattr(os, "memfd_create")


class CopyLostError(CheckpointError):
    """The copy was killed, or hung: that says nothing of what it was to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a copy has written."""

    body: bytes
    """Packed (``checkpoint_codec.pack``)."""
    raw_bytes: int
    """How much it was before."""
    cpu_s: float


class WritingCopy:
    """The copy, from its start to its end.

    Args:
        dump: returns what is to be written, not packed; called in the copy.
    """

    def __init__(self, dump: Callable[[], bytes]) -> None:
        self._until_mono_s = time.monotonic() + PATIENCE_S
        self._file = os.memfd_create("paceline-checkpoint")
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._file)
            raise
        if not self._pid:
            _write_and_end(dump, self._file)

    def poll(self) -> Written | None:
        """Return what was written; None as long as it is being written.

        Raises:
            CheckpointError: it cannot be written down.
            CopyLostError: the copy was killed, or hung.
        """
        pid, status, usage = os.wait4(self._pid, os.WNOHANG)
        if not pid:
            if time.monotonic() > self._until_mono_s:
                self.kill()
                raise CopyLostError(f"it was not written within {PATIENCE_S:.0f} s")
            return None
        self._pid = 0
        try:
            said = _content(self._file)
        finally:
            os.close(self._file)
        code = os.waitstatus_to_exitcode(status)
        if code == _FAILED:
            raise CheckpointError(said.decode("utf-8", "replace"))
        if code or len(said) < _LENGTH_BYTES:
            raise CopyLostError(f"the process that wrote it ended with status {code}")
        return Written(
            body=said[_LENGTH_BYTES:],
            raw_bytes=int.from_bytes(said[:_LENGTH_BYTES], "little"),
            cpu_s=usage.ru_utime + usage.ru_stime,
        )

    def kill(self) -> None:
        """Have it end without a result."""
        if not self._pid:
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0
        os.close(self._file)


def _write_and_end(dump: Callable[[], bytes], file: int) -> None:
    """Be the copy: nothing of the process that it was is touched or ended."""
    status = 1
    try:
        # Whoever waits for the end of a connection would wait for this process, too.
        os.closerange(3, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(NICENESS)
        # Who would kill it may be gone before it.
        signal.alarm(math.ceil(PATIENCE_S))
        try:
            raw = dump()
            _write(file, len(raw).to_bytes(_LENGTH_BYTES, "little"))
            _write(file, pack(raw))
            status = 0
        except CheckpointError as error:
            _write(file, str(error).encode())
            status = _FAILED
    finally:
        os._exit(status)


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _content(file: int) -> bytes:
    with open(os.dup(file), "rb") as source:
        source.seek(0)
        return source.read()
