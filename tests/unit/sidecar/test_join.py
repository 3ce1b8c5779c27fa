from __future__ import annotations

import pytest

from paceline.ring import InFlight, Record
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.join.joiner import LONGEST_WAIT_S, MAX_CALLS, WAIT_S, Joiner
from paceline.sidecar.join.rows import has_calls, without_return
from paceline.sidecar.join.strays import EVENT_WAIT_S
from paceline.vocabulary import Flag, Op, RecordKind
from tests.unit.sidecar.join_job import Job, timed
from tests.unit.sidecar.join_kit import (
    GROUPS,
    MS,
    RANK,
    Comm,
    call_record,
    event_record,
    raw_of,
)


def test_joined_call_has_device_times_its_host_call_as_issue_and_no_mark() -> None:
    job = Job()
    job.call(Op.ALL_REDUCE, 10, step=3)
    job.event(Op.ALL_REDUCE, 10.05)
    (record,) = job.wait(0.25)
    assert record.start_ns == 10_060_000
    assert record.end_ns == 10_550_000
    assert record.issue_ns == 10 * MS
    assert record.flags == Flag.GPU_TIME
    assert (record.step, record.group, record.code) == (3, 0, 1)


def test_partial_event_makes_a_partial_record() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.event(Op.ALL_REDUCE, 10.05, flags=Flag.GPU_TIME | Flag.PARTIAL)
    (record,) = job.wait(0.25)
    assert record.flags == Flag.GPU_TIME | Flag.PARTIAL


def test_several_events_of_one_call_give_its_first_start_and_last_end() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10, size=96)
    job.event(Op.ALL_REDUCE, 10.02, size=32)
    assert job.wait(0.25) == []
    job.event(Op.ALL_REDUCE, 10.06, size=64)
    (record,) = job.wait(0.25)
    assert (record.start_ns, record.end_ns) == (10_030_000, 10_560_000)


@pytest.mark.parametrize(
    ("op", "of_nccl", "size"),
    [(Op.BARRIER, Op.ALL_REDUCE, 4), (Op.ALL_TO_ALL, Op.SEND, 7), (Op.ALL_GATHER, Op.BROADCAST, 9)],
)
def test_operation_may_have_another_name_in_nccl(op: Op, of_nccl: Op, size: int) -> None:
    job = Job().prove()
    job.call(op, 10, size=0 if op == Op.BARRIER else 640)
    job.event(of_nccl, 10.05, size=size)
    job.call(Op.ALL_REDUCE, 20)
    job.event(Op.ALL_REDUCE, 20.05)
    job.wait(0.5)
    job.wait(0.5)
    assert [timed(record) for record in job.out] == [True, True]


def test_event_of_other_bytes_or_another_operation_is_not_joined() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.event(Op.ALL_REDUCE, 10.05, size=65)
    job.call(Op.ALL_REDUCE, 20)
    job.event(Op.ALL_GATHER, 20.05)
    job.wait(WAIT_S + 1)
    assert [(timed(r), r.end_ns, r.flags) for r in job.out] == [(False, 0, 0)] * 2


def test_event_in_two_calls_of_fitting_groups_is_joined_with_neither() -> None:
    job = Job(groups={0: GROUPS[0], 1: GROUPS[1]})
    job.call(Op.ALL_REDUCE, 10, group=0)
    job.call(Op.ALL_REDUCE, 10, group=1)
    job.event(Op.ALL_REDUCE, 10.05)
    job.wait(1)
    job.wait(WAIT_S + 1)
    assert not any(map(timed, job.out))


def test_bound_communicator_tells_two_groups_of_the_same_ranks_apart() -> None:
    comms = (Comm(0, 0, RANK, 8), Comm(1, 1, RANK, 8))
    job = Job(*comms, groups={0: GROUPS[0], 1: GROUPS[1]}).prove(0, 0)
    job.prove(1, 1)
    job.call(Op.ALL_REDUCE, 50, group=0)
    job.call(Op.ALL_REDUCE, 50, group=1)
    job.event(Op.ALL_REDUCE, 50.09, comm=1)
    job.event(Op.ALL_REDUCE, 50.01, comm=0)
    first, second = job.wait(0.25)
    assert (first.start_ns, second.start_ns) == (50_020_000, 50_100_000)


def test_communicator_found_in_another_group_is_unbound_and_counted() -> None:
    job = Job(groups={0: GROUPS[0], 1: GROUPS[1]}).prove(0, 0)
    job.call(Op.ALL_REDUCE, 50, group=1)
    job.event(Op.ALL_REDUCE, 50.05)
    job.wait(WAIT_S + 1)
    job.wait(EVENT_WAIT_S)
    assert job.joiner.book.contradictions == 1
    assert job.joiner.book.comms[0].group == -1
    job.prove(0, 1)


def test_communicator_of_another_size_or_place_is_never_joined() -> None:
    job = Job(Comm(0, 0, RANK - 1, 8), Comm(1, 0, RANK, 7))
    for comm in (0, 1):
        job.call(Op.ALL_REDUCE, 10 + comm)
        job.event(Op.ALL_REDUCE, 10.05 + comm, comm=comm)
    job.wait(WAIT_S + 1)
    job.wait(EVENT_WAIT_S)
    assert len(job.out) == 2
    assert not any(map(timed, job.out))
    assert job.joiner.foreign.events == 2


def test_send_may_go_by_a_communicator_of_the_pair() -> None:
    job = Job(Comm(0, 0, 1, 2))
    job.call(Op.SEND, 10, peer=2)
    job.event(Op.SEND, 10.05, peer=0)
    job.call(Op.RECV, 11, peer=7)  # here the own rank would be the first of the two
    job.event(Op.RECV, 11.05, peer=0)
    job.wait(1)
    job.wait(WAIT_S + 1)
    assert [timed(record) for record in job.out] == [True, False]


def test_batched_sends_launched_after_their_calls_are_joined_by_order() -> None:
    job = Job().prove()
    job.call(Op.SEND, 10, peer=4, size=256)
    job.call(Op.SEND, 11, peer=4, size=256)
    job.call(Op.RECV, 12, peer=6, size=256)
    job.event(Op.SEND, 13.00, peer=4, size=256)
    job.event(Op.SEND, 13.01, peer=4, size=256)
    assert job.wait(0.25) == []
    job.event(Op.RECV, 13.02, peer=6, size=256)
    records = job.wait(0.25)
    assert [record.start_ns // 1000 for record in records] == [13_010, 13_020, 13_030]


def test_batch_that_does_not_agree_in_full_is_left_alone() -> None:
    job = Job().prove()
    job.call(Op.SEND, 10, peer=4, size=256)
    job.call(Op.RECV, 11, peer=4, size=256)
    job.event(Op.SEND, 12.0, peer=4, size=256)
    job.event(Op.RECV, 12.1, peer=4, size=255)
    job.wait(WAIT_S + 1)
    assert [timed(record) for record in job.out] == [False, False]


def test_order_proves_nothing_about_what_was_there_when_records_were_lost() -> None:
    job = Job().prove()
    job.call(Op.SEND, 10, peer=4, size=256)
    job.joiner.lost()
    job.event(Op.SEND, 12.0, peer=4, size=256)
    job.wait(WAIT_S + 1)
    assert [timed(record) for record in job.out] == [False]
    job.call(Op.SEND, 20, peer=4, size=256)
    job.event(Op.SEND, 22.0, peer=4, size=256)
    assert [timed(record) for record in job.wait(0.25)] == [True]


def test_call_waits_while_its_communicator_has_something_in_flight() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.running = [
        InFlight(op=1, group=0, seq=3, step=0, peer=-1, payload_bytes=64, start_ns=10_050_000,
                 flags=0)
    ]  # fmt: skip
    assert job.wait(LONGEST_WAIT_S - 1) == []
    assert [timed(record) for record in job.wait(2)] == [False]


def test_call_without_an_event_goes_once_a_later_one_has_finished() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.call(Op.ALL_REDUCE, 20)
    job.event(Op.ALL_REDUCE, 20.05)
    assert job.wait(0.25) == []
    job.wait(0.25)
    job.wait(0.25)
    assert [timed(record) for record in job.out] == [False, True]


def test_records_leave_in_the_order_of_the_ring() -> None:
    job = Job().prove()
    phase = Record(RecordKind.PHASE, 1, 0, 0, 0, -1, 0, 5, 6, 0, 0, 0)
    step = Record(RecordKind.STEP, 0, 0, 0, 7, -1, 0, 5, 9, 0, 0, 0)
    first = job.calls
    job.add(phase)
    job.call(Op.ALL_REDUCE, 10)
    job.add(step)
    job.call(Op.ALL_REDUCE, 20)
    job.event(Op.ALL_REDUCE, 20.05)
    assert job.wait(0.1) == [phase]
    assert job.joiner.calls_tail == first + 1
    assert job.joiner.events_tail == job.events - 1  # a later sidecar would need it again
    job.event(Op.ALL_REDUCE, 10.05)
    assert [record.kind for record in job.wait(0.1)] == [1, 3, 1]
    assert job.joiner.calls_tail is None
    assert job.joiner.events_tail is None


def test_room_is_kept_and_what_is_left_is_told() -> None:
    job = Job()
    raw = b"".join(
        raw_of(Record(RecordKind.PHASE, 1, 0, n, 0, -1, 0, 5, 6, 0, 0, 0), n) for n in range(100)
    )
    job.joiner.add_calls(raw, 0)
    first = Rows(job.joiner.release(0, list, room=60))
    assert job.joiner.more
    second = Rows(job.joiner.release(0, list, room=60))
    assert not job.joiner.more
    assert [record.seq for record in [*first, *second]] == list(range(100))


def test_more_calls_than_may_be_held_are_let_go_from_the_oldest() -> None:
    job = Job().prove()
    raw = b"".join(
        raw_of(call_record(Op.ALL_REDUCE, 0, n, n * MS, n * MS + 1000), n)
        for n in range(10, MAX_CALLS + 20)
    )
    job.joiner.add_calls(raw, job.now_s)
    assert len(Rows(job.joiner.release(job.now_s, list))) == 10


def test_what_an_earlier_sidecar_judged_is_not_counted_again() -> None:
    job = Job()
    job.joiner.resume()
    job.event(Op.ALL_REDUCE, 5)
    job.call(Op.ALL_REDUCE, 10)
    job.event(Op.ALL_REDUCE, 10.05)
    job.wait(EVENT_WAIT_S + 1)
    job.wait(EVENT_WAIT_S + 1)
    assert [timed(record) for record in job.out] == [True]
    assert (job.joiner.foreign.events, job.joiner.strays.unjoined) == (0, {})


def test_description_of_a_communicator_that_cannot_be_read_is_refused() -> None:
    joiner = Joiner(0, 1)
    for entry in ({}, {"comm": "x"}, {"comm": 1, "rank": None, "nranks": 2}):
        assert not joiner.learn_comm(entry)


def test_end_that_is_only_the_return_is_taken_out_of_every_record() -> None:
    records = [
        call_record(Op.ALL_REDUCE, 0, 0, 100, 200),
        Record(1, 1, 0, 1, 0, -1, 8, 100, 300, 150, 100, Flag.ASYNC),
        call_record(Op.SEND, 0, 2, 400, 500, peer=2)._replace(flags=Flag.HOST_RETURN | Flag.ASYNC),
    ]
    raw = b"".join(map(pack_record, records))
    assert has_calls(raw)
    found = without_return(raw)
    assert not has_calls(found)
    assert [(r.end_ns, r.flags) for r in Rows(found)] == [(0, 0), (300, 2), (0, 2)]
    assert without_return(found) is found


def test_release_that_was_not_seen_leaves_the_arrival_on_the_device() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    event = event_record(Op.ALL_REDUCE, 0, 9, 10_050_000, 10_060_000, 0)
    job.joiner.add_events(raw_of(event, job.events), job.now_s)
    (record,) = job.wait(0.25)
    assert (record.start_ns, record.end_ns, record.flags) == (10_060_000, 0, Flag.GPU_TIME)


def test_event_that_was_not_seen_on_the_device_leaves_the_release_unknown() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.event(Op.ALL_REDUCE, 10.05, flags=0)
    (record,) = job.wait(0.25)
    assert (record.start_ns, record.end_ns, record.flags) == (10 * MS, 0, 0)
    assert job.joiner.strays.unjoined == {}


def test_event_of_unknown_bytes_is_joined_once_a_later_one_has_finished() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.event(Op.ALL_REDUCE, 10.05, size=0)
    job.call(Op.ALL_REDUCE, 20)
    job.event(Op.ALL_REDUCE, 20.05)
    job.wait(0.3)
    job.wait(0.3)
    job.wait(0.3)
    assert [timed(record) for record in job.out] == [True, True]
    assert job.joiner.book.contradictions == 0


def test_what_runs_on_the_device_is_the_oldest_call_without_an_event() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10, step=4)
    job.call(Op.ALL_REDUCE, 20, step=5)
    runs = InFlight(
        op=1, group=0, seq=7, step=0, peer=-1, payload_bytes=64, start_ns=90 * MS,
        flags=Flag.GPU_TIME,
    )  # fmt: skip
    queued = InFlight(
        op=1, group=0, seq=8, step=0, peer=-1, payload_bytes=64, start_ns=20_050_000, flags=0
    )
    assert [one.step for one in job.joiner.pending([], [queued, runs])] == [4, 5]
