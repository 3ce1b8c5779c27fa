from __future__ import annotations

import time
from pathlib import Path

import pytest

from paceline.hooks.pending import COLLECTIVE, MADE_ROOM, MAX_PENDING, Entry, Pending
from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring.writer import pack_fields
from paceline.vocabulary import Flag, Op


class NeverDone:
    """A receive whose message never comes."""

    def is_completed(self) -> bool:
        return False


@pytest.fixture
def ring(tmp_path: Path) -> RingWriter:
    identity = new_identity(
        job="job", run_id="run", attempt=0, rank=0, local_rank=0, world_size=2, node="node",
        boot_id="boot", time_namespace=1, producer="hooks",
    )  # fmt: skip
    return RingWriter(tmp_path, identity)


def receive(seq: int) -> Entry:
    fields = pack_fields(8, seq, 0, 1, 0, COLLECTIVE, int(Op.RECV))
    entry = Entry(fields, 100 + seq, 0, -1, 0, True, None)
    entry.work = NeverDone()
    return entry


def test_thousands_of_outstanding_receives_let_the_oldest_go_and_stay_cheap(
    ring: RingWriter,
) -> None:
    pending = Pending(ring)
    for seq in range(MAX_PENDING):
        pending.add(receive(seq))
    began = time.process_time()
    more = 2 * MADE_ROOM
    for seq in range(MAX_PENDING, MAX_PENDING + more):
        pending.add(receive(seq))
    spent_s = time.process_time() - began
    assert len(pending) <= MAX_PENDING
    assert spent_s / more < 200e-6  # looking through the table at each took 800
    reader = RingReader(ring.path)
    let_go = reader.poll(limit=100_000).records
    reader.close()
    ring.close()
    assert [r.seq for r in let_go] == list(range(len(let_go)))
    assert MADE_ROOM <= len(let_go) <= more
    assert all(r.flags & Flag.NOT_WAITED and r.end_ns == 0 for r in let_go)
