from __future__ import annotations

import random

from paceline.ring.layout import Record
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.pack import in_resolution
from paceline.wire.columns import RESOLUTION_NS


def record(start_ns: int, end_ns: int, join_ns: int = 0, issue_ns: int = 0) -> Record:
    return Record(1, 2, 3, 4, 5, -1, 1 << 20, start_ns, end_ns, join_ns, issue_ns, 7)


def test_times_go_out_rounded_down_and_nothing_else_changes() -> None:
    rng = random.Random(3)
    start_ns = [rng.randrange(1 << 30, 1 << 62) for _ in range(50)]
    before = [record(at, at + rng.randrange(1 << 20), at + 5, at - 9) for at in start_ns]
    after = list(Rows(bytes(in_resolution(b"".join(map(pack_record, before))))))
    for was, now in zip(before, after, strict=True):
        for name in ("start_ns", "end_ns", "join_ns", "issue_ns"):
            assert getattr(now, name) == getattr(was, name) // RESOLUTION_NS * RESOLUTION_NS
        same = ("kind", "code", "group", "seq", "step", "peer", "payload_bytes", "flags")
        assert all(getattr(now, name) == getattr(was, name) for name in same)


def test_a_time_that_is_not_known_stays_unknown() -> None:
    (after,) = Rows(bytes(in_resolution(pack_record(record(10**15 + 77, 0)))))
    assert (after.end_ns, after.join_ns, after.issue_ns) == (0, 0, 0)
