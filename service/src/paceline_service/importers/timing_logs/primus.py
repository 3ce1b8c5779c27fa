"""Reads Primus' dump of pipeline times as the log of a job (docs/formats/timing-logs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from statistics import mean, median
from typing import Any

from paceline.errors import InputError
from paceline.event_log import ROW_FIELDS, LogGroup
from paceline.vocabulary import Flag, Op, Phase, RecordKind
from paceline_service.analysis.options import Options
from paceline_service.analysis.report import Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.log import EventLog
from paceline_service.importers.timing_logs.primus_files import (
    MAX_CHUNK,
    Dump,
    Iteration,
    read_dump,
)
from paceline_service.importers.timing_logs.primus_order import Aligned, align

WARM_UP_RATIO = 1.5
"""A first iteration that takes so many times the median is of compilation and allocation."""
BETWEEN_STEPS_NS = 1_000_000
"""What is between two iterations (gradients, optimizer) the dump does not tell."""
_FIRST_NS = 1_000_000
_START = ROW_FIELDS.index("start_ns")
_KIND = ROW_FIELDS.index("kind")
_PASSES = (("fwd", Phase.FORWARD), ("bwd", Phase.BACKWARD), ("wgrad", Phase.BACKWARD))
_Row = tuple[int, ...]


def read_primus(paths: Sequence[Path], faults: Faults) -> EventLog:
    """Read the files of one dump.

    Raises:
        InputError: no rank is usable, or two files are of one rank.
    """
    builder = _Builder(read_dump(paths, faults), paths[0].parent, faults)
    try:
        return builder.build()
    except BaseException:
        builder.log.close()
        raise


class _Builder:
    def __init__(self, dump: Dump, directory: Path, faults: Faults) -> None:
        self._dump = dump
        self._directory = directory
        self._faults = faults
        self._steps = sorted(set.intersection(*(set(own) for own in dump.ranks.values())))
        if not self._steps:
            raise InputError(f"{directory}: no iteration is in the files of all pipeline ranks")
        self.log = EventLog(world_size=dump.stages, faults=faults)
        self._rows: dict[int, list[_Row]] = {rank: [] for rank in dump.ranks}
        """Of the iteration at hand."""
        self._margin_ms = 0.0

    def build(self) -> EventLog:
        log, dump = self.log, self._dump
        ranks = tuple(range(dump.stages))
        if dump.stages > 1:
            log.groups += [LogGroup(name=f"pipeline.{way}", ranks=ranks, mesh_dim="pp")
                           for way in ("forward", "backward")]  # fmt: skip
        log.clock_domains.update(dict.fromkeys(dump.ranks, "shared"))
        begin_ns = _FIRST_NS
        unordered = []
        for index, number in enumerate(self._steps):
            own = {rank: iterations[number] for rank, iterations in dump.ranks.items()}
            aligned = None
            if len(own) == dump.stages > 1:
                aligned = align(own, dump.stages, self._chunks(own))
                if aligned is None:
                    unordered.append(number)
            begin_ns = self._add(index, own, aligned, begin_ns)
        warm_up = self._warm_up()
        self._tell([number for number in unordered if number not in warm_up])
        log.spool.flush()
        log.ranks_with_steps.update(dump.ranks)
        log.extents.update(dict.fromkeys(dump.ranks, (_FIRST_NS, begin_ns)))
        # Iterations count from 1 (of a run) or from 0 (of a simulation).
        settling = min(self._steps[0], 1) + len(warm_up)
        log.options = replace(Options(), settling_steps=settling)
        log.facts = lambda: {"timings": self._facts(warm_up)}
        log.finish = self._finish
        return log

    def _chunks(self, own: dict[int, Iteration]) -> int:
        named = [max(one.fwd_chunk, default=0) + 1 for one in own.values()]
        return max(min(self._dump.config.chunks, MAX_CHUNK + 1), *named)

    def _add(
        self, index: int, own: dict[int, Iteration], aligned: Aligned | None, begin_ns: int
    ) -> int:
        """Lay one iteration down from ``begin_ns`` on, and return where the next one begins."""
        number = self._steps[index]
        shift_ms = aligned.shift_ms if aligned else dict.fromkeys(own, 0.0)
        earliest_ms = min(shift_ms[rank] for rank in own)
        origin = {r: begin_ns + round((shift_ms[r] - earliest_ms) * 1e6) for r in own}
        for rank, one in own.items():
            rows = self._rows[rank]
            for kind, phase in _PASSES:
                spans = zip(getattr(one, f"{kind}_start"), getattr(one, f"{kind}_end"), strict=True)
                for start_ms, end_ms in spans:
                    if kind == "fwd" and _is_both(one, start_ms):
                        continue  # a combined pass: dumped twice with the same times
                    start, end = (origin[rank] + round(ms * 1e6) for ms in (start_ms, end_ms))
                    rows.append(_row(RecordKind.PHASE, int(phase), number, start, end))
            end = origin[rank] + round(_end_ms(one) * 1e6)
            rows.append(_row(RecordKind.STEP, int(Op.UNKNOWN), number, origin[rank], end))
        if aligned is not None:
            self._margin_ms = max(self._margin_ms, aligned.margin_ms)
            self._transfers(index, own, aligned, origin)
        for rank, rows in self._rows.items():
            # In time order; the row of the step itself comes last.
            for row in sorted(rows, key=lambda row: (row[_KIND] == RecordKind.STEP, row[_START])):
                self.log.spool.append(rank, row)
            rows.clear()
        last = max(origin[rank] + round(_end_ms(one) * 1e6) for rank, one in own.items())
        return last + BETWEEN_STEPS_NS

    def _transfers(
        self, index: int, own: dict[int, Iteration], aligned: Aligned, origin: dict[int, int]
    ) -> None:
        """Derive who waited for whom: a rank is free from its last pass on until the next begins.

        Neither sends nor receives are in the dump.
        """
        number = self._steps[index]
        free = {rank: _ends_before(one) for rank, one in own.items()}
        for one in aligned.passings:
            sent = origin[one.source] + round(one.ended_ms * 1e6)
            began = max(origin[one.destination] + round(one.began_ms * 1e6), sent)
            idle_ms = free[one.destination].get(one.began_ms, 0.0)
            idle = min(origin[one.destination] + round(idle_ms * 1e6), began)
            seq = (index << 36) + one.ordinal
            base = {"group": one.direction, "seq": seq, "flags": 0}
            self._rows[one.source].append(
                _row(RecordKind.COLLECTIVE, int(Op.SEND), number, sent, began,
                     **{**base, "peer": one.destination, "flags": int(Flag.ASYNC)})
            )  # fmt: skip
            self._rows[one.destination].append(
                _row(RecordKind.COLLECTIVE, int(Op.RECV), number, idle, began,
                     **{**base, "peer": one.source, "join_ns": idle})
            )  # fmt: skip

    def _tell(self, unordered: list[int]) -> None:
        for rank, iterations in self._dump.ranks.items():
            left = len(iterations) - len(self._steps)
            if left:
                message = f"{left} iterations of pipeline rank {rank} are not in all files"
                self._faults.add("unpaired", self._directory, None, message, rank=rank, count=left)
        if unordered:
            shown = ", ".join(map(str, unordered[:8])) + (", ..." if len(unordered) > 8 else "")
            message = (
                f"the passes of iteration {shown} follow neither 1F1B, one chunk after the other, "
                "nor a folded pipeline: who waited for whom is not told for them"
            )
            self._faults.add("unpaired", self._directory, None, message, count=len(unordered))

    def _warm_up(self) -> list[int]:
        took = {n: max(own[n].total for own in self._dump.ranks.values()) for n in self._steps}
        usual = median(took.values())
        slow = takewhile(lambda n: took[n] > WARM_UP_RATIO * usual, self._steps)
        return list(slow)[: len(self._steps) // 2]

    def _facts(self, warm_up: list[int]) -> dict[str, Any]:
        chosen = [number for number in self._steps if number not in warm_up]
        work = {rank: mean(_work_ms(iterations[n]) for n in chosen)
                for rank, iterations in sorted(self._dump.ranks.items())}  # fmt: skip
        stages = []
        for rank, own_ms in work.items():
            others = [ms for other, ms in work.items() if other != rank]
            ratio = own_ms / median(others) if others and median(others) > 0 else None
            stages.append({"stage": rank, "work_ms": own_ms, "ratio": ratio})
        return {
            "form": "pipeline times",
            "iterations": [chosen[0], chosen[-1]],
            "warm_up": warm_up,
            "stages": stages,
            "alignment_margin_ms": self._margin_ms,
        }

    def _finish(self, report: Report) -> Report:
        facts = self._facts(self._warm_up())
        first, last = facts["iterations"]
        notes = []
        known = [stage for stage in facts["stages"] if stage["ratio"] is not None]
        if known:
            top = max(known, key=lambda stage: float(stage["ratio"]))
            notes.append(
                f"in iterations {first} to {last} pipeline rank {top['stage']} of "
                f"{self._dump.stages} worked longest: {top['work_ms']:,.0f} ms per iteration, "
                f"{top['ratio']:.3f} times the median of the others"
            )
        if facts["warm_up"]:
            shown = ", ".join(map(str, facts["warm_up"][:8]))
            notes.append(f"iteration {shown} is warm-up and not judged")
        size = self._dump.config.world_size
        if size > self._dump.stages:
            notes.append(
                f"the dump is of one rank per pipeline stage, of {size} ranks in the job: ranks "
                "here are pipeline ranks of the first replica"
            )
        notes.append(
            "the dump shows the passes of the pipeline only: waits are what lies between them, and "
            "gradients, optimizer and data loading are not in it"
        )
        findings = [
            replace(one, first_step=max(one.first_step, first)) if one.first_step is not None
            else one
            for one in report.findings
        ]  # fmt: skip
        return replace(report, findings=findings, notes=[*report.notes, *notes])


def _row(kind: int, code: int, step: int, start_ns: int, end_ns: int, **more: int) -> _Row:
    values = {"kind": int(kind), "code": code, "step": step, "peer": -1, "start_ns": start_ns,
              "end_ns": end_ns, **more}  # fmt: skip
    return (*(values.get(name, 0) for name in ROW_FIELDS), 0, 0)


def _is_both(one: Iteration, start_ms: float) -> bool:
    """Whether a forward pass was dumped as a backward pass as well."""
    return start_ms in one.bwd_start


def _end_ms(one: Iteration) -> float:
    return max([one.total, *one.fwd_end, *one.bwd_end, *one.wgrad_end])


def _ends_before(one: Iteration) -> dict[float, float]:
    """Return for each pass, by its start, when the pass before it ended; 0 for the first."""
    spans = sorted([*zip(one.fwd_start, one.fwd_end, strict=True),
                    *zip(one.bwd_start, one.bwd_end, strict=True),
                    *zip(one.wgrad_start, one.wgrad_end, strict=True)])  # fmt: skip
    free: dict[float, float] = {}
    before = 0.0
    for start, end in spans:
        free.setdefault(start, before)
        before = max(before, end)
    return free


def _work_ms(one: Iteration) -> float:
    spans = {*zip(one.fwd_start, one.fwd_end, strict=True),
             *zip(one.bwd_start, one.bwd_end, strict=True),
             *zip(one.wgrad_start, one.wgrad_end, strict=True)}  # fmt: skip
    return sum(end - start for start, end in spans)
