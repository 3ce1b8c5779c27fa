from __future__ import annotations

from paceline.ring import InFlight, Record
from paceline.sidecar.join.book import PROOFS
from paceline.sidecar.join.foreign import STRAYS
from paceline.sidecar.join.joiner import WAIT_S
from paceline.sidecar.join.strays import EVENT_WAIT_S
from paceline.vocabulary import Flag, Op, RecordKind
from tests.unit.sidecar.join_job import Job
from tests.unit.sidecar.join_kit import (
    MS,
    RANK,
    Comm,
    S,
    call_record,
)


def test_events_of_steps_that_were_not_recorded_are_no_loss() -> None:
    job = Job().prove()
    for number in range(20):
        job.event(Op.ALL_REDUCE, 100 + number)
    job.wait(EVENT_WAIT_S + 1)
    assert job.joiner.strays.outside_calls == 20
    assert job.joiner.strays.unjoined == {}
    assert job.joiner.foreign.events == 0


def test_event_that_comes_after_its_call_was_given_up_is_counted_by_communicator() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10)
    job.wait(WAIT_S + 1)
    job.event(Op.ALL_REDUCE, 10.05)
    job.wait(EVENT_WAIT_S + 1)
    assert job.joiner.strays.unjoined == {f"{0:016x}": 1}


def test_library_that_calls_nccl_itself_gets_a_group_of_its_own() -> None:
    job = Job(Comm(0, 0, RANK, 8))
    step = Record(RecordKind.STEP, 0, 0, 0, 6, -1, 0, 1 * S, 2 * S, 0, 0, 0)
    for number in range(STRAYS):
        job.event(Op.ALL_REDUCE, 100 + number)
    job.wait(EVENT_WAIT_S + 1)
    job.event(Op.ALL_REDUCE, 1500)
    job.event(Op.ALL_GATHER, 2500)
    assert job.wait(0.25) == []  # their steps are not known yet
    job.add(step)
    assert [(r.kind, r.code, r.step) for r in job.wait(0.25)] == [(3, 0, 6), (1, Op.ALL_REDUCE, 6)]
    assert [(r.code, r.step) for r in job.wait(0.25, final=True)] == [(Op.ALL_GATHER, 7)]
    (index,) = job.joiner.foreign.groups
    assert {record.group for record in job.out if record.kind == 1} == {index}
    assert job.joiner.foreign.groups[index] == f"nccl:{0:016x}"


def test_calls_that_the_hooks_timed_themselves_are_not_counted_a_second_time() -> None:
    job = Job(Comm(0, 0, RANK, 8))
    for number in range(3 * STRAYS):
        begin = 100 + 10 * number
        timed_call = call_record(Op.ALL_REDUCE, 0, number, begin * MS, (begin + 5) * MS)
        job.add(timed_call._replace(flags=Flag.GPU_TIME))
        job.event(Op.ALL_REDUCE, begin + 0.05)
    job.wait(EVENT_WAIT_S + 1)
    job.wait(EVENT_WAIT_S + 1, final=True)
    assert len(job.out) == 3 * STRAYS
    assert job.joiner.foreign.groups == {}


def test_foreign_communicator_of_some_ranks_is_only_counted() -> None:
    job = Job(Comm(0, 0, 1, 4))
    for number in range(3 * STRAYS):
        job.event(Op.ALL_REDUCE, 100 + number)
    job.wait(EVENT_WAIT_S + 1)
    assert job.wait(1, final=True) == []
    assert job.joiner.foreign.events == 3 * STRAYS


def test_pending_is_what_is_in_a_call_and_what_came_back_and_still_runs() -> None:
    job = Job().prove()
    job.call(Op.ALL_REDUCE, 10, step=4)
    mine = InFlight(op=1, group=0, seq=9, step=5, peer=-1, payload_bytes=8, start_ns=1, flags=0)
    on_device = InFlight(
        op=1, group=0, seq=77, step=0, peer=-1, payload_bytes=64, start_ns=10_050_000, flags=0
    )
    elsewhere = InFlight(
        op=1, group=0, seq=78, step=0, peer=-1, payload_bytes=64, start_ns=90_000_000, flags=0
    )
    found = job.joiner.pending([mine], [on_device, on_device, elsewhere])
    assert [(one.group, one.seq, one.step) for one in found] == [(0, 9, 5), (0, PROOFS, 4)]
