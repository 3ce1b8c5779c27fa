"""Which trace files are of one job, and which of them cover the same window of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.counted import counted
from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto.assemble import Assembly
from paceline_service.importers.kineto.rank import RankTimeline, timeline_of
from paceline_service.importers.kineto.reading import Arrival, reading
from paceline_service.importers.limits import MAX_RANKS

MAX_APART_NS = 60_000_000_000
"""Profilers of one job start within a step of each other, and clocks of a cluster are set to far
less than a minute; traces further apart do not show the same collectives."""

Window = dict[int, RankTimeline]


def read_windows(
    paths: Sequence[Path], faults: Faults, arrivals: Iterator[Arrival] | None = None
) -> tuple[list[Window], int]:
    """Return the windows of profiling, in order, each by rank; and the world size.

    What does not fit with the others is left out and told.

    Args:
        paths: of traces.
        faults: what is wrong with them.
        arrivals: the pieces of the files, where they are being read already.

    Raises:
        InputError: nothing is left, or nobody can say what belongs together.
    """
    if arrivals is None:
        with reading(paths, faults) as arrivals:
            timelines = list(_usable(_assembled(paths, arrivals), faults))
    else:
        timelines = list(_usable(_assembled(paths, arrivals), faults))
    if not timelines:
        told = faults.notes()
        raise InputError(
            f"{paths[0].parent if len(paths) > 1 else paths[0]}: no trace is usable"
            + (f" ({told[0]})" if told else "")
        )
    return windows_of(timelines, faults)


def windows_of(timelines: list[RankTimeline], faults: Faults) -> tuple[list[Window], int]:
    """Return what ``read_windows`` does, of timelines that were read by whatever importer."""
    timelines = _of_one_world(timelines, faults)
    world_size = max((t.trace.world_size for t in timelines), default=0)
    if not world_size:
        world_size = max(t.trace.rank for t in timelines) + 1
    by_rank: dict[int, list[RankTimeline]] = defaultdict(list)
    for timeline in timelines:
        rank = timeline.trace.rank
        if rank >= world_size:
            message = f"rank {rank}, but the world size is {world_size}; left out"
            faults.add("other_job", timeline.trace.path, None, message)
        else:
            by_rank[rank].append(timeline)
    return [_together(window, faults) for window in _windows(by_rank)], world_size


def _assembled(
    paths: Sequence[Path], arrivals: Iterator[Arrival]
) -> list[tuple[Assembly, RankTimeline]]:
    """Return each file as it was read; a trace shrinks to its timeline as soon as it is whole."""
    assemblies: dict[int, Assembly] = {}
    found: dict[int, tuple[Assembly, RankTimeline]] = {}
    for index, piece in arrivals:
        assembly = assemblies.get(index)
        if assembly is None:
            assembly = assemblies[index] = Assembly(paths[index])
        assembly.add(piece)
        if piece.metadata is not None:
            found[index] = assembly, timeline_of(assembly.trace)
            assemblies.pop(index).trace.forget()
    return [found[index] for index in sorted(found)]


def _usable(
    found: Sequence[tuple[Assembly, RankTimeline]], faults: Faults
) -> Iterator[RankTimeline]:
    seen: dict[str, Path] = {}
    for assembly, timeline in found:
        assembly.tell(faults)
        trace, path = timeline.trace, timeline.trace.path
        if not trace.events:
            faults.add("unusable_file", path, None, "a trace without usable events; left out")
            continue
        extent = f"{trace.rank} {trace.first_ns} {trace.last_ns} {trace.events}"
        same = seen.setdefault(trace.identity or extent, path)
        if same != path:
            faults.add("skipped_file", path, None, f"left out: the same trace as {same.name}")
            continue
        if trace.rank < 0:
            if len(found) > 1:
                message = (
                    "left out: neither its distributedInfo nor its name tells the rank; name it "
                    "like rank0.json"
                )
                faults.add("unusable_file", path, None, message)
                continue
            trace.rank = 0
        if max(trace.rank + 1, trace.world_size) > MAX_RANKS:
            faults.add("unusable_file", path, None, f"left out: rank {trace.rank} is no rank")
            continue
        yield timeline


def _of_one_world(timelines: list[RankTimeline], faults: Faults) -> list[RankTimeline]:
    """Leave out the traces of another world size, where most agree about one."""
    sizes = Counter(t.trace.world_size for t in timelines if t.trace.world_size)
    if len(sizes) < 2:
        return timelines
    (size, count), (other, others) = sizes.most_common(2)
    if count == others:
        example = {t.trace.world_size: t.trace.path for t in timelines}
        raise InputError(
            f"{example[size]} is of a job of {counted(size, 'rank')} and {example[other]} of one "
            f"of {other}; give the traces of one job"
        )
    kept = []
    for timeline in timelines:
        trace = timeline.trace
        if trace.world_size in (0, size):
            kept.append(timeline)
            continue
        message = (
            f"left out: of a job of {counted(trace.world_size, 'rank')}; the others are of one of "
            f"{size}"
        )
        faults.add("other_job", trace.path, None, message)
    return kept


def _windows(by_rank: dict[int, list[RankTimeline]]) -> list[Window]:
    """Put the traces of the ranks together that cover the same steps."""
    for timelines in by_rank.values():
        timelines.sort(key=lambda t: (t.trace.first_ns, str(t.trace.path)))
    counts = {rank: len(timelines) for rank, timelines in by_rank.items()}
    if max(counts.values(), default=0) <= 1:
        return [{rank: timelines[0] for rank, timelines in by_rank.items()}] if by_rank else []
    firsts = {
        rank: [int(t.steps[0]) if t.numbered else -1 for t in timelines]
        for rank, timelines in by_rank.items()
    }
    if all(-1 not in own and len(set(own)) == len(own) for own in firsts.values()):
        found: dict[int, Window] = defaultdict(dict)
        for rank, timelines in by_rank.items():
            for first, timeline in zip(firsts[rank], timelines, strict=True):
                found[first][rank] = timeline
        return [found[first] for first in sorted(found)]
    for rank, own in firsts.items():
        repeated = [i for i, first in enumerate(own) if first >= 0 and first in own[:i]]
        if repeated:
            again = repeated[0]
            before = by_rank[rank][own.index(own[again])].trace.path
            raise InputError(
                f"{before} and {by_rank[rank][again].trace.path} are both of rank {rank} and both "
                f"begin with step {own[again]}, so they are not of one run; give the traces of one"
            )
    if len(set(counts.values())) == 1:
        return [
            {rank: timelines[index] for rank, timelines in by_rank.items()}
            for index in range(next(iter(counts.values())))
        ]
    most, least = max(counts, key=lambda r: counts[r]), min(counts, key=lambda r: counts[r])
    raise InputError(
        f"rank {most} has {counts[most]} traces ({by_rank[most][0].trace.path.name}, ...) and rank "
        f"{least} has {counts[least]}, and their steps do not tell which belong together; give "
        "those of one window"
    )


def _together(window: Window, faults: Faults) -> Window:
    """Leave out the traces that were recorded at another time than most."""
    times = {rank: t.trace.window_ns for rank, t in window.items()}
    known = {rank: time for rank, time in times.items() if time is not None}
    if len(known) < 2:
        return window
    middle = sorted(first for first, _ in known.values())[len(known) // 2]
    kept = dict(window)
    for rank, (first, last) in known.items():
        apart_ns = max(first - middle, middle - last)
        if apart_ns > MAX_APART_NS:
            message = (
                f"left out: recorded {apart_ns / 1e9:,.0f} s apart from the traces of most ranks, "
                "so it does not show the same collectives"
            )
            faults.add("other_job", window[rank].trace.path, None, message, rank=rank)
            del kept[rank]
    return kept
