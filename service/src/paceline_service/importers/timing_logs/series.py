"""What one log tells: its reports in order, the arguments of the job, and what else happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from paceline.dataclass import dataclass
from paceline_service.importers.timing_logs.statements import Detector

MAX_REPORTS = 1_000_000
KINDS = ("megatron", "deepspeed_timers", "nemo", "deepspeed", "bridge", "stamps", "rate")
"""Statements that tell how long steps take, the one that tells most first."""


@dataclass(slots=True, kw_only=True)
class Report:
    """One report: an iteration, or the average over ``covers`` of them; times in ms."""

    kind: str
    iteration: int
    step_ms: float
    line: int
    path: Path
    covers: int = 1
    skipped: int = 0
    batch: float | None = None
    sequence: float | None = None
    tflops: float | None = None
    near: tuple[str, ...] = ()
    """What happened since the report before: ``evaluation``, ``checkpoint``."""
    rank: int = -1
    """Whose ``single`` timers are."""
    single: dict[str, float] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    by_rank: dict[str, dict[int, float]] = field(default_factory=dict)
    """Only until it is made into records."""
    detector: Detector | None = None
    lowest: dict[int, float] = field(default_factory=dict)
    highest: dict[int, float] = field(default_factory=dict)
    """Throughput of the slowest and of the fastest ranks, TFLOP/s."""


@dataclass(slots=True, kw_only=True)
class Table:
    """Rows of DeepSpeed's summary of communication."""

    straggler: bool
    rows: list[tuple[str, str, int, float, float, float, float]] = field(default_factory=list)
    """Operation, size, count, and the four figures of the table."""


@dataclass(slots=True)
class Series:
    """The reports of a log, attempt by attempt."""

    attempts: dict[str, list[list[Report]]] = field(default_factory=dict)
    """By kind of statement."""
    settings: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    largest_rank: int = -1
    reports: int = 0

    def add(self, report: Report) -> bool:
        """Take the next report; False if it is there already, or there are too many."""
        attempts = self.attempts.setdefault(report.kind, [[]])
        last = attempts[-1][-1] if attempts[-1] else None
        if last is not None and report.iteration <= last.iteration:
            if report.iteration == last.iteration and report.step_ms == last.step_ms:
                return False  # printed by several ranks, or redrawn by a progress bar
            attempts.append([])
            last = None
        if self.reports >= MAX_REPORTS:
            return False
        self.reports += 1
        if report.kind == "stamps":
            pass  # who makes it knows how many steps lie between
        elif last is not None:
            report.covers = report.iteration - last.iteration
            if report.kind in ("nemo", "bridge", "deepspeed_timers"):
                report.covers = 1
        elif report.kind == "megatron":
            every = self.settings.get("log_interval", "")
            told = int(every) if every.isdecimal() and len(every) < 8 else 0
            report.covers = max(1, min(told or 1, report.iteration))
        attempts[-1].append(report)
        return True

    @property
    def kind(self) -> str | None:
        """The kind of statement that tells most."""
        return next((kind for kind in KINDS if self.attempts.get(kind)), None)

    def number(self, *names: str) -> int | None:
        """Return the first of some arguments that is a number above 0."""
        return number_of(self.settings, *names)


def number_of(settings: Mapping[str, str], *names: str) -> int | None:
    """Return the first of some arguments that is a number above 0."""
    for name in names:
        value = settings.get(name, "")
        if value.isdecimal() and 0 < len(value) < 10 and int(value) > 0:
            return int(value)
    return None
