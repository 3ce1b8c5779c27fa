from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.ranks import parse_ranks
from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring import layout as at
from paceline.sidecar.discovery import Discovery
from paceline.sidecar.follow import FLUSH_RECORDS, FLUSH_S, HEARTBEAT_S, Follower, flush_period_s
from paceline.sidecar.pack import job_name, pack
from paceline.sidecar.progress import Progress
from paceline.wire.codec import decode_frame


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    identity = new_identity(
        job="a job/1",
        run_id="run",
        attempt=0,
        rank=0,
        local_rank=0,
        world_size=4,
        node="node",
        boot_id="boot",
        time_namespace=1,
        producer="test",
    )
    writer = RingWriter(tmp_path, identity)
    yield writer
    writer.close()


@pytest.fixture
def follower(ring: RingWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    reader = RingReader(ring.path)
    # A lock is never seen by the process that holds it, and here writer and reader share one.
    monkeypatch.setattr(reader, "writer_alive", lambda: True)
    following = Follower(reader, Progress(), "")
    yield following
    following.close()


def write(ring: RingWriter, count: int, group: int = 0, start_ns: int = 1) -> None:
    for seq in range(count):
        ring.record(1, 1, group, seq, 0, -1, 8, start_ns + seq, start_ns + seq + 1)


def test_few_records_wait_a_second_and_many_do_not(ring: RingWriter, follower: Follower) -> None:
    follower.poll(0.0)
    assert follower.due(0.0)  # the first chunk tells that the rank is there
    follower.taken(0.0)
    write(ring, 5)
    follower.poll(0.1)
    assert not follower.due(0.1)
    assert follower.due(FLUSH_S)
    write(ring, FLUSH_RECORDS)
    follower.poll(0.2)
    assert follower.due(0.2)


@pytest.mark.parametrize(("world_size", "period_s"), [(1, 1.0), (4096, 1.0), (4097, 2.0)])
def test_ranks_of_very_large_jobs_send_half_as_often(world_size: int, period_s: float) -> None:
    assert flush_period_s(world_size) == period_s


def test_silent_rank_gives_a_heartbeat(ring: RingWriter, follower: Follower) -> None:
    follower.taken(0.0)
    ring.heartbeat(step=12)
    ring.begin(1, 3, 44, 12, -1, 8, 100)
    ring.meta({"group": 3, "name": "tp", "ranks": "0-1", "epoch": 0, "mesh_dim": "tp"})
    follower.poll(FLUSH_S)
    assert not follower.due(FLUSH_S)
    assert follower.due(HEARTBEAT_S)
    frame = decode_frame(pack(follower.chunk(), 0, with_info=True)[0])
    assert (frame.count, frame.step, frame.ended) == (0, 12, "")
    assert [(p.group, p.seq) for p in frame.pending] == [(3, 44)]
    assert [(g.index, g.name, parse_ranks(g.ranks)) for g in frame.groups] == [(3, "tp", (0, 1))]


def test_frame_carries_only_the_groups_that_it_uses(ring: RingWriter, follower: Follower) -> None:
    for index in range(5):
        ring.meta({"group": index, "name": f"g{index}", "ranks": "0-3", "epoch": 0})
    write(ring, 3, group=2)
    ring.record(2, 1, 0, 0, 0, -1, 0, 5, 6)
    follower.poll(0.0)
    frame = decode_frame(pack(follower.chunk(), 0, with_info=True)[0])
    assert [group.index for group in frame.groups] == [2]
    assert frame.job == "a_job_1"


def test_losses_of_the_writer_are_told(ring: RingWriter, follower: Follower) -> None:
    ring.count(at.HOOK_ERRORS_OFFSET)
    ring.count(at.DROPPED_META_OFFSET)
    ring.count(at.DROPPED_INFLIGHT_OFFSET)
    follower.poll(0.0)
    chunk = follower.chunk()
    assert chunk.dropped == {"hook_errors": 1, "meta_full": 1}
    assert chunk.info == {"inflight_full": "1"}


def test_record_that_no_frame_can_hold_is_left_out_and_counted(
    ring: RingWriter, follower: Follower
) -> None:
    write(ring, 2)
    ring.record(1, 1, 0, 1 << 63, 0, -1, 8, 1, 2)
    follower.poll(0.0)
    data, refused = pack(follower.chunk(), 0, with_info=True)
    frame = decode_frame(data)
    assert frame.count == 2
    assert refused == 1
    assert frame.dropped == {"unencodable": 1}


def test_ring_ends_only_after_its_last_record_was_read(
    ring: RingWriter, follower: Follower
) -> None:
    write(ring, 9000)
    ring.close()
    taken = 0
    rounds = 0
    while not follower.ended:
        follower.poll(float(rounds))
        taken += len(follower.chunk().rows)
        follower.taken(float(rounds))
        rounds += 1
    assert taken == 9000
    assert follower.ended == "closed"
    assert rounds == 3


def test_full_buffer_stops_reading_until_it_is_taken(ring: RingWriter, follower: Follower) -> None:
    write(ring, 9000)
    for _ in range(5):
        assert follower.poll(0.0)
    assert len(follower.chunk().rows) == 4096
    assert follower.chunk().tail == 4096


def test_strange_metadata_is_counted_and_survived(ring: RingWriter, follower: Follower) -> None:
    ring.meta({"group": "zero"})
    ring.meta({"group": 1, "epoch": None})
    ring.meta({"torch": "2.13", "nested": {"a": 1}})
    follower.poll(0.0)
    chunk = follower.chunk()
    assert chunk.dropped == {"meta_corrupt": 2}
    assert chunk.info == {"torch": "2.13"}


def test_job_names_become_safe() -> None:
    assert job_name("../a b") == ".._a_b"
    assert job_name("") == "unnamed"


def test_discovery_returns_each_ring_once_and_skips_the_rest(
    ring: RingWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"x.{secrets.token_hex(4)}.tmp").write_bytes(b"")
    (tmp_path / "link.ring").symlink_to(ring.path)
    (tmp_path / "short.ring").write_bytes(b"PACERING")
    discovery = Discovery(tmp_path)
    found = discovery.look()
    assert [reader.path for reader in found] == [ring.path]
    assert discovery.look() == []
    for reader in found:
        reader.close()


def test_a_frame_tells_the_time_of_its_records_clock_and_a_checkpoint_that_goes_on(
    ring: RingWriter, follower: Follower
) -> None:
    ring.saving(77)
    ring.heartbeat(3)
    follower.poll(0.0)
    frame = decode_frame(pack(follower.chunk(), 0, with_info=False)[0])
    # The ring is of another boot, so its own sign of life is the only time on its clock.
    assert frame.read_mono_ns == follower.now_ns() > 0
    assert frame.checkpoint_mono_ns == 77
    ring.saving(0)
    assert decode_frame(pack(follower.chunk(), 1, with_info=False)[0]).checkpoint_mono_ns == 0
