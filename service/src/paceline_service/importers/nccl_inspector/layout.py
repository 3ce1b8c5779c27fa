"""A time axis for durations: the members of a collective leave it together.

A record without a trace has a duration and no beginning. What it does tell is who waited: members
of one collective leave at the same time, so who was in it for less came later. The axis is made of
exactly that. Within a step the collectives follow each other as each process wrote them, all
members of one end together, and each began its own duration before. What a step takes beyond them
is known from the times of the dumps, and lies at its beginning; where no time is known there is
nothing beyond them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.nccl_inspector.instances import Instances
from paceline_service.importers.nccl_inspector.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Times of M rows, those of instances that are not comparable 0.

    Attributes:
        begin_ns: (M,) when the rank came.
        end_ns: (M,) when it left.
        order: (I,) the instances in the order of the axis.
        step_end_ns: (S,) when each step ended.
    """

    begin_ns: Int64Array
    end_ns: Int64Array
    order: NDArray[np.intp]
    step_end_ns: Int64Array


def lay_out(
    instances: Instances,
    steps: Steps,
    exec_ns: Int64Array,
    around_ns: Int64Array,
    *,
    timed: bool,
    room_ns: Int64Array,
) -> Axis:
    """Lay the comparable instances on one axis.

    Args:
        instances: what is laid.
        steps: which step each belongs to.
        exec_ns: (M,) duration of each row.
        around_ns: (M,) when each ended, as its process tells; only the order counts.
        timed: whether the ends of the steps are times.
        room_ns: (S,) what each step holds at least beside them, where they are not.
    """
    order = _in_order(instances, steps, around_ns)
    count = len(steps.end_ns)
    ranks, of = np.unique(instances.rank, return_inverse=True)
    of = of.reshape(-1)
    begin, end = np.zeros((2, len(instances.row)), dtype=np.int64)
    free_ns = _free(instances, steps, exec_ns, of, len(ranks)) if timed else None
    bounds = np.append(instances.first, len(instances.row)).tolist()
    step_of = steps.of_instance[order]
    starts = np.searchsorted(step_of, np.arange(count + 1)).tolist()
    at = np.full(len(ranks), int(steps.end_ns[0]), dtype=np.int64)
    step_end = np.zeros(count, dtype=np.int64)
    for step in range(count):
        base = int(at.max())
        at[:] = 0
        for index in order[starts[step] : starts[step + 1]].tolist():
            here = slice(bounds[index], bounds[index + 1])
            who, took = of[here], exec_ns[here]
            left = int((at[who] + took).max())
            at[who] = left
            end[here] = left
            begin[here] = left - took
        length = int(at.max())
        if free_ns is not None:
            length = max(length, int(free_ns[step]))
        else:
            length += int(room_ns[step])
        shift = base + length - int(at.max())
        rows = np.concatenate(
            [np.arange(bounds[i], bounds[i + 1]) for i in order[starts[step] : starts[step + 1]]]
            or [np.zeros(0, dtype=np.intp)]
        ).astype(np.intp)
        begin[rows] += shift
        end[rows] += shift
        at[:] = base + length
        step_end[step] = base + length
    return Axis(begin_ns=begin, end_ns=end, order=order, step_end_ns=step_end)


def _in_order(instances: Instances, steps: Steps, around_ns: Int64Array) -> NDArray[np.intp]:
    """Return the comparable instances by step, and within it as they follow each other.

    Which of two communicators was first is known of one step only as exactly as the dumps are
    far apart. Steps repeat, and dumps fall everywhere in them: the mean over all steps and ranks
    tells it.
    """
    usable = np.flatnonzero(instances.comparable)
    step = steps.of_instance[instances.instance]
    offset = (around_ns - steps.end_ns[step]).astype(np.float64)
    ranks, of = np.unique(instances.rank, return_inverse=True)
    of = of.reshape(-1)
    pacing = steps.kind[instances.instance] == steps.kind[instances.instance].max(initial=0)
    for rank in range(len(ranks)):  # clocks of hosts may differ
        mine = of == rank
        told = offset[mine & pacing]
        offset[mine] -= np.median(told if len(told) else offset[mine])
    slot = _slots(instances, steps)
    of_row = slot[instances.instance]
    inner = of_row >= 0
    count = np.bincount(of_row[inner], minlength=1)
    mean = np.bincount(of_row[inner], weights=offset[inner]) / np.maximum(count, 1)
    size = np.diff(np.append(instances.first, len(offset)))
    far = np.add.reduceat(offset, instances.first) / size
    far[slot >= 0] = mean[slot[slot >= 0]]
    # Numbers of a function ascend whatever the dumps say.
    for mine in _channels(instances, usable):
        same = np.append(True, np.diff(steps.of_instance[mine]) != 0)
        for part in np.split(mine, np.flatnonzero(same)[1:]):
            far[part] = np.maximum.accumulate(far[part])
    return usable[np.lexsort((instances.sn[usable], far[usable], steps.of_instance[usable]))]


def _slots(instances: Instances, steps: Steps) -> Int64Array:
    """Return (I,) a number for each place in a step: its kind, and how many came before it."""
    order = np.lexsort((instances.sn, instances.comm, steps.of_instance, steps.kind))
    new = np.ones(len(order), dtype=np.bool_)
    for name in (instances.comm, steps.of_instance, steps.kind):
        new[1:] &= name[order[1:]] == name[order[:-1]]
    new[1:] = ~new[1:]
    begin = np.flatnonzero(new)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - begin[np.cumsum(new) - 1]
    return np.where(steps.kind >= 0, steps.kind * (int(place.max(initial=0)) + 1) + place, -1)


def _channels(instances: Instances, usable: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    order = usable[np.lexsort((instances.sn[usable], instances.func[usable],
                               instances.comm[usable]))]  # fmt: skip
    cuts = np.flatnonzero(
        (np.diff(instances.comm[order]) != 0) | (np.diff(instances.func[order]) != 0)
    )
    return list(np.split(order, cuts + 1))


def _free(
    instances: Instances, steps: Steps, exec_ns: Int64Array, of: Int64Array, ranks: int
) -> Int64Array:
    """Return (S,) how long each step took, less what is not laid out in it.

    A collective that is not comparable took its time too. It is cut out on all ranks alike: left
    in, it would count as the work of those who were in it.
    """
    count = len(steps.end_ns)
    length = np.diff(steps.end_ns)
    length = np.append(int(np.median(length)) if len(length) else 0, length)
    cut = np.zeros((ranks, count), dtype=np.int64)
    rows = ~instances.comparable[instances.instance]
    np.add.at(cut, (of[rows], steps.of_instance[instances.instance[rows]]), exec_ns[rows])
    return np.asarray(np.maximum(length - np.median(cut, axis=0).astype(np.int64), 0))
