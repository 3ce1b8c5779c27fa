"""A process whose hooks and plugin are simulated, with the truth of what belongs together."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from paceline.ring import InFlight, Record
from paceline.ring import layout as at
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.join.joiner import Joiner
from paceline.vocabulary import Flag, Op, RecordKind

MS = 1_000_000
S = 1_000_000_000
RANK, WORLD = 5, 8
GROUPS = {
    0: tuple(range(8)),
    1: tuple(range(8)),  # as large as the world: only proof tells them apart
    2: (4, 5, 6, 7),
    3: (1, 5),
    4: (3, 4, 5),
}


def raw_of(record: Record, index: int) -> bytes:
    return pack_record(record)[: at.RECORD_COMMIT_OFFSET] + at.U64.pack(index + 1)


def call_record(
    op: int, group: int, seq: int, start_ns: int, end_ns: int, payload_bytes: int = 64,
    *, peer: int = -1, step: int = 0,
) -> Record:  # fmt: skip
    return Record(
        RecordKind.COLLECTIVE, op, group, seq, step, peer, payload_bytes, start_ns, end_ns, 0,
        start_ns, Flag.HOST_RETURN,
    )  # fmt: skip


def event_record(
    op: int, comm: int, seq: int, issue_ns: int, start_ns: int, end_ns: int,
    payload_bytes: int = 64, *, peer: int = -1, flags: int = Flag.GPU_TIME,
) -> Record:  # fmt: skip
    return Record(
        RecordKind.COLLECTIVE, op, comm, seq, 0, peer, payload_bytes, start_ns, end_ns, 0,
        issue_ns, flags,
    )  # fmt: skip


@dataclass
class Made:
    """One record of a ring, when it can be read, and what is true of it."""

    record: Record
    at_ns: int
    truth: tuple[int, int, bool] | None = None
    """Of a call: start and end on the device, and whether that is partial."""
    after_gap: bool = False
    """Whether records before it were lost, which a reader notices."""


@dataclass
class Comm:
    index: int
    group: int
    rank: int
    size: int
    seq: int = 0
    device_free_ns: int = 0

    @property
    def meta(self) -> dict[str, object]:
        return {"comm": self.index, "hash": f"{self.index:016x}", "name": "", "rank": self.rank,
                "nranks": self.size, "nnodes": 1}  # fmt: skip


@dataclass
class Process:
    """Threads that issue operations on groups of their own, until ``until_ns``."""

    seed: int
    until_ns: int = 6 * S
    late: bool = True
    """Whether some operations are launched after their calls came back."""
    calls: list[Made] = field(default_factory=list)
    events: list[Made] = field(default_factory=list)
    comms: dict[tuple[int, int], Comm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.seqs: dict[tuple[int, ...], int] = {}
        groups = list(GROUPS)
        self.random.shuffle(groups)
        cut = self.random.randrange(1, len(groups))
        for own in (groups[:cut], groups[cut:]):
            now_ns = S + self.random.randrange(MS)
            while now_ns < self.until_ns:
                now_ns = self.operation(self.random.choice(own), now_ns)
                now_ns += self.random.choice((5_000, 50_000, 500_000, 20 * MS))
        self.calls.sort(key=lambda made: made.at_ns)
        self.events.sort(key=lambda made: made.at_ns)

    def operation(self, group: int, now_ns: int) -> int:
        kinds = [self.single] * 6 + [self.coalesced, self.uneven, self.exchange, self.point]
        if self.late:
            kinds += [self.batch, self.late_coalesced]
        return self.random.choice(kinds)(group, now_ns)

    def single(self, group: int, now_ns: int) -> int:
        op = self.random.choice(
            (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BARRIER, Op.BROADCAST)
        )
        size = self.bytes()
        root = self.random.randrange(len(GROUPS[group])) if op == Op.BROADCAST else -1
        peer = GROUPS[group][root] if root >= 0 else -1
        end_ns = now_ns + self.random.randrange(20_000, 90_000)
        of_nccl = Op.ALL_REDUCE if op == Op.BARRIER else op
        event = self.event(
            self.comm(group), of_nccl, now_ns, end_ns, 4 if op == Op.BARRIER else size, peer=root
        )
        self.call(op, group, now_ns, end_ns, 0 if op == Op.BARRIER else size, [event], peer)
        return end_ns

    def coalesced(self, group: int, now_ns: int) -> int:
        end_ns = now_ns + self.random.randrange(50_000, 200_000)
        sizes = [self.bytes() for _ in range(self.random.randrange(2, 6))]
        comm = self.comm(group)
        events = [self.event(comm, Op.ALL_REDUCE, now_ns, end_ns, size) for size in sizes]
        self.call(Op.ALL_REDUCE, group, now_ns, end_ns, sum(sizes), events)
        return end_ns

    def uneven(self, group: int, now_ns: int) -> int:
        end_ns = now_ns + self.random.randrange(50_000, 200_000)
        comm, ranks = self.comm(group), GROUPS[group]
        sizes = [self.bytes() for _ in ranks]
        events = [
            self.event(comm, Op.BROADCAST, now_ns, end_ns, size, peer=root)
            for root, size in enumerate(sizes)
        ]
        self.call(Op.ALL_GATHER, group, now_ns, end_ns, sum(sizes), events)
        return end_ns

    def exchange(self, group: int, now_ns: int) -> int:
        end_ns = now_ns + self.random.randrange(50_000, 200_000)
        comm, ranks, size = self.comm(group), GROUPS[group], self.bytes()
        events = [
            self.event(comm, op, now_ns, end_ns, size, peer=peer)
            for peer in range(len(ranks))
            for op in (Op.SEND, Op.RECV)
        ]
        self.call(Op.ALL_TO_ALL, group, now_ns, end_ns, size * len(ranks), events)
        return end_ns

    def point(self, group: int, now_ns: int) -> int:
        """One send or receive, on a communicator of its own for the pair."""
        ranks, op, size = GROUPS[group], self.random.choice((Op.SEND, Op.RECV)), self.bytes()
        peer = self.random.choice([rank for rank in ranks if rank != RANK])
        end_ns = now_ns + self.random.randrange(20_000, 90_000)
        comm = self.comm(group, pair=peer)
        event = self.event(comm, op, now_ns, end_ns, size, peer=1 - comm.rank)
        self.call(op, group, now_ns, end_ns, size, [event], peer)
        return end_ns

    def batch(self, group: int, now_ns: int) -> int:
        """``batch_isend_irecv``: nothing is launched before the last call came back."""
        ranks, comm = GROUPS[group], self.comm(group)
        wanted = []
        for _ in range(self.random.randrange(1, 5)):
            op, size = self.random.choice((Op.SEND, Op.RECV)), self.random.choice((256, 4096))
            peer = self.random.choice([n for n, rank in enumerate(ranks) if rank != RANK])
            end_ns = now_ns + self.random.randrange(5_000, 20_000)
            wanted.append((op, size, peer, now_ns, end_ns))
            now_ns = end_ns + 1_000
        launch_ns = now_ns + 30_000
        order = sorted(range(len(wanted)), key=lambda n: (wanted[n][2], wanted[n][0], n))
        events = {}
        for place, number in enumerate(order):
            op, size, peer, *_ = wanted[number]
            begin_ns = now_ns + place * 1_000
            events[number] = self.event(comm, op, begin_ns, begin_ns + 1_000, size, peer=peer)
        for number, (op, size, peer, start_ns, end_ns) in enumerate(wanted):
            self.call(op, group, start_ns, end_ns, size, [events[number]], ranks[peer])
        return launch_ns + 1_000

    def late_coalesced(self, group: int, now_ns: int) -> int:
        """Collectives within a coalescing manager, launched at its end."""
        comm = self.comm(group)
        wanted = []
        for _ in range(self.random.randrange(1, 4)):
            end_ns = now_ns + self.random.randrange(5_000, 20_000)
            wanted.append((self.bytes(), now_ns, end_ns))
            now_ns = end_ns + 1_000
        launch_ns = now_ns + 30_000
        step_ns = (launch_ns - now_ns) // len(wanted)
        for number, (size, start_ns, end_ns) in enumerate(wanted):
            begin_ns = now_ns + number * step_ns
            event = self.event(comm, Op.REDUCE_SCATTER, begin_ns, begin_ns + step_ns, size)
            self.call(Op.REDUCE_SCATTER, group, start_ns, end_ns, size, [event])
        return launch_ns + 1_000

    def comm(self, group: int, pair: int = -1) -> Comm:
        ranks = GROUPS[group]
        rank, size = ranks.index(RANK), len(ranks)
        if pair >= 0:
            rank, size = int(rank > ranks.index(pair)), 2
        return self.comms.setdefault((group, pair), Comm(len(self.comms), group, rank, size))

    def event(
        self, comm: Comm, op: int, after_ns: int, before_ns: int, size: int, *, peer: int = -1
    ) -> Made:
        issue_ns = self.random.randrange(after_ns, before_ns)
        late_ns = self.random.choice((0,) * 600 + (300 * MS, 1500 * MS))
        start_ns = max(issue_ns + 5_000, comm.device_free_ns)
        end_ns = start_ns + self.random.randrange(10_000, 100_000) + late_ns
        comm.device_free_ns = end_ns
        flags = Flag.GPU_TIME | (Flag.PARTIAL if self.random.random() < 0.02 else 0)
        made = Made(
            event_record(op, comm.index, comm.seq, issue_ns, start_ns, end_ns, size, peer=peer,
                         flags=flags),
            end_ns + self.random.randrange(1000, 50_000),
        )  # fmt: skip
        comm.seq += 1
        self.events.append(made)
        return made

    def call(
        self, op: int, group: int, start_ns: int, end_ns: int, size: int, events: list[Made],
        peer: int = -1,
    ) -> None:  # fmt: skip
        key = (group, peer, op) if op in (Op.SEND, Op.RECV) else (group,)
        seq = self.seqs[key] = self.seqs.get(key, -1) + 1
        truth = (
            min(one.record.start_ns for one in events),
            max(one.record.end_ns for one in events),
            any(one.record.flags & Flag.PARTIAL for one in events),
        )
        record = call_record(op, group, seq, start_ns, end_ns, size, peer=peer)
        self.calls.append(Made(record, end_ns + 1_000, truth))

    def bytes(self) -> int:
        return 1024 * self.random.randrange(1, 500)


def joiner_of(comms: list[Comm], groups: dict[int, tuple[int, ...]] = GROUPS) -> Joiner:
    joiner = Joiner(RANK, WORLD)
    for index, ranks in groups.items():
        joiner.book.learn_group(index, ranks)
    for comm in comms:
        assert joiner.learn_comm(comm.meta)
    return joiner


@dataclass
class Replay:
    """Gives a joiner what two rings hold, round by round, as a sidecar reads them."""

    joiner: Joiner
    calls: list[Made]
    events: list[Made]
    period_ns: int = 250 * MS
    jitter_ns: int = 0
    given: list[tuple[int, Record]] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        last_ns = max(made.at_ns for made in (*self.calls, *self.events))
        calls, events = deque_of(self.calls), deque_of(self.events)
        now_ns = 0
        while now_ns <= last_ns + 2 * self.period_ns:
            now_ns += self.period_ns
            new_calls = take_until(calls, now_ns)
            new_events = take_until(events, now_ns + self.jitter_ns)
            self.joiner.add_calls(
                b"".join(raw_of(one.record, n) for n, one in new_calls), now_ns / S
            )
            self.joiner.add_events(
                b"".join(raw_of(one.record, n) for n, one in new_events), now_ns / S
            )
            if any(one.after_gap for _, one in (*new_calls, *new_events)):
                self.joiner.lost()
            self.take(self.joiner.release(now_ns / S, lambda now=now_ns: self.running(now)), now_ns)
        self.take(self.joiner.release(now_ns / S, list, final=True), now_ns)

    def __post_init__(self) -> None:
        """Fill the in-flight table as the plugin would: what finds it full is never in it."""
        self.tabled: list[Made] = []
        free_at: list[int] = []
        for made in sorted(self.events, key=lambda one: one.record.issue_ns):
            while free_at and free_at[0] <= made.record.issue_ns:
                heapq.heappop(free_at)
            if len(free_at) < at.INFLIGHT_SLOTS:
                heapq.heappush(free_at, made.at_ns)
                self.tabled.append(made)

    def running(self, now_ns: int) -> list[InFlight]:
        return [
            InFlight(
                op=made.record.code, group=made.record.group, seq=made.record.seq, step=0,
                peer=made.record.peer, payload_bytes=made.record.payload_bytes,
                start_ns=made.record.issue_ns, flags=0,
            )
            for made in self.tabled
            if made.record.issue_ns <= now_ns < made.at_ns
        ]  # fmt: skip

    def take(self, raw: bytes, now_ns: int) -> None:
        for number, record in enumerate(Rows(raw)):
            offset = number * at.RECORD_BYTES + at.RECORD_COMMIT_OFFSET
            index = at.U64.unpack_from(raw, offset)[0] - 1
            self.given.append((index, record))
            if index >= 0:
                self.delays_s.append((now_ns - self.calls[index].at_ns) / S)


def deque_of(made: list[Made]) -> list[tuple[int, Made]]:
    return list(enumerate(made))[::-1]


def take_until(ring: list[tuple[int, Made]], until_ns: int) -> list[tuple[int, Made]]:
    taken = []
    while ring and ring[-1][1].at_ns <= until_ns:
        taken.append(ring.pop())
    return taken
