"""One operation judged: its algorithms at some sizes, and what that means in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline_service.analysis.costs.alpha_beta import Cost, Machine
from paceline_service.analysis.costs.collectives import (
    algorithms_for,
    central_server,
    cheapest_by_size,
    least_possible,
    least_sent_ratio,
)
from paceline_service.analysis.costs.words import bandwidth_of, bytes_of, digits

CENTRAL = "central server"
_LARGE = 1e9
_MOST_BYTES = 1e15
_CLOSE = 1.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An operation.

    Attributes:
        op: its name in the vocabulary.
        machine: that it runs on.
        costs: by algorithm.
        cheapest: from which payload on which algorithm is.
        least: bounds that no algorithm beats, each for itself.
        payloads: bytes to show.
    """

    op: str
    machine: Machine
    costs: Mapping[str, Cost]
    cheapest: Sequence[tuple[float, str]]
    least: Cost
    payloads: Sequence[int]

    @property
    def name(self) -> str:
        """Return the operation as people write it."""
        return self.op.replace("_", "-")

    def best(self, size_bytes: float) -> str:
        """Return the cheapest algorithm at a size."""
        return [name for at, name in self.cheapest if at <= size_bytes][-1]

    def busbw(self, size_bytes: float) -> float:
        """Return the bus bandwidth of the cheapest, bytes/s."""
        took_s = self.costs[self.best(size_bytes)].seconds(size_bytes)
        return least_sent_ratio(self.op, self.machine.ranks) * size_bytes / took_s

    def least_s(self, size_bytes: float) -> float:
        """Return the time that no algorithm beats."""
        return max(self.least.latency_s, self.least.s_per_byte * size_bytes)

    def told(self) -> dict[str, object]:
        """Return what JSON has of it."""
        return {
            "op": self.op,
            "algorithms": [
                {"name": name, "latency_s": cost.latency_s, "s_per_byte": cost.s_per_byte,
                 "even_bytes": cost.even_bytes()}
                for name, cost in self.costs.items()
            ],
            "cheapest": [{"from_bytes": at, "algorithm": name} for at, name in self.cheapest],
            "least": {"latency_s": self.least.latency_s, "s_per_byte": self.least.s_per_byte},
            "rows": [
                {"bytes": size,
                 "seconds": {name: cost.seconds(size) for name, cost in self.costs.items()},
                 "cheapest": self.best(size), "busbw_bytes_per_s": self.busbw(size),
                 "least_s": self.least_s(size)}
                for size in self.payloads
            ],
        }  # fmt: skip


def judge(op: str, machine: Machine, servers: int, payloads: Sequence[int]) -> Judged:
    """Return an operation judged."""
    costs = algorithms_for(op, machine)
    if CENTRAL in costs:
        costs[CENTRAL] = central_server(machine, servers)
    return Judged(
        op=op, machine=machine, costs=costs, cheapest=cheapest_by_size(costs),
        least=least_possible(op, machine), payloads=payloads,
    )  # fmt: skip


def meaning(judged: Judged) -> list[str]:
    """Return what a newcomer should take away."""
    return [_which(judged), *_latency(judged), *_servers(judged)]


def _which(judged: Judged) -> str:
    steps = judged.cheapest
    first = steps[0][1]
    if len(steps) == 1:
        told = f"{judged.name}: {first} is cheapest at every size."
    else:
        parts = [f"{name} from {bytes_of(at)} on" for at, name in steps[1:]]
        told = f"{judged.name}: {first} is cheapest for small payloads, {', '.join(parts)}."
    size = float(judged.payloads[-1])
    ratio = judged.costs[judged.best(size)].seconds(size) / judged.least_s(size)
    near = (
        "is as fast as any algorithm can be"
        if ratio < 1.005
        else f"takes {digits(ratio)} times the least that any algorithm could take"
    )
    return f"{told} At {bytes_of(size)} the best {near}."


def _latency(judged: Judged) -> list[str]:
    full = judged.busbw(_MOST_BYTES)
    low, high = 1.0, _MOST_BYTES
    if 2 * judged.busbw(low) >= full:
        return []
    while high / low > _CLOSE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if 2 * judged.busbw(middle) < full else (low, middle)
    return [
        f"{_article(judged.name)} {judged.name} reaches half of its full bus bandwidth, "
        f"{bandwidth_of(full / 2)}, only from {bytes_of(high)} on. Less than that with smaller "
        "payloads is arithmetic, no slow network: fewer and larger messages (buckets) help, a "
        "faster link hardly does."
    ]


def _servers(judged: Judged) -> list[str]:
    if CENTRAL not in judged.costs:
        return []
    ratio = judged.costs[CENTRAL].seconds(_LARGE) / judged.costs["ring"].seconds(_LARGE)
    if ratio < 2:
        return []
    return [
        f"A central server takes {digits(ratio)} times as long as a ring at {bytes_of(_LARGE)}: "
        f"its link carries the gradients of all {judged.machine.ranks:,} ranks. Shards on all "
        "ranks send as few bytes as a ring where all links are alike, in as many messages."
    ]


def _article(name: str) -> str:
    return "An" if name[0] in "aeio" else "A"
