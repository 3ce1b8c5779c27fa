"""Pairing of collectives by their order, where no counter names them (docs/math/align.md).

Order alone proves nothing. What proves it is that the signatures agree on every rank at every
position of the common window, and that no other shift of a rank would agree too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, Int64Array

LEAST_OVERLAP = 0.5
"""Of the shorter sequence: a shift that leaves less in common agrees too easily to mean anything,
and a window of which less than half is common is none that was meant to be the same."""
CLOCK_TOLERANCE_NS = 5_000_000
"""Nobody leaves before all have arrived. With each rank's clock set right by the median release,
what is left is release skew (sd up to 0.9 ms) and drift (30 us/s over a window of seconds)."""
IMPLAUSIBLE_SHARE = 0.05
"""Of the collectives that may break that rule before the pairing is taken to be wrong."""
REPETITIONS_APART = 2.5
"""By so many repetitions a launch may be counted for another step than on the other ranks."""
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """A pairing that holds.

    Attributes:
        first: (M,) for each member, the index of its first paired collective.
        length: how many are paired.
        left_out: (M,) for each member, how many lie outside the common window.
        unique: False where another shift would have agreed as well, and equal lengths decided.
    """

    first: Int64Array
    length: int
    left_out: Int64Array
    unique: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why nothing is paired, as a sentence that names the rank, the position and both sides."""

    reason: str


def align(
    ranks: Sequence[int],
    sequences: Sequence[Int64Array],
    names: Mapping[int, str],
) -> Aligned | Refused:
    """Pair the collectives of M members of one group by their order.

    Args:
        ranks: (M,) global rank of each member, for the sentences.
        sequences: for each member (L_m,) its signatures as numbers, in the order of its stream.
        names: what a number means, for the sentences.

    Source: docs/math/align.md.
    """
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    for rank, length in zip(ranks, lengths, strict=True):
        if not length:
            return Refused(reason=f"rank {rank} recorded no collective of this group")
    if not len(lengths):
        return Refused(reason="no rank recorded a collective of this group")
    reference = int(np.argmax(lengths))
    shifts = np.zeros(len(lengths), dtype=np.int64)
    unique = True
    for member, sequence in enumerate(sequences):
        if member == reference:
            continue
        fits = _shifts(sequences[reference], sequence)
        if not len(fits):
            return Refused(reason=_mismatch(ranks, sequences, reference, member, names))
        if len(fits) == 1:
            shifts[member] = fits[0]
        elif len(sequence) == lengths[reference] and 0 in fits:
            unique = False
        else:
            shown = ", ".join(str(int(shift)) for shift in fits[:3])
            return Refused(
                reason=(
                    f"the order is ambiguous: the {len(sequence)} collectives of rank "
                    f"{ranks[member]} fit the {lengths[reference]} of rank {ranks[reference]} at "
                    f"several positions ({shown})"
                )
            )
    begin, end = int(shifts.max()), int((shifts + lengths).min())
    if end - begin < max(1, LEAST_OVERLAP * int(lengths.min())):
        return Refused(
            reason="only "
            f"{counted(max(end - begin, 0), 'collective lies', 'collectives lie')} in the windows "
            "of all ranks"
        )
    return Aligned(
        first=begin - shifts,
        length=end - begin,
        left_out=lengths - (end - begin),
        unique=unique,
    )


def implausible(ranks: Sequence[int], start_ns: Int64Array, end_ns: Int64Array) -> Refused | None:
    """Return why the times contradict a pairing of barrier-like collectives, or None.

    Times only ever refuse. Each rank's clock is first set by its median release; then nobody may
    have left before another arrived.

    Args:
        ranks: (M,) global ranks.
        start_ns: (C, M) arrivals, each on its rank's clock.
        end_ns: (C, M) releases.
    """
    if start_ns.shape[0] < 2 or start_ns.shape[1] < 2:
        return None
    # About the first release, so that float64 holds differences of epoch nanoseconds exactly.
    base = end_ns[0].min()
    start, end = (start_ns - base).astype(np.float64), (end_ns - base).astype(np.float64)
    offset = median_of(end - median_of(end, axis=1, keepdims=True), axis=0)
    start, end = start - offset, end - offset
    late_by = start.max(axis=1) - end.min(axis=1)
    broken = late_by > CLOCK_TOLERANCE_NS
    if broken.mean() <= IMPLAUSIBLE_SHARE:
        return None
    worst = int(np.argmax(late_by))
    late, early = int(np.argmax(start[worst])), int(np.argmin(end[worst]))
    return Refused(
        reason=(
            f"the order agrees but the times cannot: at position {worst} rank {ranks[late]} "
            f"arrived {late_by[worst] / 1e6:.1f} ms after rank {ranks[early]} had left "
            f"({int(broken.sum())} of {len(broken)} collectives are like that)"
        )
    )


def another_repetition(
    ranks: Sequence[int], sequence: Int64Array, end_ns: Int64Array, *, numbered: bool
) -> Refused | None:
    """Return why clocks contradict that ranks began with the same repetition of an order, or None.

    Times only ever refuse. Against numbered steps the clocks count only if they are wrong by about
    one or two repetitions: of clocks that are wrong by more than that nobody expects anything.

    Args:
        ranks: (M,) global ranks.
        sequence: (C,) signatures, alike on all of them.
        end_ns: (C, M) releases by the time of day.
        numbered: whether numbers of steps told which repetition is which, not equal lengths alone.
    """
    period = _period(sequence)
    if period == 0 or end_ns.shape[1] < 2:
        return None
    took_ns = median_of(end_ns[period:, 0] - end_ns[:-period, 0])
    late_ns = median_of(end_ns - end_ns[:, :1], axis=0)
    apart_ns = float(np.ptp(late_ns))
    if apart_ns <= took_ns / 2 or (numbered and apart_ns > REPETITIONS_APART * took_ns):
        return None
    worst = int(np.argmax(np.abs(late_ns - median_of(late_ns))))
    return Refused(
        reason=(
            f"the order repeats itself every {took_ns / 1e6:,.1f} ms, and by its clock rank "
            f"{ranks[worst]} recorded it {apart_ns / 1e6:,.1f} ms apart from others: nobody can "
            "say which repetition is which"
            + ("" if numbered else "; number the steps with profiler.step()")
        )
    )


def _period(sequence: Int64Array) -> int:
    """Return the least shift by which a sequence agrees with itself, 0 if that is over half."""
    least = int(np.ceil(LEAST_OVERLAP * len(sequence)))
    fits = [int(shift) for shift in _shifts(sequence, sequence, kept=2) if shift]
    return min((abs(shift) for shift in fits if len(sequence) - abs(shift) >= least), default=0)


def _shifts(reference: Int64Array, sequence: Int64Array, kept: int = 3) -> Int64Array:
    """Return the shifts at which all that overlaps agrees; two are enough to be ambiguous.

    At shift d, ``sequence[i]`` lies at ``reference[i + d]``. Polynomial hashes of all prefixes
    compare every shift at once; what they propose is then compared in full.
    """
    long, short = len(reference), len(sequence)
    least = max(1, int(np.ceil(LEAST_OVERLAP * min(long, short))))
    shifts = np.arange(-(short - least), long - least + 1, dtype=np.int64)
    from_long, from_short = np.maximum(shifts, 0), np.maximum(-shifts, 0)
    overlap = np.minimum(long - from_long, short - from_short)
    powers = np.ones(max(long, short) + 1, dtype=np.uint64)
    np.cumprod(np.full(len(powers) - 1, _BASE), out=powers[1:])
    sums_long, sums_short = _prefix_sums(reference, powers), _prefix_sums(sequence, powers)
    left = (sums_long[from_long + overlap] - sums_long[from_long]) * powers[from_short]
    right = (sums_short[from_short + overlap] - sums_short[from_short]) * powers[from_long]
    proposed: BoolArray = left == right
    order = np.flatnonzero(proposed)
    # The shift that keeps both beginnings first, so that it is among those that are kept.
    order = order[np.argsort(np.abs(shifts[order]), kind="stable")]
    fits: list[int] = []
    for index in order:
        a, b, n = int(from_long[index]), int(from_short[index]), int(overlap[index])
        if np.array_equal(reference[a : a + n], sequence[b : b + n]):
            fits.append(int(shifts[index]))
            if len(fits) == kept:
                break
    return np.array(fits, dtype=np.int64)


def _prefix_sums(sequence: Int64Array, powers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    sums = np.zeros(len(sequence) + 1, dtype=np.uint64)
    np.cumsum(sequence.view(np.uint64) * powers[: len(sequence)], out=sums[1:])
    return sums


def _mismatch(
    ranks: Sequence[int],
    sequences: Sequence[Int64Array],
    reference: int,
    member: int,
    names: Mapping[int, str],
) -> str:
    """Say where the better of the two ends breaks off."""
    ours, theirs = sequences[reference], sequences[member]
    n = min(len(ours), len(theirs))
    head = np.append(np.flatnonzero(ours[:n] != theirs[:n]), n)[0]
    tail = np.append(np.flatnonzero(ours[::-1][:n] != theirs[::-1][:n]), n)[0]
    from_end = tail > head
    agreed = int(max(head, tail))
    if agreed >= n:  # one end agrees, but a shift of less than half the window does not exist
        return f"rank {ranks[member]} shares too little with rank {ranks[reference]}"
    here = -1 - agreed if from_end else agreed
    end = "end" if from_end else "beginning"
    return (
        f"the orders disagree: counted from the {end}, position {agreed} is "
        f"{names.get(int(theirs[here]), '?')} on rank {ranks[member]} and "
        f"{names.get(int(ours[here]), '?')} on rank {ranks[reference]} "
        f"({len(theirs)} and {counted(len(ours), 'collective')})"
    )
