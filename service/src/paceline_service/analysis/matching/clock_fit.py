"""Offsets and drifts of clocks from releases: least squares, and hard bounds.

Clocks, not ranks, are what is fitted: ranks of one host share one (docs/math/clocks.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.scores import MAD_TO_SD
from paceline_service.analysis.sets import distinct

MAX_DRIFT = 1e-4
"""Two oscillators within their specification (50 ppm each) drift apart by no more; 5 to 30 us/s
were seen on real clusters (DETECTION section 2)."""
MAX_HOPS = 64
"""How many groups a clock may be away from its reference; beyond it stays unknown."""
MAX_COMPONENTS = 64
"""Sets of ranks without a common collective that get a reference of their own."""
ROUNDS = 4
ITERATIONS = 60
HUBER = 1.5
"""Residuals beyond so many deviations weigh less: a rank that was descheduled at its release."""
LEAST_FOR_DRIFT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """M rows of barrier-like collectives of one step, one instance's rows together."""

    rank: Int64Array
    instance: NDArray[np.intp]
    arrival_ns: Int64Array
    release_ns: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """What was fitted for each of K clocks.

    Attributes:
        reference: (K,) lowest rank of the component, -1 where nothing is known.
        is_reference: (K,) the clock of that rank.
        base_ns: (K,) whole part of the offset.
        shift_ns: (K,) the rest of it, at the newest release.
        drift: (K,) seconds per second.
        error_ns: (K,) standard error of the offset at the newest release.
        at_ns: (K,) that release on the clock itself.
    """

    reference: Int64Array
    is_reference: BoolArray
    base_ns: Int64Array
    shift_ns: FloatArray
    drift: FloatArray
    error_ns: FloatArray
    at_ns: Int64Array

    @property
    def offset_ns(self) -> FloatArray:
        """Offset relative to ``base_ns``, (K,)."""
        return self.shift_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    clock: Int64Array
    instance: Int64Array
    release_ns: Int64Array


def fit_offsets(kept: list[Releases], clock: Int64Array, first_rank: Int64Array) -> ClockFit:
    """Fit an offset and a drift to every clock.

    All members of a collective are released by one event at an unknown true time, so

        release(k, c) = true(c) + base(k) + shift(k) + drift(k) * time(c) + noise

    is solved by weighted least squares (conjugate gradients on the normal equations with the
    true times eliminated), reweighted after Huber.

    Args:
        kept: releases of several steps, in order.
        clock: (R,) number of each rank's clock.
        first_rank: (K,) lowest rank of each clock.
    """
    clocks = len(first_rank)
    rows = _stack(kept, clock)
    base, root = _walk(rows, clocks, first_rank)
    none = np.zeros(clocks)
    reference = np.where(root >= 0, first_rank[np.maximum(root, 0)], -1)
    is_reference = root == np.arange(clocks)
    used = root[rows.clock] >= 0
    rows = _Rows(clock=rows.clock[used], instance=rows.instance[used],
                 release_ns=rows.release_ns[used])  # fmt: skip
    at = np.zeros(clocks, dtype=np.int64)
    if not len(rows.clock):
        return ClockFit(
            reference=reference,
            is_reference=is_reference,
            base_ns=base,
            shift_ns=none,
            drift=none,
            error_ns=none,
            at_ns=at,
        )
    np.maximum.at(at, rows.clock, rows.release_ns)
    on_reference = rows.release_ns - base[rows.clock]
    newest = np.zeros(clocks, dtype=np.int64)
    newest[:] = np.iinfo(np.int64).min
    np.maximum.at(newest, root[rows.clock], on_reference)
    since = (on_reference - newest[root[rows.clock]]).astype(np.float64)  # <= 0
    scale = max(float(-since.min()), 1.0)
    count = np.bincount(rows.clock, minlength=clocks)
    drifts = bool(count.max() >= LEAST_FOR_DRIFT)
    # One time for all members of a collective, or it would explain their differences itself.
    time = (np.bincount(rows.instance, weights=since) / np.maximum(np.bincount(rows.instance), 1))[
        rows.instance
    ]
    value = since - time
    time = time / scale
    weight = np.ones(len(value))
    solution = np.zeros((2, clocks))
    spread = 0.0
    for _ in range(ROUNDS):
        solution = _solve(rows, value, weight, time, clocks, drifts, solution)
        residual = _centre(rows, weight, value - _model(rows, solution, time))
        spread = MAD_TO_SD * float(median_of(np.abs(residual - median_of(residual))))
        if spread <= 0:
            break
        weight = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residual), 1e-9))
    shift = solution[0] - solution[0][np.maximum(root, 0)]
    drift = (solution[1] - solution[1][np.maximum(root, 0)]) / scale
    # The end of a fitted line is known to 2 s / sqrt(n), a mean to s / sqrt(n); both ends count.
    squared = (4.0 if drifts else 1.0) * spread**2 / np.maximum(count, 1)
    error = np.sqrt(squared + squared[np.maximum(root, 0)])
    known = root >= 0
    return ClockFit(
        reference=reference,
        is_reference=is_reference,
        base_ns=base,
        shift_ns=np.where(known, shift, 0.0),
        drift=np.where(known, drift, 0.0),
        error_ns=np.where(is_reference, 0.0, error),
        at_ns=np.where(known, at, 0),
    )


def bounds_of(
    kept: list[Releases], clock: Int64Array, fit: ClockFit
) -> tuple[FloatArray, FloatArray]:
    """Return the hard bounds of each clock's offset less ``base_ns``, (K,) each; may be infinite.

    Nobody is released before everybody has arrived, so for members i and j of a collective
    ``a_i - e_j <= o_i - o_j <= e_i - a_j``. The bounds of the reference are 0; every collective
    passes them on, and between collectives they widen by ``MAX_DRIFT``.
    """
    clocks = len(fit.base_ns)
    known = fit.reference >= 0
    low = np.where(fit.is_reference, 0.0, -np.inf)
    high = np.where(fit.is_reference, 0.0, np.inf)
    before = None
    for releases in kept:
        of = clock[releases.rank]
        inside = known[of]
        if not inside.any():
            continue
        of, _, first = of[inside], *_segments(releases.instance[inside])
        segment = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(of))))
        arrival = (releases.arrival_ns[inside] - fit.base_ns[of]).astype(np.float64)
        release = (releases.release_ns[inside] - fit.base_ns[of]).astype(np.float64)
        now = median_of(release)
        if before is not None:
            widened = MAX_DRIFT * abs(now - before)
            low = np.where(fit.is_reference, 0.0, low - widened)
            high = np.where(fit.is_reference, 0.0, high + widened)
        before = now
        for _ in range(2):  # a hop each; further ones follow with the next steps
            top = release + np.minimum.reduceat(high[of] - arrival, first)[segment]
            bottom = arrival + np.maximum.reduceat(low[of] - release, first)[segment]
            np.minimum.at(high, of, top)
            np.maximum.at(low, of, bottom)
        low[fit.is_reference] = high[fit.is_reference] = 0.0
    return low[:clocks], high[:clocks]


def _stack(kept: list[Releases], clock: Int64Array) -> _Rows:
    instance, begin = [], 0
    for releases in kept:
        instance.append(releases.instance + begin)
        begin += int(releases.instance.max(initial=-1)) + 1
    if not kept:
        empty = np.zeros(0, dtype=np.int64)
        return _Rows(clock=empty, instance=empty, release_ns=empty)
    return _Rows(
        clock=clock[np.concatenate([releases.rank for releases in kept])],
        instance=np.concatenate(instance).astype(np.int64),
        release_ns=np.concatenate([releases.release_ns for releases in kept]),
    )


def _walk(rows: _Rows, clocks: int, first_rank: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return a first offset of each clock (ns) and the root of its component, -1 unreached.

    From the lowest rank on, a collective with a clock that is known makes known the others.
    """
    base = np.zeros(clocks, dtype=np.int64)
    root = np.full(clocks, -1, dtype=np.int64)
    if not len(rows.clock):
        return base, root
    first = _segments(rows.instance)[1]
    seen = distinct(rows.clock)
    for _ in range(MAX_COMPONENTS):
        unknown = seen[root[seen] < 0]
        if not len(unknown):
            break
        start = int(unknown[np.argmin(first_rank[unknown])])
        root[start] = start
        for _ in range(MAX_HOPS):
            here = root[rows.clock] == start
            # One known member of each instance stands for the event.
            pick = np.minimum.reduceat(np.where(here, np.arange(len(here)), len(here)), first)
            event = np.full(len(pick), 0, dtype=np.int64)
            found = pick < len(here)
            at = pick[found]
            event[found] = rows.release_ns[at] - base[rows.clock[at]]
            new = np.flatnonzero((root[rows.clock] < 0) & found[rows.instance])
            if not len(new):
                break
            base[rows.clock[new]] = rows.release_ns[new] - event[rows.instance[new]]
            root[rows.clock[new]] = start
    return base, root


def _segments(instance: NDArray[np.intp] | Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the numbers and first rows of instances whose rows lie together."""
    first = np.flatnonzero(np.append(True, np.diff(instance) != 0))
    return np.asarray(instance[first], dtype=np.int64), first.astype(np.int64)


def _centre(rows: _Rows, weight: FloatArray, value: FloatArray) -> FloatArray:
    """Return values less the weighted mean of their instance: the true time drops out."""
    total = np.bincount(rows.instance, weights=weight)
    mean = np.bincount(rows.instance, weights=weight * value) / np.maximum(total, 1e-30)
    return np.asarray(value - mean[rows.instance])


def _model(rows: _Rows, solution: FloatArray, time: FloatArray) -> FloatArray:
    return np.asarray(solution[0][rows.clock] + solution[1][rows.clock] * time)


def _solve(
    rows: _Rows, value: FloatArray, weight: FloatArray, time: FloatArray, clocks: int,
    drifts: bool, start: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return (2, K) shifts and slopes by conjugate gradients from ``start``."""

    def transposed(residual: FloatArray) -> FloatArray:
        weighted = weight * residual
        out = np.zeros((2, clocks))
        out[0] = np.bincount(rows.clock, weights=weighted, minlength=clocks)
        if drifts:
            out[1] = np.bincount(rows.clock, weights=weighted * time, minlength=clocks)
        return out

    def normal(x: FloatArray) -> FloatArray:
        return transposed(_centre(rows, weight, _model(rows, x, time)))

    x = start.copy()
    residual = transposed(_centre(rows, weight, value - _model(rows, x, time)))
    direction = residual.copy()
    power = float((residual**2).sum())
    enough = power * 1e-20
    for _ in range(ITERATIONS):
        if power <= max(enough, 1e-12):
            break
        image = normal(direction)
        curvature = float((direction * image).sum())
        if curvature <= 0:
            break
        step = power / curvature
        x = x + step * direction
        residual = residual - step * image
        after = float((residual**2).sum())
        direction = residual + after / power * direction
        power = after
    return x
