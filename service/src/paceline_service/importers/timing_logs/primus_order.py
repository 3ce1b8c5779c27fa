"""Which passes of neighbouring pipeline ranks depend on each other, and how their clocks lie.

A rank's times count from the start of its own schedule. What is passed on binds them: a stage
cannot begin the forward of a micro-batch before the stage before it has ended that, and in the
backward the other way round. Both directions together leave the difference of two clocks a margin
of the time that two transfers take (docs/formats/timing-logs.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.dataclass import dataclass
from paceline_service.importers.timing_logs.primus_files import MAX_BATCH, Iteration

TOLERANCE_MS = 1.0
TOLERANCE_RATIO = 0.001
"""Of an iteration: by how much passes may contradict each other and still be taken as paired."""
FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """What one rank hands to another: a micro-batch, forward or backward.

    ``ended_ms`` is on the clock of ``source``, ``began_ms`` on that of ``destination``.
    """

    direction: int
    source: int
    destination: int
    ordinal: int
    ended_ms: float
    began_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """One iteration on one axis: what was passed, and what to add to each rank's times, ms."""

    passings: list[Passing]
    shift_ms: dict[int, float]
    margin_ms: float
    """The largest half-width of a shift against the rank before."""


def align(iterations: Mapping[int, Iteration], stages: int, chunks: int) -> Aligned | None:
    """Return the order of one iteration, or None where no known placement of chunks explains it.

    Args:
        iterations: of every pipeline rank.
        stages: pipeline ranks.
        chunks: model chunks on a rank.
    """
    for folded in (False, True) if chunks == 2 else (False,):
        passings = list(_passings(iterations, stages, chunks, folded))
        shift_ms, margin_ms = _shifts(passings, stages)
        longest = max(iteration.total for iteration in iterations.values())
        allowed = max(TOLERANCE_MS, TOLERANCE_RATIO * longest)
        gaps = [
            p.began_ms + shift_ms[p.destination] - p.ended_ms - shift_ms[p.source] for p in passings
        ]
        if passings and min(gaps) >= -allowed:
            return Aligned(passings=passings, shift_ms=shift_ms, margin_ms=margin_ms)
    return None


def _passings(
    iterations: Mapping[int, Iteration], stages: int, chunks: int, folded: bool
) -> Iterator[Passing]:
    """Yield what is handed on; ``folded``: the second chunk goes through the ranks backwards."""
    places = {}
    for rank, own in iterations.items():
        for direction, kind in ((FORWARD, "fwd"), (BACKWARD, "bwd")):
            start, end = getattr(own, f"{kind}_start"), getattr(own, f"{kind}_end")
            batch, chunk = getattr(own, f"{kind}_minibatch"), getattr(own, f"{kind}_chunk")
            named = len(batch) == len(chunk) == len(start)
            order = (
                list(zip(batch, chunk, strict=True))
                if named and chunks > 1
                else schedule(len(start), stages, chunks, backward=direction == BACKWARD)
            )
            for (which, part), began_ms, ended_ms in zip(order, start, end, strict=False):
                back = folded and part % 2
                depth = part * stages + (stages - 1 - rank if back else rank)
                places[direction, which, depth] = (rank, began_ms, ended_ms)
    for (direction, which, depth), (rank, _, ended_ms) in sorted(places.items()):
        after = places.get((direction, which, depth + (1 if direction == FORWARD else -1)))
        if after is not None and after[0] != rank:
            yield Passing(
                direction=direction, source=rank, destination=after[0],
                ordinal=depth * (MAX_BATCH + 1) + which, ended_ms=ended_ms, began_ms=after[1],
            )  # fmt: skip


def schedule(passes: int, stages: int, chunks: int, *, backward: bool) -> list[tuple[int, int]]:
    """Return micro-batch and chunk of each pass of a rank, as 1F1B takes them in turn.

    With several chunks a rank does as many micro-batches of one chunk as there are stages, then
    the same ones of the next.
    """
    batches = passes // max(chunks, 1)
    order = []
    for first in range(0, batches, max(stages, 1)):
        for chunk in range(chunks):
            part = chunks - 1 - chunk if backward else chunk
            order += [(which, part) for which in range(first, min(first + stages, batches))]
    return order if chunks > 1 else [(which, 0) for which in range(passes)]


def _shifts(passings: list[Passing], stages: int) -> tuple[dict[int, float], float]:
    """Return what to add to each rank's times, the first rank's being as they are."""
    least = {rank: float("-inf") for rank in range(1, stages)}
    most = {rank: float("inf") for rank in range(1, stages)}
    for one in passings:
        room_ms = one.began_ms - one.ended_ms
        if one.destination == one.source + 1:
            least[one.destination] = max(least[one.destination], -room_ms)
        elif one.source == one.destination + 1:
            most[one.source] = min(most[one.source], room_ms)
    shift_ms, margin_ms = {0: 0.0}, 0.0
    for rank in range(1, stages):
        low, high = least[rank], most[rank]
        if low == float("-inf") or high == float("inf"):
            low = high = 0.0  # nothing binds the two: their schedules are taken to begin together
        shift_ms[rank] = shift_ms[rank - 1] + (low + high) / 2
        margin_ms = max(margin_ms, (high - low) / 2)
    return shift_ms, margin_ms
