"""Replays a graph of points with other durations: how long would the steps have taken?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.whatif.graph import Graph

COLUMNS = 16
"""Scenarios to replay at once: enough to share the cost of walking the graph, and few enough that
their times stay in a processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """What can be computed once all levels before are: some collectives, then some points."""

    instances: NDArray[np.intp]
    arrivals: NDArray[np.intp]
    """Points, those of one collective together."""
    first: NDArray[np.intp]
    points: NDArray[np.intp]
    previous: Int64Array
    began: NDArray[np.bool_]
    joining: NDArray[np.intp]
    """Positions in ``points`` of those that come after a collective."""
    joined: Int64Array


class Replay:
    """A graph in topological order, ready to be replayed.

    Args:
        graph: what waits for what.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._levels = _levels(graph)
        last = np.append(graph.previous[1:] < 0, True)
        self._ends = np.flatnonzero(last)
        done = sum(len(level.points) for level in self._levels)
        self.circular = done < len(graph)
        """Whether points wait for each other in a circle: then there is no answer."""

    def step_ns(self, work_ns: FloatArray, transfer_ns: FloatArray) -> FloatArray:
        """Return (S, C), how long each step takes in each of C scenarios: its longest rank.

        Args:
            work_ns: (P, C) work before each point.
            transfer_ns: (I, C) duration of each collective after its last arrival.
        """
        graph = self._graph
        result = np.zeros((len(graph.took_ns), work_ns.shape[1]))
        at = self._times(work_ns, transfer_ns)
        np.maximum.at(result, graph.step[self._ends], at[self._ends])
        return result

    def _times(self, work_ns: FloatArray, transfer_ns: FloatArray) -> FloatArray:
        at = np.zeros(work_ns.shape)
        released = np.zeros(transfer_ns.shape)
        for level in self._levels:
            if len(level.instances):
                latest = np.maximum.reduceat(at[level.arrivals], level.first, axis=0)
                released[level.instances] = latest + transfer_ns[level.instances]
            if len(level.points):
                here = at[level.previous] + work_ns[level.points]
                here[level.began] = work_ns[level.points[level.began]]
                here[level.joining] = np.maximum(here[level.joining], released[level.joined])
                at[level.points] = here
        return at


def _levels(graph: Graph) -> list[_Level]:
    """Order points and collectives so that each comes after all that it waits for (Kahn)."""
    points, instances = len(graph), len(graph.transfer_ns)
    follows = np.full(points, -1, dtype=np.int64)
    later = np.flatnonzero(graph.previous >= 0)
    follows[graph.previous[later]] = later
    joining = np.flatnonzero(graph.instance >= 0)
    by_instance = joining[np.argsort(graph.instance[joining], kind="stable")]
    bounds = np.searchsorted(graph.instance[by_instance], np.arange(instances + 1))
    first = np.searchsorted(graph.arrival_instance, np.arange(instances + 1))
    reaches = np.full(points, -1, dtype=np.int64)
    reaches[graph.arrival] = graph.arrival_instance
    needed = (graph.previous >= 0).astype(np.int64) + (graph.instance >= 0)
    missing = np.diff(first)
    open_instances = np.flatnonzero(missing == 0)
    ready = np.flatnonzero(needed == 0)
    levels: list[_Level] = []
    place = np.empty(instances, dtype=np.int64)
    while len(ready) or len(open_instances):
        levels.append(_level(graph, first, open_instances, ready))
        # Who comes after the points that are passed, and after the collectives that are over:
        # nobody is twice in one of the two, and who is in both is ready with the second.
        freed = by_instance[_spans(bounds, open_instances)]
        after = follows[ready]
        after = after[after >= 0]
        needed[after] -= 1
        passed = after[needed[after] == 0]
        needed[freed] -= 1
        arrived = reaches[ready]
        arrived = arrived[arrived >= 0]
        np.subtract.at(missing, arrived, 1)
        whole = arrived[missing[arrived] == 0]
        order = np.arange(len(whole))
        place[whole] = order
        ready = np.concatenate([passed, freed[needed[freed] == 0]])
        open_instances = whole[place[whole] == order]
    return levels


def _level(
    graph: Graph, first: Int64Array, instances: NDArray[np.intp], points: NDArray[np.intp]
) -> _Level:
    held = instances[first[instances + 1] > first[instances]]
    counts = first[held + 1] - first[held]
    previous = graph.previous[points]
    joining = np.flatnonzero(graph.instance[points] >= 0)
    return _Level(
        instances=held,
        arrivals=graph.arrival[_spans(first, held)],
        first=np.cumsum(counts) - counts,
        points=points,
        previous=previous,
        began=previous < 0,
        joining=joining,
        joined=graph.instance[points[joining]],
    )


def _spans(bounds: Int64Array, which: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the positions bounds[w] to bounds[w + 1] of every w, one after the other."""
    counts = bounds[which + 1] - bounds[which]
    shift = np.repeat(bounds[which] - (np.cumsum(counts) - counts), counts)
    return np.asarray(np.arange(int(counts.sum())) + shift, dtype=np.intp)
