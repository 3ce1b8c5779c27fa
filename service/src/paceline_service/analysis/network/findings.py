"""From slow classes of transfers to findings: place, cost, evidence, what to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline.vocabulary import Op, op_name
from paceline_service.analysis.channel import JobFacts
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.network.evidence import BLOCKS, NEAR, Evidence
from paceline_service.analysis.network.fit import busbw
from paceline_service.analysis.network.levels import fits_of, sizes_of
from paceline_service.analysis.network.places import Lanes, Place, locate
from paceline_service.analysis.network.table import ClassTable
from paceline_service.analysis.network.words import (
    action_of,
    bandwidth,
    size_of,
    time_of,
    where_sentence,
)
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct

STALE_STEPS = 256
"""A lane that nobody used for so long says nothing about the network of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The classes that are or were slow, S of them.

    Attributes:
        classes: (S,) their numbers.
        stretch: (S,) sums over their slow steps (``network.RUN``).
        open: (S,) which are slow still.
        table, evidence: all classes.
        judged_steps: steps seen so far.
    """

    classes: NDArray[np.intp]
    stretch: NDArray[np.void]
    open: BoolArray
    table: ClassTable
    evidence: Evidence
    judged_steps: int

    @property
    def shift(self) -> NDArray[np.float64]:
        """How much longer each took than expected, (S,), log units."""
        steps = np.maximum(self.stretch["steps"], 1)
        return np.asarray((self.stretch["value"] - self.stretch["expected"]) / steps)


def describe(slow: Slow, facts: JobFacts) -> list[tuple[Finding, float]]:
    """Return a finding per place and the share of the job's time that it costs."""
    lanes, lane_of = _lanes(slow.table, facts)
    slow_lanes = np.zeros(len(lanes), dtype=np.bool_)
    slow_lanes[lane_of[slow.classes]] = True
    watched = np.zeros(len(lanes), dtype=np.bool_)
    watched[lane_of[_would_show(slow)]] = True
    out = []
    for place in locate(lanes, slow_lanes, watched):
        mine = np.flatnonzero(np.isin(lane_of[slow.classes], place.lanes))
        out.append(_finding(place, mine, slow, facts, lanes, int(watched.sum())))
    return out


def _would_show(slow: Slow) -> NDArray[np.intp]:
    """Return the classes that were used lately and would show a shift as large as the found."""
    state = slow.evidence.state
    shift = median_of(slow.shift)
    sharpest = np.minimum(state["levels"][:, NEAR], state["levels"][:, BLOCKS])
    newest = int(state["last_seen"].max(initial=0))
    since = max(int(median_of(slow.stretch["first"])), newest - STALE_STEPS)
    calm = state["evidence"].max(axis=1) < 1  # the others may be slow and were seen too seldom
    shows = state["learned"] & (sharpest <= shift) & (state["last_seen"] >= since) & calm
    return np.flatnonzero(shows)


def _lanes(table: ClassTable, facts: JobFacts) -> tuple[Lanes, Int64Array]:
    """Return all lanes and the lane of each class, (C,)."""
    key = np.column_stack([table.group, table.source, table.destination])
    rows, lane_of = np.unique(key, axis=0, return_inverse=True)
    lane_of = lane_of.reshape(-1)
    members = [
        (source, destination) if source >= 0 else facts.groups[group].ranks
        for group, source, destination in rows.tolist()
    ]
    names = {name: number for number, name in enumerate(sorted(set(facts.nodes.values())))}
    node = np.full(facts.world_size, -1, dtype=np.int64)
    node[list(facts.nodes)] = [names[name] for name in facts.nodes.values()]
    lanes = Lanes(
        group=rows[:, 0],
        source=rows[:, 1],
        destination=rows[:, 2],
        member_lane=np.repeat(np.arange(len(rows)), [len(ranks) for ranks in members]),
        member_rank=np.array([rank for ranks in members for rank in ranks], dtype=np.int64),
        node_of_rank=node,
    )
    return lanes, lane_of


def _finding(
    place: Place, mine: NDArray[np.intp], slow: Slow, facts: JobFacts, lanes: Lanes, watched: int
) -> tuple[Finding, float]:
    stretch, shift = slow.stretch[mine], slow.shift[mine]
    steps_ns = float(stretch["duration_ns"].max())
    cost = _wall_ns(mine, slow, facts) / steps_ns if steps_ns > 0 else 0.0
    cost = min(cost, 1.0)
    gpu_s = float(stretch["gpu_ns"].sum()) / 1e9
    names = sorted(set(facts.nodes.values()))
    nodes = [names[number] for number in place.nodes]
    ranks = place.ranks
    if place.what == "fabric":
        members = distinct(lanes.member_rank[np.isin(lanes.member_lane, place.lanes)])
        ranks = members.tolist() if len(members) < facts.world_size else []
    still = bool(slow.open[mine].any())
    last = int(stretch["last"].max())
    evidence = [
        *_measured(mine, slow, facts),
        where_sentence(place, nodes, watched),
        f"ranks stood still {gpu_s:.2f} GPU-seconds longer than before in these transfers; "
        f"without that these steps would have been {cost:.1%} shorter",
    ]
    if not still:
        evidence.append(f"it recovered after step {last}")
    if slow.evidence.state["polled"][slow.classes[mine]].any():
        evidence.append(
            "releases were seen by polling, so these times are upper bounds, before and since"
        )
    peak = float(stretch["peak"].max())
    chance = slow.evidence.watched() * slow.judged_steps / max(peak, 1.0)
    finding = Finding(
        kind="communication",
        ranks=ranks,
        nodes=nodes,
        cause="network",
        phase=None,
        first_step=int(stretch["first"].min()),
        last_step=last,
        slowdown=float(np.exp(np.average(shift, weights=np.maximum(stretch["gpu_ns"], 1.0)))),
        recoverable_ratio=cost,
        wasted_gpu_s=gpu_s,
        confidence=float(np.clip(1.0 - chance, 0.0, 0.999999)),
        evidence=evidence,
        action=action_of(place, nodes),
        links=place.links,
    )
    return finding, cost


def _wall_ns(mine: NDArray[np.intp], slow: Slow, facts: JobFacts) -> float:
    """Return the largest excess of one rank, ns: what its steps would have been shorter by."""
    table, classes = slow.table, slow.classes[mine]
    each = slow.stretch["gpu_ns"][mine] / np.maximum(table.members[classes], 1)
    wall = np.zeros(facts.world_size)
    for cost_ns, number in zip(each, classes, strict=True):
        if table.source[number] >= 0:
            ranks = [int(table.source[number]), int(table.destination[number])]
        else:
            ranks = list(facts.groups[int(table.group[number])].ranks)
        wall[ranks] += cost_ns
    return float(wall.max(initial=0.0))


def _measured(mine: NDArray[np.intp], slow: Slow, facts: JobFacts) -> list[str]:
    """Return the sentences on the costliest class: before and since, siblings, fit."""
    table, state = slow.table, slow.evidence.state
    worst = mine[int(np.argmax(slow.stretch["gpu_ns"][mine]))]
    stretch, number = slow.stretch[worst], int(slow.classes[worst])
    op, members = int(table.op[number]), int(table.members[number])
    size = float(sizes_of(table)[number])
    steps = int(max(stretch["steps"], 1))
    now_ns = float(np.exp(stretch["value"] / steps))
    before_ns = float(np.exp(stretch["expected"] / steps))

    def speed(took_ns: float) -> str:
        return bandwidth(busbw(op, members, size, took_ns))

    beside = state["by_sibling"][number]
    against = "its siblings" if beside else f"before step {int(stretch['first'])}"
    sentences = [
        f"{_of_what(number, table, facts)} of {size_of(size)} took {time_of(now_ns)} against "
        f"{time_of(before_ns)} {'in' if beside else ''} {against}, over {steps} steps: bus "
        f"bandwidth {speed(now_ns)} against {speed(before_ns)}".replace("  ", " ")
    ]
    if stretch["beside_steps"] and not beside:
        sibling_ns = float(np.exp(stretch["beside"] / stretch["beside_steps"]))
        sentences.append(
            f"its sibling groups took {time_of(sibling_ns)} in the same steps ({speed(sibling_ns)})"
        )
    (fit,) = fits_of(table, slow.evidence, slow.classes[worst : worst + 1])
    if fit.alpha_ns is not None and fit.beta_ns_per_byte is not None:
        sentences.append(
            f"in good health such a transfer takes {time_of(fit.alpha_ns)} and "
            f"{time_of(fit.beta_ns_per_byte * 2**20)} per MiB, fitted through {fit.sizes} sizes"
        )
    else:
        sentences.append(
            f"with {counted(fit.sizes, 'size')} seen there, start-up time and "
            "bandwidth cannot be told apart"
        )
    return sentences


def _of_what(number: int, table: ClassTable, facts: JobFacts) -> str:
    op = op_name(Op(int(table.op[number])))
    if table.source[number] >= 0:
        return f"sends from rank {table.source[number]} to rank {table.destination[number]}"
    group = facts.groups[int(table.group[number])]
    return f"{op} in group {group.name} (rank {format_ranks(list(group.ranks)[:64])})"
