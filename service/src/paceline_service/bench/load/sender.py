"""Sends the bodies of a load as its sidecars would: a connection a node, in order, at its time.

A step's records leave a node up to ``flush_s`` after the step: every node flushes so often,
at a moment of its own. What could not be sent in its time goes with what came after it, up to
``MAX_BODY_BYTES``; a refusal is followed by a pause as the sidecar makes it.
"""

from __future__ import annotations

import random
import selectors
import time
from collections import Counter
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import msgspec

from paceline.errors import TransportError
from paceline.sidecar.sender import MAX_BODY_BYTES, backoff_s
from paceline_service.bench.load.bodies import Bodies
from paceline_service.bench.load.connection import Answer, Connection

WINDOW = 4
"""Without a rate no node is further than this many frames before the slowest."""
STALLED_S = 120.0
_IDLE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """What goes wrong on the way, as shares of bodies; ``storm`` is a number of connections."""

    duplicates: float = 0.0
    out_of_order: float = 0.0
    storm: int = 0


@dataclass(slots=True, kw_only=True)
class Sent:
    """What became of it."""

    accepted: int = 0
    duplicate: int = 0
    rejected: int = 0
    posts: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    reconnects: int = 0
    stride: int = 1
    """The largest that an answer asked for; the load goes on without it."""
    latency_s: list[float] = field(default_factory=list)
    late_s: float = 0.0
    """How much later than planned a body left at most: the sender itself was too slow."""
    began_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    storm_s: float = 0.0
    """From the first of the connections at once to the last answer."""
    storm_answered: int = 0


@dataclass(slots=True, kw_only=True)
class _Node:
    number: int
    order: list[int]
    """Frame numbers in the order that they are sent."""
    connection: Connection
    phase_s: float
    place: int = 0
    taken: int = 0
    """How many of ``order`` are in the request under way."""
    repeat: bool = False
    failures: int = 0
    began_s: float = 0.0
    is_storm: bool = False


class Sender:
    """Sends everything, then returns what was measured.

    Args:
        bodies: what to send, encoded.
        address: of the collector.
        token: for it.
        troubles: what goes wrong.
    """

    def __init__(
        self, bodies: Bodies, address: tuple[str, int], token: str, troubles: Troubles
    ) -> None:
        self._bodies = bodies
        self._shape = bodies.shape
        self._troubles = troubles
        self._random = random.Random(self._shape.seed)
        self._selector = selectors.DefaultSelector()
        self._address, self._token = address, token
        self._nodes = [
            _Node(
                number=number, order=self._order(bodies.blocks(number)),
                connection=Connection(address, token), phase_s=bodies.phase_s(number),
            )
            for number in range(self._shape.nodes)
        ]  # fmt: skip
        self._due: list[tuple[float, int]] = []
        self._acked = [0] * self._shape.blocks()
        self._lowest = 0
        self._held: list[int] = []
        self._storm_left = troubles.storm
        self._storm: dict[int, _Node] = {}
        self.sent = Sent()

    def run(self, began_s: float) -> Sent:
        """Send; step 0 begins at ``began_s`` on the monotonic clock.

        Raises:
            TransportError: the collector refuses for good, or has not answered for minutes.
        """
        sent, cpu_s = self.sent, time.process_time()
        sent.began_s = began_s
        self._due = [(self._due_s(node), node.number) for node in self._nodes]
        heapify(self._due)
        storm_at_s = began_s + self._shape.steps * self._shape.step_s / 2
        heard_s = time.monotonic()
        left = self._shape.nodes
        while left or self._storm:
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                due_s, number = heappop(self._due)
                if not self._nodes[number].failures and self._shape.rate:
                    sent.late_s = max(sent.late_s, now_s - due_s)
                self._begin(self._nodes[number], now_s)
            if self._storm_left and (now_s >= storm_at_s or self._half_sent()):
                self._begin_storm(now_s)
            next_s = self._due[0][0] - now_s if self._due else _IDLE_S
            for key, events in self._selector.select(min(max(next_s, 0.0), _IDLE_S)):
                heard_s = time.monotonic()
                left -= self._serve(key.data, events)
            if time.monotonic() - heard_s > STALLED_S + self._shape.step_s + self._shape.flush_s:
                raise TransportError(f"no answer of the collector for {STALLED_S:.0f} s")
        sent.wall_s = time.monotonic() - began_s
        sent.cpu_s = time.process_time() - cpu_s
        return sent

    def close(self) -> None:
        """Close every connection."""
        for node in [*self._nodes, *self._storm.values()]:
            node.connection.close()
        self._selector.close()

    def _order(self, blocks: int) -> list[int]:
        order = list(range(blocks))
        for place in range(1, len(order) - 1):
            # The first stays first: what makes an attempt is not what is tried here.
            if self._random.random() < self._troubles.out_of_order:
                order[place], order[place + 1] = order[place + 1], order[place]
        return order

    def _due_s(self, node: _Node) -> float:
        """Return when the next frame of ``node`` is to leave."""
        if not self._shape.rate:
            return self.sent.began_s
        block = max(node.order[node.place], node.place)  # one that overtook waited for its time
        return self.sent.began_s + self._bodies.due_s(block, node.number)

    def _half_sent(self) -> bool:
        return not self._shape.rate and self._lowest >= self._shape.blocks() // 2

    def _begin(self, node: _Node, now_s: float) -> None:
        """Begin a POST with everything that is due."""
        if not self._shape.rate and node.place - self._lowest >= WINDOW:
            self._held.append(node.number)
            return
        if not node.taken:
            node.taken = self._count_due(node, now_s)
        blocks = node.order[node.place : node.place + node.taken]
        self._post(node, b"".join(self._bodies.read(block, node.number) for block in blocks), now_s)

    def _count_due(self, node: _Node, now_s: float) -> int:
        count, size, place = 0, 0, node.place
        while node.place < len(node.order) and (not count or self._due_s(node) <= now_s):
            size += self._bodies.size(node.order[node.place], node.number)
            if count and (size > MAX_BODY_BYTES or not self._shape.rate):
                break
            count += 1
            node.place += 1
        node.place = place
        return count

    def _post(self, node: _Node, body: bytes, now_s: float) -> None:
        connection = node.connection
        node.began_s = now_s
        if not connection.is_open:
            connection.open()
            self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, node)
            connection.request(body)
            return
        connection.request(body)
        try:
            connection.write()
        except OSError:
            self._lost(node)
            return
        if connection.wants_to_write:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(connection, both, node)

    def _serve(self, node: _Node, events: int) -> int:
        """Go on with one connection; return 1 when its node has sent everything."""
        connection = node.connection
        try:
            if events & selectors.EVENT_WRITE:
                connection.write()
                if not connection.wants_to_write:
                    self._selector.modify(connection, selectors.EVENT_READ, node)
            if events & selectors.EVENT_READ:
                answer = connection.read()
                if answer is not None:
                    return self._answered(node, answer)
        except OSError:
            self._lost(node)
        return 0

    def _lost(self, node: _Node) -> None:
        self._selector.unregister(node.connection)
        node.connection.close()
        self.sent.reconnects += 1
        self._pause(node, 0.0)

    def _pause(self, node: _Node, at_least_s: float) -> None:
        node.failures += 1
        pause_s = max(backoff_s(node.failures, self._random.random()), at_least_s)
        if node.is_storm:
            self._end_storm(node)
        else:
            heappush(self._due, (time.monotonic() + pause_s, node.number))

    def _answered(self, node: _Node, answer: Answer) -> int:
        sent = self.sent
        if answer.status == 429 or answer.status >= 500:
            sent.refused[answer.status] += 1
            self._pause(node, answer.retry_after_s)
            return 0
        if answer.status != 200:
            raise TransportError(f"the collector answered {answer.status}: {answer.body[:300]!r}")
        said = msgspec.json.decode(answer.body)
        sent.posts += 1
        sent.duplicate += said["duplicate"]
        for told in said.get("settings", ()):
            sent.stride = max(sent.stride, told.get("stride") or 1)
        if node.is_storm:
            sent.storm_answered += 1
            self._end_storm(node)
            return 0
        sent.latency_s.append(time.monotonic() - node.began_s)
        sent.accepted += said["accepted"]
        sent.rejected += len(said["rejected"])
        node.failures = 0
        if not node.repeat and self._random.random() < self._troubles.duplicates:
            node.repeat = True  # the answer was lost on its way: the sidecar sends it again
            heappush(self._due, (time.monotonic(), node.number))
            return 0
        node.repeat = False
        return self._went(node)

    def _went(self, node: _Node) -> int:
        for block in node.order[node.place : node.place + node.taken]:
            if not self._shape.rate:  # then every node sends as many
                self._acked[block] += 1
        node.place += node.taken
        node.taken = 0
        if not self._shape.rate:
            self._move_window()
        if node.place == len(node.order):
            self._selector.unregister(node.connection)
            node.connection.close()
            return 1
        heappush(self._due, (self._due_s(node), node.number))
        return 0

    def _move_window(self) -> None:
        before = self._lowest
        while self._lowest < len(self._acked) and self._acked[self._lowest] == len(self._nodes):
            self._lowest += 1
        if self._lowest > before:
            for number in self._held:
                heappush(self._due, (self.sent.began_s, number))
            self._held.clear()

    def _begin_storm(self, now_s: float) -> None:
        """Open many connections at once, each with a frame that was sent before."""
        ready = [node for node in self._nodes if node.place > node.taken]
        if not ready:
            return
        for place in range(self._storm_left):
            node = ready[place % len(ready)]
            one = _Node(
                number=node.number, order=node.order,
                connection=Connection(self._address, self._token), phase_s=0.0, is_storm=True,
            )  # fmt: skip
            self._storm[id(one)] = one
            self._post(one, self._bodies.read(node.order[0], node.number), now_s)
        self._storm_left = 0

    def _end_storm(self, node: _Node) -> None:
        if node.connection.is_open:
            self._selector.unregister(node.connection)
            node.connection.close()
        del self._storm[id(node)]
        self.sent.storm_s = max(self.sent.storm_s, time.monotonic() - node.began_s)
