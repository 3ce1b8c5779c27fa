"""Reads one log: statements of single lines, and blocks that go over several lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from paceline.dataclass import dataclass
from paceline_service.importers.faults import Faults
from paceline_service.importers.limits import MAX_RANKS
from paceline_service.importers.timing_logs.series import Report, Series, Table
from paceline_service.importers.timing_logs.statements import (
    MAX_MS,
    Detector,
    Happened,
    Passed,
    Setting,
    Step,
    Throughputs,
    Timers,
    statement_of,
)
from paceline_service.importers.timing_logs.text import Line, LogLines

_HEADER = re.compile(r"(\(min, max\) time|max time|times) across ranks \(ms\):\s*$")
_MIN_MAX = re.compile(r"([A-Za-z][\w/-]*) \.*: \((\d+(?:\.\d+)?), (\d+(?:\.\d+)?)\)\s*$")
_MAX = re.compile(r"([A-Za-z][\w/-]*) \.+: (\d+(?:\.\d+)?)\s*$")
_NAME = re.compile(r"(?:^|\s)([A-Za-z][\w/-]*):\s*$")
_RANK = re.compile(r"\brank\s+(\d{1,7}): (\d+(?:\.\d+)?)\s*$")
_TABLE = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+(Total Latency|Total comm lat)\(ms\)")
_TABLE_ROW = re.compile(
    r"^\s*(\d+(?:\.\d+)? ?[KMGTPEZY]?B)\s+(\d{1,12})"
    r"\s+(-?\d+(?:\.\d+)?)\s+(-?\d+(?:\.\d+)?)\s+(-?\d+(?:\.\d+)?)\s+(-?\d+(?:\.\d+)?)\s*$"
)
_TABLE_OP = re.compile(r"^\s*([a-z][a-z0-9_]{2,60}(?: \| \[Caller Func: [^\]]{1,80}\])?)\s*$")
_FILE_RANK = re.compile(r"(?:^|[^a-z])rank[_.-]?(\d{1,7})(?!\d)", re.IGNORECASE)
MAX_STRAY_LINES = 1000
"""Of other output after the last line of a block; then all blocks are over."""
MAX_TABLE_ROWS = 4096
DEEPSPEED_TIMERS = {
    "fwd": "fwd", "forward": "fwd", "bwd": "bwd", "backward": "bwd", "bwd_inner": "bwd_inner",
    "backward_inner": "bwd_inner", "bwd_allreduce": "bwd_allreduce",
    "backward_allreduce": "bwd_allreduce", "step": "step",
}  # fmt: skip
"""Names of DeepSpeed's timers of a whole step, old ones and today's."""


@dataclass(slots=True)
class _Block:
    """Lines about timers that one process prints together."""

    form: str
    report: Report | None
    name: str = ""


@dataclass(slots=True)
class _State:
    current: Report | None = None
    happened: list[str] = field(default_factory=list)
    blocks: dict[str, _Block] = field(default_factory=dict)
    tables: dict[str, tuple[Table, str]] = field(default_factory=dict)
    optimizer: dict[int, dict[str, float]] = field(default_factory=dict)
    """By rank: the parts of DeepSpeed's step, which come before the line of the whole."""
    ordinals: dict[tuple[str, int], int] = field(default_factory=dict)


class Scan:
    """One pass over a log.

    Args:
        path: the log.
        faults: what is wrong with it.
        whole: told of each report with the times of all ranks, when it is whole.
        own: told of a rank, the number of its step, and its DeepSpeed timers.
    """

    def __init__(
        self,
        path: Path,
        faults: Faults,
        whole: Callable[[Report, Series], None],
        own: Callable[[int, int, dict[str, float]], None],
    ) -> None:
        self._path = path
        self._faults = faults
        self._whole = whole
        self._own = own
        found = _FILE_RANK.search(path.name)
        self._rank_of_file = int(found[1]) if found else -1
        self._first_rank: int | None = None
        self._last_passed: Passed | None = None
        self._unused = 0
        """Lines since the last one of a block."""
        self._state = _State()
        self.series = Series()

    def run(self) -> Series:
        """Read the log and return what it tells."""
        lines = LogLines(self._path, self._faults)
        for line in lines:
            if self._begins_block(line):
                lines.all, self._unused = True, 0
                continue
            if self._in_block(line) or self._in_table(line):
                self._unused = 0
                continue
            self._unused += 1
            if lines.all and self._unused > MAX_STRAY_LINES:
                lines.all = False
                self._state.blocks.clear()
                self._state.tables.clear()
            statement = statement_of(line)
            if isinstance(statement, Step):
                self._step(statement, line)
            elif isinstance(statement, Passed):
                self._passed(statement, line)
            elif isinstance(statement, Timers):
                self._timers(statement, line)
            elif isinstance(statement, Setting):
                self.series.settings.update(statement.values)
            elif isinstance(statement, Happened):
                if statement.what not in self._state.happened:
                    self._state.happened.append(statement.what)
            elif isinstance(statement, Detector | Throughputs):
                self._detected(statement)
        self._finish_current()
        return self.series

    def _finish_current(self) -> None:
        report, self._state.current = self._state.current, None
        if report is not None and report.by_rank:
            self._whole(report, self.series)
            report.by_rank = {}

    def _step(self, step: Step, line: Line) -> None:
        iteration = step.iteration
        if iteration is None:
            iteration = self._next(step.kind, -1)
        report = Report(
            kind="rate" if step.relative else step.kind, iteration=iteration,
            step_ms=step.step_ms, line=line.number, path=self._path, skipped=step.skipped,
            batch=step.batch, sequence=step.sequence, tflops=step.tflops,
            near=tuple(self._state.happened),
        )  # fmt: skip
        if step.kind == "megatron":
            self._finish_current()
        if not self.series.add(report):
            return
        if step.kind == "megatron" or "megatron" not in self.series.attempts:
            self._state.current = report
            self._state.happened = []

    def _passed(self, passed: Passed, line: Line) -> None:
        """Take the time between two lines of DeepSpeed's progress as that of its steps."""
        before, self._last_passed = self._last_passed, passed
        if before is None or passed.step <= before.step or passed.at_ms <= before.at_ms:
            return
        steps = passed.step - before.step
        step_ms = (passed.at_ms - before.at_ms) / steps
        if step_ms <= MAX_MS:
            self.series.add(
                Report(kind="stamps", iteration=passed.step, step_ms=step_ms, line=line.number,
                       path=self._path, covers=steps, rank=0,
                       skipped=max(passed.skipped - before.skipped, 0))
            )  # fmt: skip

    def _next(self, kind: str, rank: int) -> int:
        number = self._state.ordinals.get((kind, rank), 0) + 1
        self._state.ordinals[kind, rank] = number
        return number

    def _timers(self, timers: Timers, line: Line) -> None:
        known = {DEEPSPEED_TIMERS[n]: ms for n, ms in timers.ms.items() if n in DEEPSPEED_TIMERS}
        rank = timers.rank if timers.rank >= 0 else self._rank_of_file
        if rank >= MAX_RANKS:
            return
        if "optimizer_step" in timers.ms:
            self._state.optimizer[rank] = timers.ms
        elif {"fwd", "bwd", "step"} <= known.keys():
            parts = self._state.optimizer.pop(rank, {})
            own_ms = parts.get("optimizer_step", 0.0) + parts.get("optimizer_gradients", 0.0)
            if parts and own_ms <= known["step"]:
                known["optimizer"], known["step_allgather"] = own_ms, known["step"] - own_ms
            number = self._next("deepspeed_timers", rank)
            self.series.largest_rank = max(self.series.largest_rank, rank)
            if rank >= 0:
                self._own(rank, number, known)
            step_ms = known["fwd"] + known["bwd"] + known["step"]
            if self._first_rank is None:
                self._first_rank = rank  # of several in one file the first tells the steps
            if step_ms > 0 and rank == self._first_rank:
                self.series.add(
                    Report(kind="deepspeed_timers", iteration=number, step_ms=step_ms,
                           line=line.number, path=self._path, rank=rank, single=known)
                )  # fmt: skip
        elif self._state.current is not None:
            self._state.current.single.update(timers.ms)
            self._state.current.rank = timers.rank

    def _detected(self, told: Detector | Throughputs) -> None:
        report = self._state.current
        ranks = (
            [rank for _, _, rank in told.figures.values()]
            if isinstance(told, Detector)
            else list(told.by_rank)
        )
        ranks = [rank for rank in ranks if rank < MAX_RANKS]
        self.series.largest_rank = max(self.series.largest_rank, *ranks, -1)
        if isinstance(told, Detector):
            if report is None or report.detector is not None:
                # Printed without iterations around it: the order tells which is which.
                report = Report(kind="detector", iteration=self._next("detector", -1),
                                step_ms=0.0, line=0, path=self._path)  # fmt: skip
                self.series.add(report)
                self._state.current = report
            report.detector = told
        elif report is not None:
            (report.lowest if told.lowest else report.highest).update(told.by_rank)

    def _begins_block(self, line: Line) -> bool:
        found = _HEADER.search(line.text) if "across ranks" in line.text else None
        if found is not None:
            form = {"(": "minmax", "m": "max", "t": "all"}[found[1][0]]
            self._state.blocks[line.label] = _Block(form, self._state.current)
            return True
        found = _TABLE.search(line.text) if "Comm. Op" in line.text else None
        if found is not None and len(self.series.tables) < 1000:
            table = Table(straggler=found[1] == "Total comm lat")
            self.series.tables.append(table)
            self._state.tables[line.label] = (table, "")
            return True
        return False

    def _in_block(self, line: Line) -> bool:
        block = self._state.blocks.get(line.label)
        if block is None:
            return False
        take = {"minmax": self._min_max, "max": self._max, "all": self._all}[block.form]
        return take(block, line.text)

    def _min_max(self, block: _Block, text: str) -> bool:
        found = _MIN_MAX.search(text)
        if found is not None and block.report is not None:
            low, high = float(found[2]), float(found[3])
            if low <= high <= MAX_MS:
                block.report.least[found[1]], block.report.most[found[1]] = low, high
        return found is not None

    def _max(self, block: _Block, text: str) -> bool:
        found = _MAX.search(text)
        if found is not None and block.report is not None and float(found[2]) <= MAX_MS:
            block.report.most[found[1]] = float(found[2])
        return found is not None

    def _all(self, block: _Block, text: str) -> bool:
        if (found := _RANK.search(text)) is not None:
            rank, ms = int(found[1]), float(found[2])
            if block.name and block.report is not None and rank < MAX_RANKS and ms <= MAX_MS:
                block.report.by_rank.setdefault(block.name, {})[rank] = ms
                self.series.largest_rank = max(self.series.largest_rank, rank)
            return True
        if (found := _NAME.search(text)) is not None:
            block.name = found[1]
            return True
        return False

    def _in_table(self, line: Line) -> bool:
        held = self._state.tables.get(line.label)
        if held is None:
            return False
        table, name = held
        if found := _TABLE_ROW.match(line.text):
            if name and len(table.rows) < MAX_TABLE_ROWS:
                size, count, *figures = found.groups()
                a, b, c, d = (float(value) for value in figures)
                table.rows.append((name, size, int(count), a, b, c, d))
            return True
        if found := _TABLE_OP.match(line.text):
            self._state.tables[line.label] = (table, found[1])
            return True
        return False
