"""Does a class of transfers take longer than before, or than its siblings? (docs/math/network.md).

Each class learns a level that its healthy steps exceed in at most one of ten, whatever the shape
of their noise, and then bets on exceeding it:

    R <- (1 + R) w,    w = p1/p0 where exceeded, (1 - p1)/(1 - p0) where not

As long as P(exceeded | past) <= p0, w has mean <= 1 and R - t is a supermartingale, so alarming
at R >= C gamma gives at least gamma steps between false alarms of all C classes together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.scores import MAD_TO_SD
from paceline_service.analysis.sets import distinct

LEARNING = (32, 64, 128)
"""Steps after which a class learns its levels, again only while nothing speaks against it; then
they stay, or a creeping fault would be absorbed."""
BLOCK = 16
"""Steps whose mean is one more observation: it shows shifts of a quarter of the spread of one."""
LEAST_SHIFT = float(np.log(1.05))
"""Transfers less than 5 % slower are nobody's trouble: a quarter of all time in communication
would make that 1 % of the job."""
LEAST_SIBLING_SHIFT = float(np.log(1.5))
"""Healthy siblings differ: other rails, other leaf switches, other hops."""
DEVIATIONS = 3.0
"""A level lies this many deviations above the centre, plus this many errors of the centre: t3
tails exceed it in 2 % of steps, correlated noise learned from 32 steps in a few percent."""
FAR_DEVIATIONS = 6.0
MILD_DEVIATIONS = 1.0
"""Exceeded by 16 % of normal values: small shifts show in many steps, not in large ones."""
LEAST_BEFORE = 8
LEAST_AFTER = 4
SPLIT_DEVIATIONS = 3.0
"""Four slow steps at the end of 32 give 3.1; a false split only learns from fewer steps."""
CENTRE_ERROR = 1.2533
"""Error of a median over that of a mean, for normal values."""
MAX_CORRELATION = 0.9
CEILING = 1e250

NEAR, FAR, BLOCKS, MILD, SIBLINGS = range(5)
BETS = 5
ALLOWED = np.array([0.1, 0.02, 0.1, 0.3, 0.1])
"""p0: how often a healthy class may exceed each level."""
EXPECTED = np.array([0.8, 0.8, 0.8, 0.9, 0.8])
"""p1: how often a slow one does. The bet grows if it really exceeds in more than 42 % of the
steps (near, blocks), 27 % (far) or 64 % (mild)."""
GAIN = EXPECTED / ALLOWED
LOSS = (1 - EXPECTED) / (1 - ALLOWED)
CLOSING_ODDS = 20.0
"""Log-likelihood ratio for 'as before' that ends an episode: 14 steps in a row."""
_RECOVERY_STEP = float(np.log((1 - ALLOWED[NEAR]) / (1 - EXPECTED[NEAR])))

STATE = np.dtype(
    [
        ("observed", "i8"), ("learned", "?"), ("centre", "f8"), ("levels", "f8", (4,)),
        ("clip", "f8"), ("every", "i8"), ("block_sum", "f8"), ("block_count", "i8"),
        ("evidence", "f8", (BETS,)), ("slow", "?"), ("by_sibling", "?"),
        ("recovery", "f8"), ("polled", "?"), ("last_seen", "i8"),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What C classes take in good health, log units.

    Attributes:
        centre: (C,) median log transfer.
        levels: (C, 4) shifts that are exceeded by chance as rarely as ``ALLOWED``: near, far,
            of block means, mild.
        clip: (C,) larger shifts count as this much in a block.
        every: (C,) bet on every so many steps: noise that lasts is one observation.
    """

    centre: FloatArray
    levels: FloatArray
    clip: FloatArray
    every: Int64Array


LEVELS = ("centre", "levels", "clip", "every")


def levels_of(values: FloatArray, least: FloatArray) -> Levels:
    """Return what C classes take in good health.

    Args:
        values: (C, n) log transfers of the learning steps.
        least: (C,) smallest shift that is of interest, log units.
    """
    count = values.shape[1]
    centre = median_of(values, axis=1)
    residual = values - centre[:, None]
    spread = MAD_TO_SD * median_of(np.abs(residual), axis=1)
    clip = np.maximum(4 * spread, 2 * least)
    tame = np.clip(residual, -clip[:, None], clip[:, None])
    deviation = tame.std(axis=1)
    correlation = _correlation(tame)
    lasting = np.sqrt((1 + correlation) / (1 - correlation))
    with np.errstate(divide="ignore"):
        half_life = np.log(0.5) / np.log(correlation)
    error = CENTRE_ERROR * np.maximum(spread, deviation) * lasting / np.sqrt(count)
    near = np.maximum(DEVIATIONS * np.maximum(spread, 0.8 * deviation) + DEVIATIONS * error, least)
    far = np.maximum(FAR_DEVIATIONS * spread + DEVIATIONS * error, 2 * least)
    mild = np.maximum(MILD_DEVIATIONS * np.maximum(spread, 0.8 * deviation) + 2 * error, least)
    often, high = np.quantile(residual, [0.8, 0.95], axis=1)
    top = residual.max(axis=1)
    block = DEVIATIONS * (deviation * lasting / np.sqrt(BLOCK) + error)
    levels = np.stack(
        [
            np.maximum(near, high + least / 2),
            np.maximum(far, top + least / 2),
            tame.mean(axis=1) + np.maximum(block, least),
            np.maximum(mild, often + least / 2),
        ],
        axis=1,
    )
    every = np.maximum(np.ceil(half_life), 1).astype(np.int64)
    return Levels(centre=centre, levels=levels, clip=clip, every=every)


def fault_begins(values: FloatArray, least: FloatArray) -> NDArray[np.intp]:
    """Return where each class became slow while it was being learned, (C,); n where it did not.

    The split before which the values rank lowest (Mann-Whitney, the largest over all splits)
    counts if it stands ``SPLIT_DEVIATIONS`` apart and the shift is of interest. What lies before
    it is learned; what follows must convince like everything else.
    """
    classes, count = values.shape
    begins = np.full(classes, count, dtype=np.intp)
    split = np.arange(LEAST_BEFORE, count - LEAST_AFTER + 1)
    if not len(split):
        return begins
    rank = np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1) + 1.0
    after = count - split
    tail = (rank.sum(axis=1, keepdims=True) - np.cumsum(rank, axis=1))[:, split - 1]
    statistic = tail - after * (count + 1) / 2
    deviation = statistic / np.sqrt(split * after * (count + 1) / 12)
    best = np.argmax(deviation, axis=1)
    largest = deviation[np.arange(classes), best]
    for row in np.flatnonzero(largest >= SPLIT_DEVIATIONS):
        before, since = values[row, : split[best[row]]], values[row, split[best[row]] :]
        flat = np.concatenate([before - before.mean(), since - since.mean()])
        correlation = float(_correlation(flat[None, :])[0])
        if largest[row] < SPLIT_DEVIATIONS * np.sqrt((1 + correlation) / (1 - correlation)):
            continue  # noise that lasts wanders as far
        spread = MAD_TO_SD * median_of(np.abs(before - median_of(before)))
        shift = median_of(since) - median_of(before)
        if shift > max(float(least[row]), FAR_DEVIATIONS * float(spread)):
            begins[row] = split[best[row]]
    return begins


def _correlation(residual: FloatArray) -> FloatArray:
    """Return the lag-1 autocorrelation of each row, within 0 and ``MAX_CORRELATION``.

    That of n values is too small by (1 + 4 rho) / n on average (Marriott and Pope 1954).
    """
    centred = residual - residual.mean(axis=1, keepdims=True)
    power = (centred**2).sum(axis=1)
    product = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    ratio = np.divide(product, power, out=np.zeros(len(power)), where=power > 0)
    unbiased = ratio + np.where(ratio > 0, (1 + 4 * ratio) / residual.shape[1], 0.0)
    return np.asarray(np.clip(unbiased, 0.0, MAX_CORRELATION))


class Evidence:
    """What is held against each of C classes; ``state`` has the fields of ``STATE``, (C,)."""

    def __init__(self) -> None:
        self.state = np.zeros(0, dtype=STATE)
        self._values = np.zeros((0, LEARNING[-1]), dtype=np.float32)

    def grow(self, classes: int) -> None:
        """Make room for ``classes`` classes."""
        more = classes - len(self.state)
        if more > 0:
            self.state = np.concatenate([self.state, np.zeros(more, dtype=STATE)])
            fresh = np.zeros((more, LEARNING[-1]), dtype=np.float32)
            self._values = np.concatenate([self._values, fresh])

    def update(
        self, seen: NDArray[np.intp], value: FloatArray, beside: FloatArray, least: FloatArray
    ) -> None:
        """Take one step.

        Args:
            seen: (n,) classes with transfers in this step, each once.
            value: (n,) mean log transfer.
            beside: (n,) how far each lies above the level of its siblings, log units; NaN
                where it has none.
            least: (n,) smallest shift that is of interest, log units.
        """
        state = self.state
        observed = state["observed"][seen]
        learned = state["learned"][seen]
        evidence = state["evidence"][seen]
        excess = value - state["centre"][seen]
        due = learned & (observed % np.maximum(state["every"][seen], 1) == 0)
        for row in (NEAR, FAR, MILD):
            _bet(evidence, row, due, excess > state["levels"][seen, row])
        clip = state["clip"][seen]
        sums = state["block_sum"][seen] + np.where(learned, np.clip(excess, -clip, clip), 0.0)
        count = state["block_count"][seen] + learned
        full = count >= BLOCK
        _bet(evidence, BLOCKS, full, sums / BLOCK > state["levels"][seen, BLOCKS])
        state["block_sum"][seen] = np.where(full, 0.0, sums)
        state["block_count"][seen] = np.where(full, 0, count)
        with np.errstate(invalid="ignore"):
            _bet(evidence, SIBLINGS, ~np.isnan(beside), beside > 0)
        state["evidence"][seen] = evidence
        learning = observed < LEARNING[-1]
        self._values[seen[learning], observed[learning]] = value[learning]
        state["observed"][seen] = observed + 1
        for count_needed in LEARNING:
            due = observed + 1 == count_needed
            if due.any():
                self._learn(seen[due], count_needed, least[due])

    def _learn(self, classes: NDArray[np.intp], count: int, least: FloatArray) -> None:
        calm = (self.state["evidence"][classes].mean(axis=1) <= count) & ~self.state["slow"][
            classes
        ]
        calm |= ~self.state["learned"][classes]  # levels for the first time
        classes, least = classes[calm], least[calm]
        if not len(classes):
            return
        values = self._values[classes, :count].astype(np.float64)
        whole = levels_of(values, least)
        healthy = {name: getattr(whole, name) for name in LEVELS}
        fault = fault_begins(values, least)
        for begin in distinct(fault[fault < count]):  # at most one turn per learning step
            part = fault == begin
            before = levels_of(values[part, :begin], least[part])
            for name in LEVELS:
                healthy[name][part] = getattr(before, name)
        state = self.state
        for name in LEVELS:
            state[name][classes] = healthy[name]
        state["learned"][classes] = True
        state["block_sum"][classes] = 0.0
        state["block_count"][classes] = 0

    def level(self, classes: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the log transfer of each class in good health and its standard error.

        NaN where nothing was seen.
        """
        state = self.state[classes]
        seen = np.minimum(state["observed"], LEARNING[-1])
        values = self._values[classes].astype(np.float64)
        values[np.arange(LEARNING[-1]) >= seen[:, None]] = np.nan
        level = np.full(len(classes), np.nan)
        error = np.full(len(classes), np.nan)
        some = np.flatnonzero(seen > 0)
        level[some] = _median_of_first(values[some], seen[some])
        level = np.where(state["learned"], state["centre"], level)
        deviation = np.abs(values[some] - level[some, None])
        spread = MAD_TO_SD * _median_of_first(deviation, seen[some])
        error[some] = CENTRE_ERROR * spread / np.sqrt(seen[some])
        return level, error

    def total(self, classes: NDArray[np.intp] | slice = slice(None)) -> FloatArray:
        """Return the evidence against each class: the mean of its bets."""
        return np.asarray(self.state["evidence"][classes].mean(axis=1))

    def watched(self) -> int:
        """Return C, the number of classes that may be named."""
        return int((self.state["learned"] | (self.state["evidence"][:, SIBLINGS] > 0)).sum())

    def open(self, classes: NDArray[np.intp]) -> None:
        """Name ``classes``: from now on they are asked whether they have recovered."""
        evidence = self.state["evidence"][classes]
        self.state["slow"][classes] = True
        self.state["recovery"][classes] = 0.0
        self.state["by_sibling"][classes] = evidence.argmax(axis=1) == SIBLINGS

    def follow(self, classes: NDArray[np.intp], slow: BoolArray) -> NDArray[np.intp]:
        """Ask named ``classes`` whether they were slow in this step; return those that ended."""
        step = np.where(slow, -_RECOVERY_STEP, _RECOVERY_STEP)
        recovery = np.maximum(self.state["recovery"][classes] + step, 0.0)
        self.state["recovery"][classes] = recovery
        ended = classes[recovery >= CLOSING_ODDS]
        self.state["slow"][ended] = False
        self.state["evidence"][ended] = 0.0
        return np.asarray(ended)


def _median_of_first(values: FloatArray, count: Int64Array) -> FloatArray:
    """Return the median of the first ``count`` values of each row; the others are NaN."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    row = np.arange(len(values))
    return np.asarray((ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2)


def _bet(evidence: FloatArray, row: int, where: BoolArray, exceeded: BoolArray) -> None:
    weight = np.where(exceeded, GAIN[row], LOSS[row])
    after = np.minimum((1.0 + evidence[:, row]) * weight, CEILING)
    evidence[:, row] = np.where(where, after, evidence[:, row])


def least_shift(transfer_ns: FloatArray, floor_ns: FloatArray, binned: BoolArray,
                bin_width: float) -> FloatArray:  # fmt: skip
    """Return the smallest shift of each class that is of interest, log units.

    Five percent, or what can be resolved (``floor_ns``), and for a bin of sizes besides what
    its sizes differ by.
    """
    resolved = np.log1p(floor_ns / np.maximum(transfer_ns, 1.0))
    return np.asarray(np.maximum(LEAST_SHIFT, resolved) + np.where(binned, bin_width, 0.0))


def median_of_sets(value: FloatArray, sets: Int64Array) -> tuple[FloatArray, FloatArray]:
    """Return the median of each value's set and the set's spread, both (n,).

    Args:
        value: (n,).
        sets: (n,) number of the set; -1 belongs to none, and gets NaN.
    """
    centre = np.full(len(value), np.nan)
    spread = np.full(len(value), np.nan)
    inside = np.flatnonzero(sets >= 0)
    if not len(inside):
        return centre, spread
    _, of = np.unique(sets[inside], return_inverse=True)
    centre[inside] = _medians(value[inside], of)[of]
    spread[inside] = MAD_TO_SD * _medians(np.abs(value[inside] - centre[inside]), of)[of]
    return centre, spread


def _medians(value: FloatArray, of: NDArray[np.intp]) -> FloatArray:
    ordered = value[np.lexsort((value, of))]
    count = np.bincount(of)
    begin = np.cumsum(count) - count
    return np.asarray((ordered[begin + (count - 1) // 2] + ordered[begin + count // 2]) / 2)
