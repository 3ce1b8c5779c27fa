"""What is drawn of a window: steps, phases, collectives, waits, and who came last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import OVERLAYS, Flag, Op, Phase, RecordKind, op_name, phase_name
from paceline_service.analysis.blame.noise import ReleaseNoise
from paceline_service.analysis.blame.waits import Waits, measure_waits
from paceline_service.analysis.matching.clocks import ClockWatch
from paceline_service.analysis.matching.device import one_timeline
from paceline_service.analysis.matching.match import Matches, match
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.export.perfetto import KINDS, Arrow, Drawing, Mark, Slice
from paceline_service.export.timeline.clocks import Clocks
from paceline_service.export.timeline.drawn_job import DrawnJob

MAX_SLICES = 250_000
"""Beyond it whole steps are left out, the last ones first; the first is always drawn."""
STEP, PHASE, WITHIN, COLLECTIVE, WAIT = range(len(KINDS))
_OPS = [op_name(op) for op in Op]
_PHASES = [phase_name(phase) for phase in Phase]
_FAILED = int(Flag.FAILED)
_OVERLAYS = {int(phase) for phase in OVERLAYS}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStep:
    """One step, its records on one timeline and its collectives matched."""

    step: int
    table: Table
    matches: Matches


def matched_step(
    step: int, records: Table, job: DrawnJob, clock_of_rank: Int64Array
) -> MatchedStep:
    """Return a step of which the records of all ranks are given."""
    table, _ = one_timeline(records, job.world_size)
    return MatchedStep(step=step, table=table, matches=match(table, job.members, clock_of_rank))


def draw(
    job: DrawnJob, steps: Mapping[int, Table], ranks: Sequence[int], first: int
) -> tuple[Drawing, Json]:
    """Return what is to be drawn of ``ranks``, and what is known of it as a whole.

    Args:
        job: topology and clocks.
        steps: the records of all ranks by step.
        ranks: to draw.
        first: step that was asked for.
    """
    clock_of_rank = job.clock_numbers()
    noise, watch = ReleaseNoise(), ClockWatch(job.world_size)
    matched = []
    for step, records in sorted(steps.items()):
        one = matched_step(step, records, job, clock_of_rank)
        noise.learn(one.matches)
        watch.see(one.matches)
        matched.append(one)
    clocks = Clocks(job, watch.offsets(clock_of_rank), ranks)
    artist = StepArtist(job, clocks, noise.noise_ns(len(job.members.sizes)), ranks)
    clocks.begin(*_times(matched, artist.drawn))
    drawing = Drawing(labels=artist.labels())
    last = first - 1
    for one in matched:
        if drawing.slices and len(drawing.slices) + artist.size(one) > MAX_SLICES:
            break
        artist.draw(drawing, one)
        last = one.step
    return drawing, {"first_step": first, "last_step": last, **artist.told()}


class StepArtist:
    """Draws steps one by one.

    Args:
        job: topology and clocks.
        clocks: puts all ranks on one axis.
        noise_ns: (G,) how exactly the releases of each group are known.
        ranks: to draw.
    """

    def __init__(
        self, job: DrawnJob, clocks: Clocks, noise_ns: Int64Array, ranks: Sequence[int]
    ) -> None:
        self._job = job
        self._clocks = clocks
        self._noise_ns = noise_ns
        self._ranks = ranks
        self._clock_of_rank = job.clock_numbers()
        self.drawn = np.zeros(job.world_size, dtype=np.bool_)
        self.drawn[list(ranks)] = True
        self._counts = {
            "steps": 0, "phases": 0, "collectives": 0, "unreleased": 0, "last_arrivers": 0
        }  # fmt: skip

    def labels(self) -> dict[int, tuple[str, str]]:
        """Return the name and the label of each rank."""
        return {rank: (self._job.title(rank), self._clocks.label(rank)) for rank in self._ranks}

    def told(self) -> Json:
        """Return what was drawn, and on which axis, for the metadata."""
        return {
            "origin_wall_ns": self._clocks.origin_ns,
            "clocks": self._clocks.told(),
            "drawn": self._counts,
        }

    def size(self, one: MatchedStep) -> int:
        """Return about how many slices a step takes."""
        return int(self.drawn[one.table.rank].sum()) + int(self.drawn[one.matches.rows.rank].sum())

    def draw(self, drawing: Drawing, one: MatchedStep) -> None:
        """Add a step to a drawing."""
        waits = measure_waits(one.matches, self._clock_of_rank, self._noise_ns)
        _draw_times(drawing, self._counts, one, self.drawn, self._clocks)
        _draw_collectives(drawing, self._counts, one, waits, self.drawn, self._clocks, self._job)


def _draw_times(
    drawing: Drawing, counts: dict[str, int], one: MatchedStep, drawn: BoolArray, clocks: Clocks
) -> None:
    table = one.table
    timed = (table.kind == RecordKind.STEP) | (table.kind == RecordKind.PHASE)
    rows = table.take(timed & drawn[table.rank] & (table.end_ns > 0))
    start, end = clocks.place(rows.rank, rows.start_ns), clocks.place(rows.rank, rows.end_ns)
    columns = (rows.kind, rows.code, rows.rank, start, end)
    for kind, code, rank, start_ns, end_ns in zip(*(c.tolist() for c in columns), strict=True):
        if kind == RecordKind.STEP:
            name, lane = f"step {one.step}", STEP
            counts["steps"] += 1
        else:
            name, lane = _PHASES[code], WITHIN if code in _OVERLAYS else PHASE
            counts["phases"] += 1
        drawing.slices.append(
            Slice(start_ns=max(start_ns, 0), end_ns=max(end_ns, start_ns, 0), rank=rank, kind=lane,
                  name=name, args={"step": one.step})
        )  # fmt: skip


def _draw_collectives(
    drawing: Drawing,
    counts: dict[str, int],
    one: MatchedStep,
    waits: Waits,
    drawn: BoolArray,
    clocks: Clocks,
    job: DrawnJob,
) -> None:
    rows, instance = one.matches.rows, one.matches.instance
    index = np.flatnonzero(drawn[rows.rank])
    slices: dict[int, Slice] = {}
    longest: dict[int, tuple[int, int]] = {}
    table = (
        index, instance, rows.rank, rows.code, rows.group, rows.seq, rows.payload_bytes, rows.peer,
        rows.flags, rows.end_ns, waits.wait_ns, waits.exposed_ns, waits.last_rank[instance],
        clocks.place(rows.rank, rows.start_ns), clocks.place(rows.rank, rows.end_ns),
        clocks.place(rows.rank, waits.exposed_start_ns),
    )  # fmt: skip
    columns = [index.tolist(), *(column[index].tolist() for column in table[1:])]
    for (
        row, at, rank, code, group, seq, size, peer, flags, released_ns, wait_ns, exposed_ns,
        last_rank, start_ns, end_ns, stopped_ns,
    ) in zip(*columns, strict=True):  # fmt: skip
        args: Json = {
            "step": one.step,
            "group": job.groups[group].name,
            "seq": seq,
            "bytes": size,
            "last_arriver": last_rank if last_rank >= 0 else None,
        }
        if peer >= 0:
            args["peer"] = peer
        start_ns, name = max(start_ns, 0), _OPS[code]
        if not released_ns:
            counts["unreleased"] += 1
            drawing.marks.append(
                Mark(at_ns=start_ns, rank=rank, kind=COLLECTIVE, args=args,
                     name=f"{name} (release unknown)", category="collective")
            )  # fmt: skip
            continue
        if flags & _FAILED:
            args["failed"] = True
        # What the rank stood still for after the last arrival; it ends where the slice ends.
        args["exposed_comm_ns"] = max(exposed_ns - wait_ns, 0)
        counts["collectives"] += 1
        slices[row] = Slice(start_ns=start_ns, end_ns=max(end_ns, start_ns), rank=rank,
                            kind=COLLECTIVE, name=name, args=args)  # fmt: skip
        if wait_ns <= 0:
            continue
        from_ns = max(stopped_ns, 0)
        drawing.slices.append(
            Slice(start_ns=from_ns, end_ns=from_ns + wait_ns, rank=rank, kind=WAIT,
                  name=f"waits for rank {last_rank}", args=args | {"for": name})
        )  # fmt: skip
        longest[at] = max(longest.get(at, (0, -1)), (wait_ns, row))
    drawing.slices += slices.values()
    for at in np.unique(instance[index]).tolist():
        last = int(waits.last_row[at])
        if last not in slices:
            continue
        counts["last_arrivers"] += 1
        late_ns = int(waits.late_by_ns[at])
        source = slices[last]
        drawing.marks.append(
            Mark(at_ns=source.start_ns, rank=source.rank, kind=COLLECTIVE, on=source,
                 name=f"last arriver, {late_ns / 1e6:.2f} ms late", category="last arriver",
                 args={**source.args, "late_by_ns": late_ns})
        )  # fmt: skip
        if at in longest:
            drawing.arrows.append(Arrow(source=source, target=slices[longest[at][1]]))


def _times(matched: Sequence[MatchedStep], drawn: BoolArray) -> tuple[Int64Array, Int64Array]:
    ranks, times = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for one in matched:
        chosen = drawn[one.table.rank]
        ranks.append(one.table.rank[chosen])
        times.append(one.table.start_ns[chosen])
    return np.concatenate(ranks), np.concatenate(times)
