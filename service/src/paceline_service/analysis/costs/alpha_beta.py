"""A transfer costs alpha + bytes / B: links, machines made of two kinds of link, and their cost.

Source: docs/math/costs.md. One port: a rank sends one message at a time and receives one, both at
once, each at the link's full speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline_service.analysis.costs.units import not_negative, positive, whole

_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way out of a rank.

    Attributes:
        alpha_s: seconds that a message takes however short it is.
        bytes_per_s: what leaves the rank per second, in one direction.
    """

    alpha_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        not_negative(self.alpha_s, "alpha_s", "seconds per message")
        positive(self.bytes_per_s, "bytes_per_s", "bytes per second")

    @property
    def s_per_byte(self) -> float:
        """Return beta."""
        return 1 / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Ranks on nodes.

    Attributes:
        ranks: all of them.
        link: out of a rank to other nodes.
        ranks_per_node: on every node the same.
        inside: out of a rank to others of its node; None where there is one kind of link.
    """

    ranks: int
    link: Link
    ranks_per_node: int = 1
    inside: Link | None = None

    def __post_init__(self) -> None:
        whole(self.ranks, "ranks", "ranks")
        whole(self.ranks_per_node, "ranks_per_node", "ranks")
        if self.ranks > self.ranks_per_node and self.ranks % self.ranks_per_node:
            raise ConfigError(
                f"{self.ranks} ranks are no whole nodes of {self.ranks_per_node}: give a multiple"
            )
        if self.ranks_per_node > 1 and self.inside is None:
            raise ConfigError(
                f"nodes have {self.ranks_per_node} ranks: give the link inside a node as well"
            )

    @property
    def local(self) -> int:
        """Return the ranks of a node."""
        return min(self.ranks_per_node, self.ranks)

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.ranks // self.local

    @property
    def local_link(self) -> Link:
        """Return the link inside a node, or the only one."""
        return self.inside or self.link


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm costs: a straight line over the payload.

    Attributes:
        latency_s: alpha times the messages that follow one another.
        s_per_byte: of the payload.
    """

    latency_s: float
    s_per_byte: float

    def seconds(self, size_bytes: float) -> float:
        """Return the time for so many bytes."""
        return self.latency_s + self.s_per_byte * size_bytes

    def even_bytes(self) -> float:
        """Return the payload at which latency is half of the time; below, latency matters most."""
        return self.latency_s / self.s_per_byte if self.s_per_byte else 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.latency_s + other.latency_s, self.s_per_byte + other.s_per_byte)

    def times(self, factor: float) -> Cost:
        """Return the cost of doing it so many times."""
        return Cost(self.latency_s * factor, self.s_per_byte * factor)


def messages(link: Link, count: float, bytes_ratio: float) -> Cost:
    """Return the cost of ``count`` messages, one after the other.

    Args:
        link: that they take.
        count: of messages.
        bytes_ratio: bytes of all of them together, over the payload of the operation.
    """
    return Cost(count * link.alpha_s, bytes_ratio * link.s_per_byte)


@dataclass(frozen=True, slots=True)
class Pipelined(Cost):
    """Chunks that follow one another through hops: the best number of chunks is taken.

    With m chunks latency_s + (m-1) alpha + (hops-1+m)/m * s_per_byte * payload; best is
    m = sqrt((hops-1) s_per_byte payload / alpha), at least 1.

    Attributes:
        hops: that a chunk makes, one after the other.
        alpha_s: that each further chunk costs.
    """

    hops: int
    alpha_s: float

    def seconds(self, size_bytes: float) -> float:
        """Return the time for so many bytes."""
        sent_s = self.s_per_byte * size_bytes
        if self.alpha_s == 0 or self.hops <= 1:
            chunks = math.inf if self.alpha_s == 0 else 1.0
        else:
            chunks = max(math.sqrt((self.hops - 1) * sent_s / self.alpha_s), 1.0)
        further_s = 0.0 if self.alpha_s == 0 else (chunks - 1) * self.alpha_s
        return self.latency_s + further_s + sent_s * (1 + (self.hops - 1) / chunks)

    def even_bytes(self) -> float:
        """Return the payload at which latency is half of the time."""
        low, high = 0.0, super(Pipelined, self).even_bytes()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self.seconds(middle) < 2 * self.latency_s else (low, middle)
            )
        return high
