from __future__ import annotations

from pathlib import Path

from paceline.sidecar.spool import SendBatch, Spool
from paceline.wire.codec import decode_frame
from tests.unit.sidecar.test_spool import LIMIT, A, B, put, take_all

C = "cc" * 16


def numbers(batch: SendBatch | None) -> list[tuple[str, int]]:
    assert batch is not None
    return [(e.incarnation[0], decode_frame(e.body).frame_seq) for e in batch.frames]


def spool_with(tmp_path: Path, per_process: int, limit: int = LIMIT) -> Spool:
    spool = Spool(tmp_path, limit)
    for tail in range(per_process):
        for incarnation in (A, B, C):
            put(spool, tail, incarnation)
    return spool


def set_aside(spool: Spool, incarnations: set[str], max_bytes: int = 1 << 20) -> SendBatch:
    batch = spool.next_batch(max_bytes)
    assert batch is not None
    spool.acknowledge(batch, [], [e for e in batch.frames if e.incarnation in incarnations])
    return batch


def retried(spool: Spool, *, forbidden: set[str], max_bytes: int = 1 << 20) -> list[str]:
    """Try once more what was set aside; return what was delivered."""
    spool.set_aside_due()
    delivered = []
    while (batch := spool.next_aside(max_bytes)) is not None:
        still = batch.of in forbidden
        spool.acknowledge(batch, [], batch.frames if still else [])
        delivered += [] if still else [f"{of}{seq}" for of, seq in numbers(batch)]
    return delivered


def test_what_one_process_may_not_send_is_kept_and_the_others_go_on(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 3)
    set_aside(spool, {B}, max_bytes=1)  # a 403 for one frame, which is A's
    batch = spool.next_batch(1)
    assert numbers(batch) == [("b", 0)]
    spool.acknowledge(batch, [], batch.frames)
    assert take_all(spool) == [0, 1, 1, 2, 2]
    assert spool.any_aside
    assert spool.unacknowledged_bytes > 0
    put(spool, 3, B)
    put(spool, 3, A)
    assert take_all(spool) == [3]
    assert retried(spool, forbidden={B}) == []
    assert retried(spool, forbidden=set(), max_bytes=1) == ["b0", "b1", "b2", "b3"]
    assert not spool.any_aside
    assert spool.next_batch(1) is None
    assert spool.unacknowledged_bytes == 0
    spool.close()


def test_processes_are_tried_again_one_by_one(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 2)
    set_aside(spool, {A, C})
    assert retried(spool, forbidden={A}) == ["c0", "c1"]
    assert retried(spool, forbidden={C}) == ["a0", "a1"]
    assert spool.unacknowledged_bytes == 0
    spool.close()


def test_a_restart_forgets_who_was_set_aside_and_keeps_the_frames(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 2)
    set_aside(spool, {B})
    spool.close()
    again = Spool(tmp_path, LIMIT)
    batch = again.next_batch(1 << 20)
    assert ("b", 0) in numbers(batch)
    assert ("b", 1) in numbers(batch)
    again.close()


def test_of_a_full_spool_only_what_was_not_delivered_counts_as_lost(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    put(spool, 0, B)
    set_aside(spool, {B})
    for tail in range(1, 400):
        put(spool, tail, A)
        assert len(take_all(spool)) == 1
        put(spool, tail, B)
        assert take_all(spool) == []
    kept = retried(spool, forbidden=set())
    lost = spool.progress[B].dropped["spool_full"] // 10
    assert lost > 100
    assert lost + len(kept) == 400
    assert kept == [f"b{seq}" for seq in range(400 - len(kept), 400)]
    assert "spool_full" not in spool.progress[A].dropped
    spool.close()


def test_a_spool_of_many_segments_is_retried_to_its_end(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 512 << 10)
    put(spool, 0, B)
    set_aside(spool, {B})
    for tail in range(1, 300):
        for incarnation in (A, B):
            put(spool, tail, incarnation)
    assert take_all(spool) == list(range(299))
    assert retried(spool, forbidden=set(), max_bytes=5000) == [f"b{seq}" for seq in range(300)]
    assert spool.unacknowledged_bytes == 0
    assert spool.next_batch(1) is None
    spool.close()
