"""A whole command: how long it takes, and how much memory all its processes take together."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import InputError
from paceline_service.bench.machine import memory_kib

_EVERY_S = 0.01
_PATIENCE_S = 300
_FINE = (0, 1, 3)
"""Exit statuses of an answer; those of ``paceline analyze`` tell which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run. ``pss_mib`` is the highest sum over all processes, 0 where it was not watched."""

    seconds: float
    cpu_s: float
    pss_mib: float
    output: str


def run(command: Sequence[str], environment: Mapping[str, str], *, watch: bool = False) -> Done:
    """Run a command to its end.

    Args:
        command: its words.
        environment: beside this process's own.
        watch: whether to look at its memory meanwhile, which slows it down.

    Raises:
        InputError: it failed, or took minutes.
    """
    whole = {**os.environ, **environment}
    # All tools may keep their byte code, as they do when a user runs them.
    whole.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        before = os.times()
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=whole
        )
        patience = threading.Timer(_PATIENCE_S, process.kill)
        try:
            highest = _watch(process) if watch else 0
            # Waiting with a limit would look only every 50 ms; a timer leaves the waiting exact.
            patience.start()
            process.wait()
        finally:
            patience.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        seconds = time.perf_counter() - begun
        after = os.times()
        if seconds >= _PATIENCE_S:
            raise InputError(f"{command[0]} took more than {_PATIENCE_S} s")
        output.seek(0)
        errors.seek(0)
        told = errors.read()
        if process.returncode not in _FINE or "Traceback" in told:
            last = (told.strip().splitlines() or ["no word"])[-1]
            raise InputError(f"status {process.returncode}: {last[:200]}")
        return Done(
            seconds=seconds,
            cpu_s=(after.children_user + after.children_system)
            - (before.children_user + before.children_system),
            pss_mib=highest / 1024,
            output=output.read(),
        )


def _watch(process: subprocess.Popen[bytes]) -> int:
    """Return the highest sum of the proportional set sizes of a process and all below it, KiB."""
    highest = 0
    while process.poll() is None:
        highest = max(highest, sum(_pss_kib(pid) for pid in _tree(process.pid)))
        time.sleep(_EVERY_S)
    return highest


def _tree(root: int) -> list[int]:
    found, at = [root], 0
    while at < len(found):
        for task in Path(f"/proc/{found[at]}/task").glob("*"):
            try:
                text = (task / "children").read_text(encoding="ascii")
            except OSError:
                continue
            found += [int(word) for word in text.split()]
        at += 1
    return found


def _pss_kib(pid: int) -> int:
    try:
        return memory_kib(pid)["pss"]
    except (OSError, ValueError):
        return 0  # it has ended
