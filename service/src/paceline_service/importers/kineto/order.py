"""Pairs the collectives of one group by their order, as far as that is proved (align.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.vocabulary import BARRIER_LIKE_OPS, Op
from paceline_service.analysis.matching.align import (
    LEAST_OVERLAP,
    Aligned,
    Refused,
    align,
    another_repetition,
    implausible,
)
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import one_of
from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.rank import RankTimeline

_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_UNEVEN = frozenset({Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.UNKNOWN})
"""Operations whose ranks may move different amounts, and so launch different grids."""
STEPS_AGREE = 0.9
"""Of the positions of an order that repeats itself: shifted by a repetition none would agree."""
STEPS_WHOLE = 0.5
"""Of the steps in the windows of all members: where fewer agree, the numbers differ in meaning."""
_NOT_UNIQUE = (
    "the order repeats itself, so a window that began later by a whole repetition on one "
    "rank would look the same; as all have equally many, all are taken to begin together"
)


class Proof(Enum):
    """What tells which collectives belong together, the strongest first."""

    NUMBERS = "the numbers that the process group gave"
    ORDER = "an order that fits in one way only"
    STEPS = "an order that repeats itself, with the numbers of the steps"
    LENGTHS = "an order that repeats itself, as often on all ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A group, and in it one direction of point-to-point transfers (-1: collectives)."""

    name: str
    ranks: tuple[int, ...]
    source: int = -1
    destination: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """C collectives of one group on M members.

    Attributes:
        members: (M,) global ranks that have a trace.
        rows: (C, M) index into each member's calls.
        op: (C,) the operation; UNKNOWN where no member tells it.
        proof: what tells which belong together.
        assumed: whether the members were assumed, because no trace names groups.
        note: what a reader should know of the pairing; may be empty.
    """

    key: GroupKey
    members: Int64Array
    rows: NDArray[np.intp]
    op: Int64Array
    left_out: dict[int, int]
    proof: Proof
    assumed: bool
    note: str = ""

    @property
    def barrier_like(self) -> NDArray[np.bool_]:
        """(C,) which of them no rank can leave before every rank has arrived."""
        return one_of(self.op, _BARRIER_LIKE)


_Found = tuple[NDArray[np.intp], Proof, str]


def pair_group(
    key: GroupKey,
    by_rank: Mapping[int, list[int]],
    timelines: Mapping[int, RankTimeline],
    *,
    counted: bool = True,
) -> Paired | Refused:
    """Pair the collectives of one group.

    Args:
        key: the group, and the direction of transfers.
        by_rank: rows of each member's calls.
        timelines: by rank.
        counted: whether the numbers that the group gave mean the same on all members. Sends and
            receives count for each rank by itself, and batches of them move the numbers on.
    """
    ranks = sorted(by_rank)
    views = [timelines[rank] for rank in ranks]
    rows = [np.array(by_rank[rank], dtype=np.intp) for rank in ranks]
    found = _in_order(key, ranks, rows, views, counted and key.source < 0)
    if isinstance(found, Refused):
        return found
    table, proof, note = found
    if proof == Proof.STEPS and len(table) == 1 < max(map(len, rows)):
        # Its step alone speaks for it, and times could not contradict.
        return Refused(reason="only 1 collective lies in the windows of all ranks")
    if proof in (Proof.STEPS, Proof.LENGTHS):
        problem = _by_clocks(ranks, views, table, proof)
        if problem is not None:
            return problem
    ops, start, end = (
        np.stack([column[table[:, i]] for i, column in enumerate(columns)], axis=1)
        for columns in (
            [view.calls.op for view in views],
            [view.calls.start_ns for view in views],
            [view.calls.end_ns for view in views],
        )
    )
    op = ops.max(axis=1)
    contradicting = (ops != op[:, None]) & (ops != Op.UNKNOWN)
    if key.source < 0 and contradicting.any():
        position, member = (int(x) for x in np.argwhere(contradicting)[0])
        other = int(np.argmax(ops[position]))
        return Refused(
            reason=f"the calls disagree: position {position} is {_op(ops[position, member])} on "
            f"rank {ranks[member]} and {_op(op[position])} on rank {ranks[other]}"
        )
    barrier = one_of(op, _BARRIER_LIKE)
    problem = implausible(ranks, start[barrier], end[barrier])
    if problem is not None:
        return problem
    assumed = not any(
        view.trace.groups or view.calls.labels[int(table[0, i])].group_name
        for i, view in enumerate(views)
    )
    left_out = {rank: len(own) - len(table) for rank, own in zip(ranks, rows, strict=True)}
    return Paired(
        key=key, members=np.array(ranks, dtype=np.int64), rows=table, op=op, assumed=assumed,
        left_out={rank: count for rank, count in left_out.items() if count}, proof=proof, note=note,
    )  # fmt: skip


def _in_order(
    key: GroupKey,
    ranks: Sequence[int],
    rows: Sequence[NDArray[np.intp]],
    views: Sequence[RankTimeline],
    counted: bool,
) -> _Found | Refused:
    """Return (C, M) paired rows, what proves them, and a remark.

    By the numbers that the process group gave, where each has its own; else by signature alone
    where that is unique; else by signature and number of the step; else, where a record was lost,
    by the steps that are whole on all members.
    """
    texts, steps, numbers = _described(key, rows, views, counted)
    if numbers:
        return _by_number(ranks, rows, texts, numbers)
    by_order = _align_texts(ranks, texts)
    if isinstance(by_order, Aligned) and by_order.unique:
        return _table(rows, by_order), Proof.ORDER, ""
    if not all(view.numbered for view in views):
        if isinstance(by_order, Refused):
            return by_order
        return _table(rows, by_order), Proof.LENGTHS, _NOT_UNIQUE
    by_step = _align_texts(ranks, _anchored(texts, steps))
    if isinstance(by_step, Aligned):
        return _table(rows, by_step), Proof.STEPS, ""
    if isinstance(by_order, Aligned):
        found = np.stack([n[i] for n, i in zip(steps, _picks(by_order), strict=True)])
        # A launch at the very edge of a step may count for the next one on some rank.
        if (found == found[0]).mean(axis=1).min() >= STEPS_AGREE:
            return _table(rows, by_order), Proof.STEPS, ""
        return Refused(
            reason="the order repeats itself, and the numbers of the steps do not tell which "
            "repetition is which: the ranks issued the same collectives in different steps"
        )
    return _whole_steps(ranks, rows, texts, steps, by_step)


def _whole_steps(
    ranks: Sequence[int],
    rows: Sequence[NDArray[np.intp]],
    texts: Sequence[list[str]],
    steps: Sequence[Int64Array],
    refusal: Refused,
) -> _Found | Refused:
    """Pair the steps whose collectives agree from first to last on all members."""
    seen = [{int(n) for n in own if n >= 0} for own in steps]
    if not all(seen):
        return refusal
    first, last = max(map(min, seen)), min(map(max, seen))
    common = [step for step in sorted(set.union(*seen)) if first <= step <= last]
    kept: list[NDArray[np.intp]] = []
    whole = 0
    for step in common:
        mine = [np.flatnonzero(own == step) for own in steps]
        pattern = [texts[0][i] for i in mine[0]]
        if all([own[i] for i in index] == pattern for own, index in zip(texts, mine, strict=True)):
            kept.append(np.stack([r[i] for r, i in zip(rows, mine, strict=True)], axis=1))
            whole += 1
    if whole < max(2, STEPS_WHOLE * len(common)):
        return refusal
    if not _only_lost(common, steps):
        return refusal
    note = f"paired in {whole} of {counted(len(common), 'step')}, because {refusal.reason}"
    return np.concatenate(kept), Proof.STEPS, note


def _only_lost(common: Sequence[int], steps: Sequence[Int64Array]) -> bool:
    """Whether the steps differ as if records were lost, and not as if they were in other steps.

    A collective that is counted for the next step is missing in one and too many in another; a lost
    one stays missing. The rank with the most is what the others are compared with.
    """
    counts = np.array([[int((own == step).sum()) for step in common] for own in steps])
    behind = counts - counts[np.argmax(counts.sum(axis=1))]
    return bool(((behind >= 0).all(axis=1) | (behind <= 0).all(axis=1)).all())


def _by_number(
    ranks: Sequence[int],
    rows: Sequence[NDArray[np.intp]],
    texts: Sequence[list[str]],
    numbers: Sequence[Int64Array],
) -> _Found | Refused:
    """Pair what has one number on all members, if its signatures agree everywhere."""
    common = numbers[0]
    for own in numbers[1:]:
        common = np.intersect1d(common, own, assume_unique=True)
    least = min(len(own) for own in numbers)
    if len(common) < max(1, LEAST_OVERLAP * least):
        return Refused(
            reason=f"the process group's own numbers have only {len(common)} of {least} "
            "collectives in common on all ranks"
        )
    table = []
    for rank, mine, own, signs in zip(ranks, rows, numbers, texts, strict=True):
        index = np.searchsorted(own, common)
        table.append(mine[index])
        for number, here, there in zip(
            common.tolist(), index, np.searchsorted(numbers[0], common), strict=True
        ):
            if signs[here] != texts[0][there]:
                return Refused(
                    reason=f"number {number} of the group is {signs[here]} on rank {rank} and "
                    f"{texts[0][there]} on rank {ranks[0]}"
                )
    return np.stack(table, axis=1), Proof.NUMBERS, ""


def _described(
    key: GroupKey,
    rows: Sequence[NDArray[np.intp]],
    views: Sequence[RankTimeline],
    numbered: bool,
) -> tuple[list[list[str]], list[Int64Array], list[Int64Array]]:
    """Return signature and number of the step of each collective, by member; and its own number.

    There are no numbers unless all have one and each collective one of its own.
    """
    labels = [[view.calls.labels[i] for i in r] for view, r in zip(views, rows, strict=True)]
    counted = all(label.elements >= 0 for own in labels for label in own)
    in_sequence = numbered and all(label.seq >= 0 for own in labels for label in own)
    numbers = [np.array([label.seq for label in own], dtype=np.int64) for own in labels]
    ascending = in_sequence and all(len(own) and (np.diff(own) > 0).all() for own in numbers)
    texts, steps = [], []
    for view, mine, own in zip(views, rows, labels, strict=True):
        signs = [_signature(view, int(i), label, key, counted) for i, label in
                 zip(mine, own, strict=True)]  # fmt: skip
        if in_sequence and not ascending:  # they began again, or serve several kernels each
            signs = [f"{sign}, number {label.seq}" for sign, label in zip(signs, own, strict=True)]
        texts.append(signs)
        step = view.call_step[mine]
        steps.append(np.where(step >= 0, view.steps[np.maximum(step, 0)], -1))
    return texts, steps, numbers if ascending else []


def _by_clocks(
    ranks: Sequence[int], views: Sequence[RankTimeline], table: NDArray[np.intp], proof: Proof
) -> Refused | None:
    """Return why the time of day speaks against an order that repeats itself, or None."""
    told = {
        i: offset for i, v in enumerate(views) if (offset := v.trace.wall_offset_ns) is not None
    }
    if not told:
        return None
    calls, numbers = views[0].calls, dict[tuple[str, int], int]()
    signs = [
        numbers.setdefault((calls.what[row], int(calls.grid[row])), len(numbers))
        for row in table[:, 0].tolist()
    ]
    end = [views[i].calls.end_ns[table[:, i]] + offset for i, offset in told.items()]
    return another_repetition(
        [ranks[i] for i in told], np.array(signs, dtype=np.int64), np.stack(end, axis=1),
        numbered=proof == Proof.STEPS,
    )  # fmt: skip


def _anchored(texts: Sequence[list[str]], steps: Sequence[Int64Array]) -> list[list[str]]:
    return [
        [f"{text} of step {number}" for text, number in zip(own, numbers.tolist(), strict=True)]
        for own, numbers in zip(texts, steps, strict=True)
    ]


def _picks(found: Aligned) -> list[slice]:
    return [slice(f, f + found.length) for f in found.first.tolist()]


def _table(rows: Sequence[NDArray[np.intp]], found: Aligned) -> NDArray[np.intp]:
    return np.stack([r[i] for r, i in zip(rows, _picks(found), strict=True)], axis=1)


def _align_texts(ranks: Sequence[int], texts: Sequence[list[str]]) -> Aligned | Refused:
    numbers: dict[str, int] = {}
    sequences = [
        np.array([numbers.setdefault(text, len(numbers)) for text in own], dtype=np.int64)
        for own in texts
    ]
    return align(ranks, sequences, {number: text for text, number in numbers.items()})


def _signature(view: RankTimeline, row: int, label: Label, key: GroupKey, counted: bool) -> str:
    """Return what must be the same on every rank; only what every rank tells takes part."""
    calls = view.calls
    if key.source >= 0:
        return f"transfer of {label.elements} elements" if counted else "transfer"
    text = calls.what[row]
    uneven = Op(int(calls.op[row])) in _UNEVEN or "sendrecv" in text.lower()
    if not uneven and calls.grid[row] >= 0:
        text += f" of {int(calls.grid[row])} blocks"
    if not uneven and counted:
        # Ranks may bring unequal parts to an all-gather; what comes out is the same.
        gathers = Op(int(calls.op[row])) == Op.ALL_GATHER
        text += f" of {label.out_elements if gathers else label.elements} {label.dtype}"
    return text


def _op(op: int) -> str:
    return Op(int(op)).name.lower()
