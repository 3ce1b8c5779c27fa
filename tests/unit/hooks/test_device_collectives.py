from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.hooks.device_collectives import C10D
from paceline.hooks.device_marks import MAX_EVENTS
from paceline.vocabulary import Flag, Op
from tests.simulator.gpu import MS
from tests.unit.hooks.device_kit import Rank

RESOLUTION_NS = 1_000
EXACT = int(Flag.GPU_TIME)
BOUND = int(Flag.GPU_TIME | Flag.PARTIAL)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    rank = Rank(tmp_path)
    yield rank
    rank.close()


def test_a_synchronous_collective_is_timed_from_data_ready_to_its_end(rank: Rank) -> None:
    rank.gpu.work(30 * MS)
    call = rank.sync(7 * MS)
    rank.poll()
    record = rank.only()
    assert record.flags == EXACT
    assert record.end_ns - record.start_ns == pytest.approx(7 * MS, abs=RESOLUTION_NS)
    assert record.start_ns == pytest.approx(rank.gpu.host_time(call.begin_ns), abs=20_000)
    assert record.issue_ns == call.entry.start_ns
    assert record.join_ns == record.start_ns
    assert record.start_ns - record.issue_ns == pytest.approx(30 * MS, abs=50_000)


def test_nothing_is_written_before_the_device_has_done_it(rank: Rank) -> None:
    rank.sync(500 * MS)
    rank.poll()
    assert rank.records() == []
    assert [entry.seq for entry in rank.inflight()] == [0]
    rank.poll(500 * MS)
    assert len(rank.records()) == 1
    assert rank.inflight() == []


def test_a_hang_stays_in_the_table_of_what_is_in_flight(rank: Rank) -> None:
    rank.gpu.hang()
    rank.sync(1 * MS)
    for _ in range(50):
        rank.poll()
    assert rank.records() == []
    assert [(entry.seq, entry.op) for entry in rank.inflight()] == [(0, Op.ALL_REDUCE)]
    rank.gpu.recover(rank.gpu.current)
    rank.poll()
    assert rank.only().flags == EXACT


def test_one_stream_that_hangs_does_not_hold_up_another(rank: Rank) -> None:
    usual, rank.gpu.current = rank.gpu.current, rank.gpu.stream()
    rank.gpu.hang()
    rank.sync(MS)
    rank.gpu.current = usual
    rank.sync(MS)
    rank.poll()
    assert rank.only().seq == 1


def test_an_asynchronous_collective_has_an_arrival_and_no_release(rank: Rank) -> None:
    rank.gpu.work(5 * MS)
    call = rank.asynchronous(20 * MS)
    rank.poll()
    assert rank.records() == []
    rank.host.advance(1_000 * MS)
    rank.sync(MS)
    rank.poll()
    record = next(record for record in rank.records() if record.seq == 0)
    assert record.flags == EXACT | Flag.ASYNC
    assert (record.end_ns, record.join_ns) == (0, 0)
    assert record.start_ns == pytest.approx(rank.gpu.host_time(call.begin_ns), abs=20_000)


def backward(rank: Rank, *durations_ms: int, waits: bool = True) -> None:
    """Autograd with one asynchronous collective after each 3 ms of compute."""
    rank.clock.backward_begin(rank.host())
    for duration_ms in durations_ms:
        rank.host.advance(MS)
        rank.gpu.work(3 * MS)
        rank.asynchronous(duration_ms * MS)
    if waits:
        rank.wait()
    rank.host.advance(MS)
    rank.clock.backward_end(rank.host())


def test_the_newest_collective_of_a_backward_is_bounded_by_its_end(rank: Rank) -> None:
    rank.sync(MS)
    backward(rank, 2, 2, 9)
    rank.poll()
    _, first, second, newest = rank.records()
    assert first.end_ns == second.end_ns == 0
    assert newest.flags == BOUND | Flag.ASYNC
    assert newest.join_ns == newest.start_ns
    assert newest.end_ns - newest.start_ns == pytest.approx(9 * MS, abs=100_000)
    assert rank.inflight() == []


def test_what_a_backward_issued_stays_in_flight_until_its_end_is_reached(rank: Rank) -> None:
    rank.sync(MS)
    rank.gpu.hang(rank.nccl)
    backward(rank, 2, 2)
    for _ in range(5):
        rank.poll()
    assert {entry.seq for entry in rank.inflight()} == {1, 2}
    assert [record.seq for record in rank.records()] == [0]


def test_a_collective_before_a_backward_is_not_bounded_by_it(rank: Rank) -> None:
    rank.sync(MS)
    rank.asynchronous(2 * MS)
    rank.host.advance(MS)
    backward(rank)
    rank.poll()
    assert [record.end_ns == 0 for record in rank.records()] == [False, True]


def test_a_send_is_not_what_a_backward_waits_for(rank: Rank) -> None:
    rank.sync(MS)
    rank.clock.backward_begin(rank.host())
    rank.host.advance(MS)
    rank.asynchronous(MS, op=Op.SEND)
    rank.clock.backward_end(rank.host())
    rank.poll()
    assert rank.records()[1].end_ns == 0


def test_on_older_torch_the_wait_inside_the_call_ends_it(rank: Rank) -> None:
    call = rank.old_torch(8 * MS)
    rank.wait()
    rank.device.collectives.waited(C10D)
    rank.poll()
    record = rank.only()
    assert rank.watched_waits == 1
    assert record.flags == EXACT
    assert record.end_ns - record.start_ns == pytest.approx(call.end_ns - call.begin_ns, abs=20_000)
    assert record.join_ns == record.start_ns


def test_a_wait_of_the_jobs_own_code_says_nothing(rank: Rank) -> None:
    rank.old_torch(8 * MS)
    rank.device.collectives.waited("my_training_loop")
    rank.host.advance(1_500 * MS)
    rank.sync(MS)
    rank.poll()
    record = next(record for record in rank.records() if record.seq == 0)
    assert record.end_ns == 0
    assert record.flags == EXACT | Flag.ASYNC


def test_asynchronous_calls_of_newer_torch_need_no_watch_on_waits(rank: Rank) -> None:
    rank.asynchronous(MS)
    assert rank.watched_waits == 0


def test_a_functional_collective_is_bounded_by_the_wait_for_its_output(rank: Rank) -> None:
    rank.asynchronous(6 * MS, output=0xA0)
    rank.gpu.work(2 * MS)
    rank.wait()
    rank.device.output_waited(0xB0)
    rank.device.output_waited(0xA0)
    rank.poll()
    record = rank.only()
    assert record.flags == BOUND | Flag.ASYNC
    assert record.end_ns - record.start_ns == pytest.approx(6 * MS, abs=50_000)
    assert record.join_ns == 0


def test_calls_that_are_gathered_have_no_end_of_their_own(rank: Rank) -> None:
    rank.coalescing = True
    rank.sync(MS)
    rank.coalescing = False
    rank.host.advance(1_500 * MS)
    rank.sync(MS)
    rank.poll()
    assert [(record.seq, record.end_ns > 0) for record in rank.records()] == [
        (0, False),
        (1, True),
    ]


def test_nothing_is_recorded_into_a_graph_that_is_captured(rank: Rank) -> None:
    rank.gpu.current.capturing = True
    call = rank.sync(MS)
    assert call.entry.timed is None
    assert rank.gpu.recorded == 0


def test_polling_does_not_disturb_a_graph_that_is_captured(rank: Rank) -> None:
    rank.sync(MS)
    rank.gpu.current.capturing = True
    rank.poll()
    assert rank.errors() == 0
    assert len(rank.records()) == 1


def test_where_queries_would_break_captures_nothing_is_timed(rank: Rank) -> None:
    rank.gpu.can_enter = False
    call = rank.sync(MS)
    rank.poll()
    record = rank.only()
    assert rank.gpu.queried == 0
    assert record.flags == Flag.HOST_RETURN
    assert (record.start_ns, record.issue_ns) == (call.entry.start_ns, call.entry.start_ns)
    assert rank.sync(MS).entry.timed is None
    assert rank.errors() == 0
    assert rank.info()["device_timers"].startswith("stopped")


def test_events_are_reused(rank: Rank) -> None:
    for _ in range(200):
        rank.sync(MS)
        rank.poll(10 * MS)
    assert len(rank.records()) == 200
    assert rank.gpu.recorded == 400
    assert rank.gpu.made < 10


def test_an_empty_pool_leaves_a_collective_untimed_and_counted(rank: Rank) -> None:
    rank.gpu.hang()
    timed = [rank.sync(MS).entry.timed for _ in range(MAX_EVENTS // 2 + 10)]
    assert timed.count(None) == 10
    assert rank.gpu.made == MAX_EVENTS
    rank.poll()
    assert rank.info()["device_untimed"] == "at least 8"
    rank.gpu.recover(rank.gpu.current)
    rank.poll()
    assert len(rank.records()) == MAX_EVENTS // 2
    assert rank.sync(MS).entry.timed is not None


def test_a_last_event_of_the_pool_gives_an_arrival_without_a_release(rank: Rank) -> None:
    rank.gpu.hang()
    rank.asynchronous(MS)
    for _ in range(MAX_EVENTS // 2):
        rank.sync(MS)
    rank.gpu.recover(rank.gpu.current)
    rank.gpu.recover(rank.nccl)
    rank.host.advance(2_000 * MS)
    rank.poll()
    rank.sync(MS)
    rank.poll()
    assert sum(record.end_ns == 0 for record in rank.records()) == 2


@pytest.mark.parametrize("where", ["arrival", "poll"])
def test_an_error_of_cuda_stops_the_timers_for_good_and_is_counted_once(
    rank: Rank, where: str
) -> None:
    rank.sync(MS)
    rank.gpu.error = "CUDA error: an illegal memory access was encountered\nmore lines"
    if where == "arrival":
        assert rank.sync(MS).entry.timed is None
    rank.poll()
    rank.gpu.error = ""
    assert rank.sync(MS).entry.timed is None
    rank.poll()
    assert rank.errors() == 1
    assert [record.flags for record in rank.records()] == [Flag.HOST_RETURN]
    assert rank.inflight() == []
    assert "illegal memory" in rank.info()["device_timers"]
    assert "more lines" not in rank.info()["device_timers"]


def test_no_memory_for_an_event_stops_the_timers(rank: Rank) -> None:
    rank.gpu.error = "CUDA out of memory"
    assert rank.sync(MS).entry.timed is None
    assert rank.errors() == 1
    assert not rank.device.timing


def test_what_is_in_flight_when_the_ring_closes_is_written_as_such(rank: Rank) -> None:
    rank.sync(MS)
    rank.gpu.hang()
    rank.sync(MS)
    rank.poll()
    rank.recorder.close()
    done, open_one = rank.records()
    assert done.flags == EXACT
    assert open_one.end_ns == 0
    assert open_one.flags & Flag.NOT_WAITED


def test_a_new_ring_gets_the_device_again_and_nothing_of_the_old(
    rank: Rank, tmp_path: Path
) -> None:
    rank.gpu.hang()
    rank.sync(MS)
    rank.poll()
    rank.recorder.guarded(rank.device.flush)
    assert rank.only().flags & Flag.NOT_WAITED
    rank.renew(tmp_path)
    rank.gpu.recover(rank.gpu.current)
    rank.sync(MS)
    rank.poll()
    assert rank.only().seq == 1
    assert rank.info()["gpu_uuid"] == "GPU-0"
    assert rank.errors() == 0
