"""A time axis for durations: the members of a collective leave it together.

A record without a trace has a duration and no beginning. What it does tell is who waited: members
of one collective leave at the same time, so who was in it for less came later. The axis is made of
exactly that. Within a step the collectives follow each other as each process wrote them, all
members of one end together, and each began its own duration before. What a step takes beyond them
is known from the times of the dumps, and lies at its beginning; where no time is known there is
nothing beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    instances: Instances, steps: Steps, exec_ns: Int64Array, ended_ns: Int64Array, *, timed: bool
) -> Axis:
    """Lay the comparable instances on one axis.

    Args:
        instances: what is laid.
        steps: which step each belongs to.
        exec_ns: (M,) duration of each row.
        ended_ns: (M,) when each ended, as its process tells; only the order counts.
        timed: whether the ends of the steps are times.
    """
    order = _in_order(instances, steps, ended_ns)
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


def _in_order(instances: Instances, steps: Steps, ended_ns: Int64Array) -> NDArray[np.intp]:
    """Return the comparable instances by step, and within it as their members wrote them."""
    usable = np.flatnonzero(instances.comparable)
    # How far into its step each row is, of all rows of its rank: clocks of hosts may differ.
    step = steps.of_instance[instances.instance]
    by = np.lexsort((ended_ns, step, instances.rank))
    new = np.ones(len(by), dtype=np.bool_)
    new[1:] = (step[by[1:]] != step[by[:-1]]) | (instances.rank[by[1:]] != instances.rank[by[:-1]])
    begin = np.flatnonzero(new)
    part = np.cumsum(new) - 1
    size = np.diff(np.append(begin, len(by)))
    share = np.empty(len(by))
    share[by] = (np.arange(len(by)) - begin[part] + 0.5) / size[part]
    far = np.add.reduceat(share, instances.first) / np.diff(np.append(instances.first, len(share)))
    far = far + steps.of_instance
    # Numbers of a function ascend whatever the dumps say.
    for mine in _channels(instances, usable):
        far[mine] = np.maximum.accumulate(far[mine])
    return usable[np.lexsort((instances.sn[usable], far[usable], steps.of_instance[usable]))]


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
