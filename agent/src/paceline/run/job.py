"""The job itself: started with its environment, signals forwarded, its status returned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
NOT_FOUND = 127
NOT_EXECUTABLE = 126


def run_job(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run ``command`` to its end; return its status as a shell would give it."""
    child: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        if not child:
            early.append(number)
        elif child[0].poll() is None and not _came_from_terminal(number):
            child[0].send_signal(number)

    # What was ignored before us (nohup) stays ignored, in the job too.
    before = {
        number: signal.signal(number, forward)
        for number in FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        try:
            child.append(subprocess.Popen(list(command), env=dict(env)))
        except OSError as error:
            print(f"paceline run: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        for number in early:
            child[0].send_signal(number)
        return shell_status(child[0].wait())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exec_job(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Become ``command``; returns only where that fails."""
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), dict(env))
    except OSError as error:
        print(f"paceline run: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def shell_status(returncode: int) -> int:
    """Return 128 + n for a process that signal n ended."""
    return 128 - returncode if returncode < 0 else returncode


def _came_from_terminal(number: int) -> bool:
    """Whether the terminal sent this to the job too: it is in our process group."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
