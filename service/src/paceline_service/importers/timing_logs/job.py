"""The logs of one job together: which attempt is judged, and what its ranks did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.timing_logs.detector import all_ranks_ms
from paceline_service.importers.timing_logs.places import Places, places_of
from paceline_service.importers.timing_logs.records import Recorder
from paceline_service.importers.timing_logs.scan import Scan
from paceline_service.importers.timing_logs.series import Report, Series, Table

_IDENTITY = (
    "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "num_layers",
    "hidden_size", "seq_length", "micro_batch_size",
)  # fmt: skip
"""Arguments in which the logs of one job agree, whatever its attempts are given."""


@dataclass(slots=True, kw_only=True)
class Job:
    """What the logs of one job tell."""

    places: Places
    settings: dict[str, str]
    attempts: list[list[Report]]
    """Those of the kind of statement that tells most, in order."""
    detected: list[Report]
    tables: list[Table]
    recorder: Recorder
    paths: list[Path] = field(default_factory=list)

    @property
    def latest(self) -> list[Report]:
        """The reports of the attempt that is judged."""
        return self.attempts[-1] if self.attempts else []


def read_job(paths: Sequence[Path], faults: Faults, recorder: Recorder) -> Job:
    """Read the logs of one job, each of which may hold several attempts or one rank.

    What they know of every rank goes to ``recorder``.

    Raises:
        InputError: they hold no times of training, or are of several jobs.
    """
    read: list[tuple[Path, Series]] = []
    owner: dict[int, Path] = {}
    for path in sorted(paths, key=_natural):
        faults.reading(path)

        def own(rank: int, number: int, ms: dict[str, float], path: Path = path) -> None:
            if owner.setdefault(rank, path) == path:
                recorder.deepspeed(rank, number, ms)
            elif number == 1:
                message = f"rank {rank} is in {owner[rank].name} already; that one is used"
                faults.add("duplicate", path, None, message, rank=rank)

        series = Scan(path, faults, recorder.megatron, own).run()
        if series.attempts or series.tables:
            read.append((path, series))
        else:
            faults.add("skipped_file", path, None, "no times of training steps in it")
    if not read:
        raise InputError(
            f"{paths[0]} holds no times of training steps; known are those of Megatron-LM, NeMo "
            "and DeepSpeed (docs/formats/timing-logs.md)"
        )
    _of_one_job(read)
    settings: dict[str, str] = {}
    for _, series in read:
        settings.update(series.settings)
    largest = max(series.largest_rank for _, series in read)
    places = places_of(settings, largest)
    job = Job(
        places=replace(places, world_size=max(places.world_size, 1)),
        settings=settings,
        attempts=_attempts([series for _, series in read]),
        detected=[r for _, s in read for r in _detected(s)],
        tables=[table for _, series in read for table in series.tables],
        recorder=recorder,
        paths=[path for path, _ in read],
    )
    _record_detected(job)
    if recorder.places is None and (places.stages or 1) > 1:
        # DeepSpeed's timers do not tell stages apart, and ranks of several are no peers.
        reports = recorder.reports
        recorder.restart()
        recorder.unplaced = reports
    return job


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key: numbers in names by their value, as the logs of attempts follow each other."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in parts]


def _of_one_job(read: Sequence[tuple[Path, Series]]) -> None:
    first: dict[str, tuple[str, Path]] = {}
    for path, series in read:
        for name in _IDENTITY:
            value = series.settings.get(name)
            if value is None:
                continue
            told, where = first.setdefault(name, (value, path))
            if told != value:
                raise InputError(
                    f"the logs are of several jobs: {name} is {told} in {where} and {value} in "
                    f"{path}; give those of one"
                )


def _attempts(read: Sequence[Series]) -> list[list[Report]]:
    """Return the attempts of all logs; one that two logs tell alike is told once."""
    kinds = [series.kind for series in read if series.kind is not None]
    if not kinds:
        return []
    best = min(kinds, key=_rank_of_kind)
    kept: list[list[Report]] = []
    seen: set[tuple[tuple[int, float], ...]] = set()
    for series in read:
        for attempt in series.attempts.get(best, []):
            key = tuple((report.iteration, report.step_ms) for report in attempt[:64])
            if attempt and key not in seen:
                seen.add(key)
                kept.append(attempt)
    return _without_other_ranks(kept, best)


def _rank_of_kind(kind: str) -> int:
    from paceline_service.importers.timing_logs.series import KINDS

    return KINDS.index(kind)


def _without_other_ranks(attempts: list[list[Report]], kind: str) -> list[list[Report]]:
    """Of DeepSpeed's timers that several ranks print those of the lowest tell the steps."""
    if kind != "deepspeed_timers":
        return attempts
    lowest = min((attempt[0].rank for attempt in attempts), default=-1)
    return [attempt for attempt in attempts if attempt[0].rank == lowest]


def _detected(series: Series) -> list[Report]:
    return [
        report
        for attempts in series.attempts.values()
        for attempt in attempts[-1:]
        for report in attempt
        if report.detector is not None
    ]


def _record_detected(job: Job) -> None:
    """Make records of the detector's reports, where each names all ranks and stages are known."""
    places = job.places
    if job.recorder.any or places.stages is None or not job.detected:
        return
    for report in job.detected:
        ms = all_ranks_ms(report, places.world_size)
        if ms:
            job.recorder.detector(report, ms, places)
