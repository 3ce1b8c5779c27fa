"""Where a process stands that has stood still for long: ``py-spy dump``, once per standstill.

It runs only where py-spy is installed and allowed to look (docs/hangs.md), beside the loop that
reads rings, and never pauses the process.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.follow import Follower
from paceline.sidecar.telemetry.process import writer_pid

_log = logging.getLogger("paceline.sidecar")
FLOOR_S = 15.0
"""A rank has not stood still before; below the collector's own threshold for a hang, so that the
stack is there when the hang is named."""
LONGEST_STEPS = 4
"""And not before it has been in one step for so many of its longest recent ones."""
RECENT_STEPS = 64
DUMP_TIMEOUT_S = 10.0
MAX_OUTPUT_BYTES = 256 << 10
MAX_LINES = 24
MAX_LINE_CHARS = 200
_THREAD = re.compile(r"^Thread\b.*")
_MAIN = re.compile(r"MainThread")


@dataclass(slots=True)
class _Rank:
    """One ring that is watched."""

    step: int = -1
    since_s: float = 0.0
    dumped: bool = False
    took_s: deque[float] | None = None


class Stacks:
    """Watches followed rings for ranks that stand still.

    Args:
        find: returns the path of py-spy, or None.
        floor_s: see ``FLOOR_S``.
    """

    def __init__(
        self, find: Callable[[], str | None] | None = None, *, floor_s: float = FLOOR_S
    ) -> None:
        self._find = find or find_py_spy
        self._floor_s = floor_s
        self._ranks: dict[str, _Rank] = {}
        self._done: deque[tuple[str, list[str]]] = deque()
        self._thread: threading.Thread | None = None
        self._refused = False

    def look(self, followers: Iterable[Follower], now_s: float) -> None:
        """Take note of the steps of ranks; begin a dump where one stands still; give out stacks."""
        present = {one.identity.incarnation.hex(): one for one in followers}
        for gone in self._ranks.keys() - present.keys():
            del self._ranks[gone]
        while self._done:
            incarnation, lines = self._done.popleft()
            follower = present.get(incarnation)
            if follower is not None and lines and (time_ns := follower.now_ns()):
                follower.telemetry.add(time_ns, {names.STACK: list(lines)})
        for incarnation, follower in present.items():
            rank = self._ranks.setdefault(incarnation, _Rank(since_s=now_s))
            if follower.step != rank.step:
                took_s, first = now_s - rank.since_s, rank.step < 0
                rank.step, rank.since_s, rank.dumped = follower.step, now_s, False
                if rank.took_s is None:
                    rank.took_s = deque(maxlen=RECENT_STEPS)
                if not first:
                    rank.took_s.append(took_s)
            elif self._stands(rank, now_s) and self._begin(incarnation, follower):
                rank.dumped = True

    def _stands(self, rank: _Rank, now_s: float) -> bool:
        """Whether it has done steps, and this one lasts far longer than any of the recent ones."""
        if rank.dumped or not rank.took_s:
            return False
        return now_s - rank.since_s > max(self._floor_s, LONGEST_STEPS * max(rank.took_s))

    def _begin(self, incarnation: str, follower: Follower) -> bool:
        """Start a dump unless one is under way; return whether this rank has had its turn."""
        if self._thread is not None and self._thread.is_alive():
            return False
        command, pid = self._find(), writer_pid(follower.path)
        if command is None or not pid:
            return True
        self._thread = threading.Thread(
            target=self._dump, args=(command, pid, incarnation), name="paceline-stack", daemon=True
        )
        self._thread.start()
        return True

    def _dump(self, command: str, pid: int, incarnation: str) -> None:
        try:
            text = dump(command, pid)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            if not self._refused:
                self._refused = True
                _log.info("py-spy gave no stack of a process that stands still: %s", error)
            return
        self._done.append((incarnation, main_thread(text)))


def find_py_spy() -> str | None:
    """Return py-spy on PATH, or beside the interpreter."""
    found = shutil.which("py-spy")
    beside = Path(sys.executable).with_name("py-spy")
    return found or (str(beside) if beside.is_file() else None)


def dump(command: str, pid: int, timeout_s: float = DUMP_TIMEOUT_S) -> str:
    """Return what py-spy prints about a process, cut at ``MAX_OUTPUT_BYTES``.

    Raises:
        OSError: it cannot be started.
        ValueError: it failed, took too long or printed nothing.
    """
    process = subprocess.Popen(
        [command, "dump", "--nonblocking", "--pid", str(pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    timer = threading.Timer(timeout_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None
        output = process.stdout.read(MAX_OUTPUT_BYTES)
        process.kill()
        process.wait()
    finally:
        timer.cancel()
        if process.stdout is not None:
            process.stdout.close()
    if not output:
        raise ValueError("it printed nothing (it may look into other processes only as root)")
    return output.decode("utf-8", errors="replace")


def main_thread(text: str) -> list[str]:
    """Return the lines of the main thread of a dump, innermost first; else of the first thread."""
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append((line, []))
        elif threads and line.startswith((" ", "\t")) and line.strip():
            threads[-1][1].append(line.strip()[:MAX_LINE_CHARS])
    if not threads:
        return []
    lines = next((rows for head, rows in threads if _MAIN.search(head)), threads[0][1])
    return lines[:MAX_LINES]
