"""A joiner that is fed by hand: one call, one event at a time."""

from __future__ import annotations

from typing import Any

from paceline.ring import InFlight, Record
from paceline.ring.rows import Rows
from paceline.sidecar.join.book import PROOFS
from paceline.vocabulary import Flag, Op
from tests.unit.sidecar.join_kit import (
    GROUPS,
    MS,
    RANK,
    Comm,
    call_record,
    event_record,
    joiner_of,
    raw_of,
)

WORLD_COMM = Comm(0, 0, RANK, 8)
DP = {0: GROUPS[0]}


class Job:
    """A joiner, and the two rings that it is given."""

    def __init__(self, *comms: Comm, groups: Any = DP) -> None:
        self.joiner = joiner_of(list(comms or (WORLD_COMM,)), groups)
        self.now_s = 0.0
        self.calls = self.events = 0
        self.running: list[InFlight] = []
        self.out: list[Record] = []

    def call(self, op: int, at_ms: int, *, length_us: int = 100, **fields: Any) -> None:
        start_ns = at_ms * MS
        record = call_record(
            op, fields.pop("group", 0), self.calls, start_ns, start_ns + length_us * 1000,
            fields.pop("size", 64), **fields,
        )  # fmt: skip
        self.add(record)

    def add(self, record: Record) -> None:
        self.joiner.add_calls(raw_of(record, self.calls), self.now_s)
        self.calls += 1

    def event(self, op: int, at_ms: float, *, size: int = 64, comm: int = 0, **more: Any) -> None:
        issue_ns = int(at_ms * MS)
        record = event_record(
            op, comm, self.events, issue_ns, issue_ns + 10_000, issue_ns + 500_000, size, **more
        )
        self.joiner.add_events(raw_of(record, self.events), self.now_s)
        self.events += 1

    def wait(self, seconds: float, *, final: bool = False) -> list[Record]:
        self.now_s += seconds
        out = list(Rows(self.joiner.release(self.now_s, lambda: self.running, final=final)))
        self.out += out
        return out

    def prove(self, comm: int = 0, group: int = 0) -> Job:
        """Bind ``comm`` to ``group``."""
        for _ in range(PROOFS):
            self.call(Op.ALL_REDUCE, 1 + self.calls, group=group)
            self.event(Op.ALL_REDUCE, self.calls + 0.05, comm=comm)
        self.wait(1)
        self.wait(1)
        assert self.joiner.book.comms[comm].group == group
        self.out.clear()
        return self


def timed(record: Record) -> bool:
    return bool(record.flags & Flag.GPU_TIME)
