"""Pairs the collectives of one group by their order, as far as that is proved (align.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import BARRIER_LIKE_OPS, Op
from paceline_service.analysis.matching.align import Aligned, Refused, align, implausible
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.rank import RankTimeline

_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_UNEVEN = frozenset({Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.UNKNOWN})
"""Operations whose ranks may move different amounts, and so launch different grids."""
STEPS_AGREE = 0.9
"""Of the positions of an order that repeats itself: shifted by a repetition none would agree."""
STEPS_WHOLE = 0.5
"""Of the steps that all members numbered: where fewer agree, the numbers do not mean the same."""
_NOT_UNIQUE = (
    "the order repeats itself, so a window that began later by a whole repetition on one "
    "rank would look the same; as all have equally many, all are taken to begin together"
)


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
        assumed: whether the members were assumed, because no trace names groups.
        note: what a reader should know of the pairing; may be empty.
    """

    key: GroupKey
    members: Int64Array
    rows: NDArray[np.intp]
    op: Int64Array
    left_out: dict[int, int]
    assumed: bool
    note: str = ""

    @property
    def barrier_like(self) -> NDArray[np.bool_]:
        """(C,) which of them no rank can leave before every rank has arrived."""
        return np.isin(self.op, _BARRIER_LIKE)


def pair_group(
    key: GroupKey, by_rank: Mapping[int, list[int]], timelines: Mapping[int, RankTimeline]
) -> Paired | Refused:
    """Pair the collectives of one group, given as rows of each member's calls."""
    ranks = sorted(by_rank)
    views = [timelines[rank] for rank in ranks]
    rows = [np.array(by_rank[rank], dtype=np.intp) for rank in ranks]
    found = _in_order(key, ranks, rows, views)
    if isinstance(found, Refused):
        return found
    table, note = found
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
    barrier = np.isin(op, _BARRIER_LIKE)
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
        left_out={rank: count for rank, count in left_out.items() if count}, note=note,
    )  # fmt: skip


def _in_order(
    key: GroupKey,
    ranks: Sequence[int],
    rows: Sequence[NDArray[np.intp]],
    views: Sequence[RankTimeline],
) -> tuple[NDArray[np.intp], str] | Refused:
    """Return (C, M) paired rows and a remark.

    By signature alone where that is unique; else by signature and number of the step; else, where
    a record was lost, by the steps that are whole on all members.
    """
    texts, steps = _described(key, rows, views)
    by_order = _align_texts(ranks, texts)
    if isinstance(by_order, Aligned) and by_order.unique:
        return _table(rows, by_order), ""
    if not all(view.numbered for view in views):
        if isinstance(by_order, Refused):
            return by_order
        return _table(rows, by_order), _NOT_UNIQUE
    by_step = _align_texts(ranks, _anchored(texts, steps))
    if isinstance(by_step, Aligned):
        return _table(rows, by_step), ""
    if isinstance(by_order, Aligned):
        numbers = np.stack([n[i] for n, i in zip(steps, _picks(by_order), strict=True)])
        # A launch at the very edge of a step may count for the next one on some rank.
        if (numbers == numbers[0]).mean(axis=1).min() >= STEPS_AGREE:
            return _table(rows, by_order), ""
    return _whole_steps(ranks, rows, texts, steps, by_step)


def _whole_steps(
    ranks: Sequence[int],
    rows: Sequence[NDArray[np.intp]],
    texts: Sequence[list[str]],
    steps: Sequence[Int64Array],
    refusal: Refused,
) -> tuple[NDArray[np.intp], str] | Refused:
    """Pair the steps whose collectives agree from first to last on all members."""
    common = set.intersection(*({int(n) for n in own if n >= 0} for own in steps))
    kept: list[NDArray[np.intp]] = []
    whole = 0
    for step in sorted(common):
        mine = [np.flatnonzero(own == step) for own in steps]
        first = [texts[0][i] for i in mine[0]]
        if all([own[i] for i in index] == first for own, index in zip(texts, mine, strict=True)):
            kept.append(np.stack([r[i] for r, i in zip(rows, mine, strict=True)], axis=1))
            whole += 1
    if not whole or whole < STEPS_WHOLE * len(common) or len(common) < 2:
        return refusal
    note = f"paired in {whole} of {len(common)} steps, because {refusal.reason}"
    return np.concatenate(kept), note


def _described(
    key: GroupKey, rows: Sequence[NDArray[np.intp]], views: Sequence[RankTimeline]
) -> tuple[list[list[str]], list[Int64Array]]:
    """Return the signature and the number of the step of each collective, by member."""
    labels = [[view.calls.labels[i] for i in r] for view, r in zip(views, rows, strict=True)]
    counted = all(label.elements >= 0 for own in labels for label in own)
    in_sequence = all(label.seq >= 0 for own in labels for label in own)
    texts, steps = [], []
    for view, mine, own in zip(views, rows, labels, strict=True):
        signs = [_signature(view, int(i), label, key, counted) for i, label in
                 zip(mine, own, strict=True)]  # fmt: skip
        if in_sequence:  # the number that the process group itself gave
            signs = [f"{sign}, number {label.seq}" for sign, label in zip(signs, own, strict=True)]
        texts.append(signs)
        step = view.call_step[mine]
        steps.append(np.where(step >= 0, view.steps[np.maximum(step, 0)], -1))
    return texts, steps


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
