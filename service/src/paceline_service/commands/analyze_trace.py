"""``paceline analyze ... -o FILE.perfetto.json.gz``: the steps of files as a trace."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.ranks import format_ranks
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import Group, Int64Array
from paceline_service.commands.output import replacing
from paceline_service.export.perfetto import Drawing
from paceline_service.export.timeline.choice import telling_ranks
from paceline_service.export.timeline.clocks import Clocks
from paceline_service.export.timeline.drawing import StepArtist, matched_step
from paceline_service.export.timeline.drawn_job import DrawnJob
from paceline_service.export.timeline.spool import TraceSpool
from paceline_service.export.words import main_finding
from paceline_service.importers.answer import Answer
from paceline_service.importers.log import EventLog

MOST_ROWS = 500_000
"""Records that are drawn without being asked for: 150 MB of JSON, which Perfetto still opens
at once. ``--steps`` draws as many as it names."""
PART_SLICES = 50_000
"""Slices that are held at a time."""
_PACK_LEVEL = 3
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What was written."""

    first_step: int
    last_step: int
    steps: int
    all_steps: int
    ranks: tuple[int, ...]
    events: int


def write_trace(
    answer: Answer,
    analysis: JobAnalysis,
    path: Path,
    *,
    steps: tuple[int, int] | None,
    ranks: tuple[int, ...] | None,
) -> Drawn:
    """Write a trace for Perfetto, packed if the name ends in ``.gz``.

    Args:
        answer: with its records.
        analysis: that judged them; it knows clocks and how exact releases are.
        path: the file; it is whole or absent.
        steps: first and last to draw; else all, or those around the finding.
        ranks: to draw; else all, or those that tell.

    Raises:
        InputError: there are no such steps or ranks.
    """
    log = answer.log
    assert log is not None
    drawn_ranks = _ranks(ranks, answer.report, log.world_size)
    wanted, all_steps = _wanted(steps, answer.report, log)
    job = _drawn_job(log)
    clocks = Clocks(job, analysis.clock_offsets(), drawn_ranks)
    clocks.begin(*_first_times(log, drawn_ranks, wanted))
    artist = StepArtist(job, clocks, analysis.release_noise_ns(), drawn_ranks)
    spool = TraceSpool()
    try:
        numbers = _draw(spool, artist, log, job, wanted)
        other = {
            "schema": "paceline.timeline/1",
            "job": log.job or None,
            "attempt": log.attempt or None,
            "format": log.format,
            "world_size": log.world_size,
            "ranks": format_ranks(list(drawn_ranks)),
            "first_step": numbers[0],
            "last_step": numbers[-1],
            "steps": len(numbers),
            "steps_of_the_run": all_steps,
            **artist.told(),
        }
        with replacing(path) as file:
            _copy(spool.chunks(other), file, packed=path.name.lower().endswith(".gz"))
    finally:
        events = spool.events
        spool.close()
    return Drawn(
        first_step=numbers[0], last_step=numbers[-1], steps=len(numbers), all_steps=all_steps,
        ranks=drawn_ranks, events=events,
    )  # fmt: skip


def _draw(
    spool: TraceSpool, artist: StepArtist, log: EventLog, job: DrawnJob, wanted: tuple[int, int]
) -> list[int]:
    """Draw the wanted steps; return their numbers."""
    clock_of_rank = job.clock_numbers()
    numbers: list[int] = []
    drawing = Drawing(labels=artist.labels())
    for step, records in _steps(log, wanted):
        artist.draw(drawing, matched_step(step, records, job, clock_of_rank))
        numbers.append(step)
        if len(drawing.slices) > PART_SLICES:
            spool.add(drawing)
            drawing = Drawing(labels={})
    if not numbers:
        raise InputError(f"there is no step from {wanted[0]} to {wanted[1]}")
    spool.add(drawing)
    return numbers


def _steps(log: EventLog, wanted: tuple[int, int]) -> Iterator[tuple[int, Table]]:
    """Yield the records of each wanted step, those of all ranks."""
    for records in log.rounds():
        tables = [as_table(part) for part in records if len(part)]
        if not tables:
            continue
        table = stack(tables)
        if int(table.step.min()) > wanted[1]:
            return
        table = table.take((table.step >= wanted[0]) & (table.step <= wanted[1]))
        table = table.take(np.argsort(table.step, kind="stable"))
        steps, starts = np.unique(table.step, return_index=True)
        ends = np.append(starts[1:], len(table))
        for step, start, end in zip(steps.tolist(), starts.tolist(), ends.tolist(), strict=True):
            yield step, table.take(slice(start, end))


def _first_times(
    log: EventLog, ranks: Sequence[int], wanted: tuple[int, int]
) -> tuple[Int64Array, Int64Array]:
    """Return ranks and when the first wanted record of each began, on its own clock."""
    drawn = set(ranks)
    first: dict[int, int] = {}
    for records in log.rounds():
        for part in records:
            times = part.start_ns[
                (part.step >= wanted[0]) & (part.step <= wanted[1]) & (part.start_ns > 0)
            ]
            if len(times) and part.rank in drawn:
                first[part.rank] = min(first.get(part.rank, 1 << 62), int(times.min()))
    return np.array(list(first), dtype=np.int64), np.array(list(first.values()), dtype=np.int64)


def _wanted(
    steps: tuple[int, int] | None, report: Json, log: EventLog
) -> tuple[tuple[int, int], int]:
    """Return the first and last step to draw, and how many the run has."""
    numbers: set[int] = set()
    rows = 0
    for records in log.rounds():
        for part in records:
            numbers.update(np.unique(part.step).tolist())
            rows += len(part)
    found = sorted(number for number in numbers if number >= 0)
    if not found:
        raise InputError("there is no step to draw")
    if steps is not None:
        if steps[0] > found[-1] or steps[1] < found[0]:
            raise InputError(
                f"--steps {steps[0]}-{steps[1]}: the run has steps {found[0]} to {found[-1]}"
            )
        return steps, len(found)
    count = max(int(len(found) * MOST_ROWS / max(rows, 1)), 1)
    if count >= len(found):
        return (found[0], found[-1]), len(found)
    main = main_finding(report)
    begin = len(found) - count
    if main is not None and main["first_step"] is not None:
        place = int(np.searchsorted(found, main["first_step"]))
        begin = min(max(place - count // 4, 0), begin)
    return (found[begin], found[begin + count - 1]), len(found)


def _ranks(asked: tuple[int, ...] | None, report: Json, world_size: int) -> tuple[int, ...]:
    if asked is None:
        return telling_ranks(report, world_size)
    beyond = [rank for rank in asked if rank >= world_size]
    if beyond:
        raise InputError(f"--ranks: rank {beyond[0]} is not of a job of {world_size} ranks")
    return tuple(sorted(set(asked)))


def _drawn_job(log: EventLog) -> DrawnJob:
    job = DrawnJob(
        world_size=log.world_size, nodes=dict(log.nodes), clock_domains=dict(log.clock_domains),
        wall_offsets_ns={rank: wall - mono for rank, (mono, wall) in log.anchors.items()},
    )  # fmt: skip
    for one in log.groups:
        job.add_group(Group(name=one.name, ranks=one.ranks, epoch=one.epoch, mesh_dim=one.mesh_dim))
    job.members.settle()
    return job


def _copy(chunks: Iterator[bytes], file: BinaryIO, *, packed: bool) -> None:
    if not packed:
        file.writelines(chunks)
        return
    with gzip.GzipFile(
        filename="", fileobj=file, mode="wb", compresslevel=_PACK_LEVEL, mtime=0
    ) as out:
        for chunk in chunks:
            out.write(chunk)
