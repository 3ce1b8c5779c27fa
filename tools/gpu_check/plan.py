"""Sections: each runs in a process of its own, within a limit, and says what it found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUDGET_S = 470.0
LEAST_S = 15.0
"""A section is not begun with less."""
OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One thing to be shown."""

    name: str
    limit_s: float
    proves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a section found: ``said`` for people, ``figures`` for the JSON."""

    name: str
    status: str
    said: str
    figures: Mapping[str, Any]
    seconds: float


Runner = Callable[[Section, float], Outcome]


def run_all(
    sections: Sequence[Section],
    run: Runner,
    *,
    budget_s: float,
    now_s: Callable[[], float] = time.monotonic,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run ``sections`` in order; what the budget has no room for is skipped and says so."""
    begun_s = now_s()
    outcomes = []
    for section in sections:
        left_s = budget_s - (now_s() - begun_s)
        if left_s < LEAST_S:
            outcome = Outcome(
                name=section.name, status=SKIPPED, figures={}, seconds=0.0,
                said=f"{budget_s:.0f} s are spent; run it alone: --only {section.name}",
            )  # fmt: skip
        else:
            outcome = run(section, min(section.limit_s, left_s))
        outcomes.append(outcome)
        tell(outcome)
    return outcomes


def run_in_process(section: Section, limit_s: float) -> Outcome:
    """Run a section as a process group that is killed at its limit."""
    begun_s = time.monotonic()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix="gpu-check-", dir=memory, ignore_cleanup_errors=True
    ) as directory:
        answer = Path(directory) / "answer.json"
        log = Path(directory) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tools.gpu_check.sections", section.name, str(answer),
                 str(limit_s)],
                env={**os.environ, "TMPDIR": directory},  # goes with it, however it ends
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                returncode: int | None = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                returncode = None
            finally:
                kill_group(process)
        seconds = time.monotonic() - begun_s
        return read_answer(section, answer, log, returncode, seconds)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_answer(
    section: Section, answer: Path, log: Path, returncode: int | None, seconds: float
) -> Outcome:
    """Make an outcome of what a section's process left."""
    tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    try:
        found = json.loads(answer.read_text())
        status, said, figures = found["status"], found["said"], found["figures"]
    except (OSError, ValueError, KeyError):
        why = "was not done in time" if returncode is None else f"ended with {returncode}"
        status, said, figures = FAILED, f"it {why}", {"log": tail}
    return Outcome(
        name=section.name, status=status, said=said, figures=figures, seconds=round(seconds, 1)
    )
