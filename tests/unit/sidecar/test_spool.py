from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.sidecar.segment import ENTRY, Damage, entries
from paceline.sidecar.spool import Spool
from paceline.wire.codec import decode_frame, encode_frame, encode_rows
from paceline.wire.frames import Frame

A, B = "aa" * 16, "bb" * 16
LIMIT = 1 << 20


def frame(seq: int, incarnation: str = A, dropped: dict[str, int] | None = None) -> bytes:
    return encode_frame(
        Frame(
            job="j",
            run_id="r",
            attempt=0,
            rank=0,
            world_size=1,
            incarnation=incarnation,
            frame_seq=seq,
            node="n",
            producer="p",
            count=0,
            columns=encode_rows(()),
            dropped=dropped or {},
            info={"noise": os.urandom(300).hex()},
        )
    )


def put(spool: Spool, tail: int, incarnation: str = A, ended: bool = False, **more: object) -> bool:
    progress = spool.progress.get(incarnation)
    seq = progress.next_seq if progress else 0
    data = frame(seq, incarnation, **more)  # type: ignore[arg-type]
    return spool.append(data, incarnation=incarnation, ring_tail=tail, records=10, ended=ended)


def take_all(spool: Spool, max_bytes: int = 1 << 20) -> list[int]:
    taken: list[int] = []
    while (batch := spool.next_batch(max_bytes)) is not None:
        taken += [decode_frame(entry.body).frame_seq for entry in batch.frames]
        spool.acknowledge(batch, [])
    return taken


def test_frames_come_out_in_order_and_only_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    for tail in range(10):
        assert put(spool, tail)
    assert take_all(spool, max_bytes=1500) == list(range(10))
    assert spool.unacknowledged_bytes == 0
    spool.close()


def test_batch_that_was_not_delivered_comes_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    put(spool, 1)
    first = spool.next_batch(1 << 20)
    spool.release()
    again = spool.next_batch(1 << 20)
    assert first is not None
    assert again is not None
    assert first.body == again.body
    spool.close()


def test_progress_and_acknowledgement_outlive_the_process(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    for tail in (100, 200):
        put(spool, tail, dropped={"ring_overwritten": 7, "hook_errors": 2})
    put(spool, 50, incarnation=B, ended=True)
    batch = spool.next_batch(frame_bytes := len(frame(0)) + 10)
    assert batch is not None
    assert len(batch.frames) == 1, frame_bytes
    spool.acknowledge(batch, [])
    spool._owner.release()  # as kill -9 does; nothing else is closed

    again = Spool(tmp_path, LIMIT)
    assert (again.progress[A].next_seq, again.progress[A].ring_tail) == (2, 200)
    assert again.progress[A].dropped == {"ring_overwritten": 7}  # the ring itself tells the rest
    assert again.progress[B].ended
    assert take_all(again) == [1, 0]
    again.close()
    spool.close()


def test_progress_outlives_the_segments_that_it_was_written_in(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    put(spool, 5, incarnation=B)
    for tail in range(100):
        put(spool, tail)
        take_all(spool)
    assert len(list(tmp_path.glob("*.seg"))) <= 2
    spool._owner.release()
    again = Spool(tmp_path, 64 << 10)
    assert again.progress[B].ring_tail == 5
    assert again.progress[A].next_seq == 100
    assert take_all(again) == []
    again.close()
    spool.close()


def test_full_spool_drops_the_oldest_and_counts_records(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    for tail in range(300):
        assert put(spool, tail)
    assert sum(p.stat().st_size for p in tmp_path.glob("*.seg")) <= 64 << 10
    kept = take_all(spool)
    assert kept == list(range(300 - len(kept), 300))
    assert spool.progress[A].dropped == {"spool_full": 10 * (300 - len(kept))}
    spool.close()


def test_batch_in_flight_is_not_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    put(spool, 0)
    batch = spool.next_batch(1 << 20)
    assert batch is not None
    for tail in range(1, 300):
        put(spool, tail)
    lost_before = spool.progress[A].dropped["spool_full"]
    spool.acknowledge(batch, [])
    kept = take_all(spool)
    assert lost_before == 10 * (300 - len(kept) - len(batch.frames))
    assert 0 not in kept
    spool.close()


@pytest.mark.parametrize("cut", [1, 30, ENTRY.size + 5])
def test_damaged_tail_is_cut_off_and_the_rest_is_kept(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, LIMIT)
    for tail in (10, 20, 30):
        put(spool, tail)
    spool._owner.release()
    (segment,) = tmp_path.glob("*.seg")
    os.truncate(segment, segment.stat().st_size - cut)
    again = Spool(tmp_path, LIMIT)
    assert (again.progress[A].next_seq, again.progress[A].ring_tail) == (2, 20)
    assert put(again, 30)
    assert take_all(again) == [0, 1, 2]
    again.close()
    spool.close()


def test_damage_in_the_middle_costs_only_the_frame_that_it_hit(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    for tail in (10, 20, 30):
        put(spool, tail)
    (segment,) = tmp_path.glob("*.seg")
    data = bytearray(segment.read_bytes())
    found = [e for e in entries(bytes(data)) if not isinstance(e, Damage)]
    data[found[2].start + ENTRY.size + 20] ^= 0xFF
    segment.write_bytes(bytes(data))
    assert take_all(spool) == [0, 2]
    spool.close()


def test_refused_frames_are_counted_at_the_next_round(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    put(spool, 10)
    batch = spool.next_batch(1 << 20)
    assert batch is not None
    spool.acknowledge(batch, [(batch.frames[0], "collector_refused")])
    spool.settle()
    assert spool.progress[A].dropped == {"collector_refused": 10}
    spool._owner.release()
    again = Spool(tmp_path, LIMIT)
    assert again.progress[A].dropped == {"collector_refused": 10}
    again.close()
    spool.close()


def test_spool_leaves_nothing_behind_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", LIMIT)
    put(spool, 10, ended=True)
    take_all(spool)
    spool.forget(A)
    spool.close()
    assert not (tmp_path / "spool").exists()


def test_disk_that_takes_no_more_leaves_the_records_where_they_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    put(spool, 10)
    real = spool._fd
    spool._fd = os.open("/dev/full", os.O_WRONLY)
    assert not put(spool, 20)
    assert (spool.progress[A].next_seq, spool.progress[A].ring_tail) == (1, 10)
    os.close(spool._fd)
    spool._fd = real
    assert put(spool, 20)
    assert take_all(spool) == [0, 1]
    spool.close()


def test_spool_that_cannot_be_made_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="PACELINE_SPOOL_DIR"):
        Spool(tmp_path / "file" / "spool", LIMIT)
