"""Many calls at once are joined as each of them would be."""

from __future__ import annotations

import random

import pytest

from paceline.ring import Record
from paceline.sidecar.join import joiner as joiner_module
from paceline.sidecar.join.joiner import WAIT_S, Joiner
from paceline.vocabulary import Flag, Op, RecordKind
from tests.unit.sidecar.join_job import Job, timed
from tests.unit.sidecar.join_kit import (
    GROUPS,
    MS,
    RANK,
    Comm,
    Process,
    Replay,
    call_record,
    event_record,
    joiner_of,
    raw_of,
)
from tests.unit.sidecar.test_join_simulated import lose

TWO = (Comm(0, 0, RANK, 8), Comm(1, 1, RANK, 8))


def bound(*comms: Comm) -> Job:
    """A job whose communicators are bound, each to the group of its number."""
    comms = comms or TWO[:1]
    job = Job(*comms, groups={comm.group: GROUPS[comm.group] for comm in comms})
    for comm in comms:
        job.prove(comm.index, comm.group)
    return job


def give(job: Job, calls: list[Record], events: list[Record]) -> None:
    first_call, first_event = job.calls, job.events
    job.joiner.add_calls(
        b"".join(raw_of(record, first_call + n) for n, record in enumerate(calls)), job.now_s
    )
    job.joiner.add_events(
        b"".join(raw_of(record, first_event + n) for n, record in enumerate(events)), job.now_s
    )
    job.calls += len(calls)
    job.events += len(events)


def call_at(at_ms: float, group: int = 0, size: int = 64, length_us: int = 100) -> Record:
    start_ns = int(at_ms * MS)
    return call_record(Op.ALL_REDUCE, group, 0, start_ns, start_ns + length_us * 1000, size)


def event_at(at_ms: float, comm: int = 0, size: int = 64, flags: int = Flag.GPU_TIME) -> Record:
    issue_ns = int(at_ms * MS) + 50_000
    return event_record(
        Op.ALL_REDUCE, comm, 0, issue_ns, issue_ns + 10_000, issue_ns + 90_000, size, flags=flags
    )


def starts_ms(records: list[Record]) -> list[float]:
    """Return when the joined ones were called by what the device says, 0 for the others."""
    return [(record.start_ns - 60_000) / MS if timed(record) else 0 for record in records]


@pytest.fixture
def slow_events(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the events that are looked at one by one."""
    counted: list[int] = []
    take = Joiner._take_event

    def count(self: Joiner, raw: bytes, number: int, now_s: float) -> None:
        counted.append(number)
        take(self, raw, number, now_s)

    monkeypatch.setattr(Joiner, "_take_event", count)
    return counted


def test_groups_in_turn_with_steps_between_are_joined_without_a_look_at_each(
    slow_events: list[int],
) -> None:
    job = bound(*TWO)
    slow_events.clear()
    step = Record(RecordKind.STEP, 0, 0, 0, 7, -1, 0, 5, 9, 0, 0, 0)
    calls = [call_at(100 + n, group=n % 2, size=64 + n) for n in range(600)]
    events = [event_at(100 + n, comm=n % 2, size=64 + n) for n in range(600)]
    give(job, [*calls[:50], step, *calls[50:]], sorted(events, key=lambda one: one.group))
    out = job.wait(0.25)
    assert out.pop(50) == step
    assert starts_ms(out) == [100 + n for n in range(600)]
    assert {record.flags for record in out} == {Flag.GPU_TIME}
    assert slow_events == []


def test_events_that_come_rounds_after_their_calls_are_joined_from_several_reads(
    slow_events: list[int],
) -> None:
    job = bound()
    slow_events.clear()
    for first in (100, 200, 300):
        give(job, [call_at(first + n) for n in range(100)], [])
        assert job.wait(0.25) == []
    give(job, [], [event_at(100 + n) for n in range(250)])
    assert starts_ms(job.wait(0.25)) == [100 + n for n in range(250)]
    assert job.joiner.calls_tail == 3 + 250
    give(job, [], [event_at(350 + n) for n in range(50)])
    assert starts_ms(job.wait(0.25)) == [350 + n for n in range(50)]
    assert len(slow_events) <= 4, "the call that was looked at in each round"


def test_lost_event_costs_its_own_call_alone() -> None:
    job = bound()
    give(
        job,
        [call_at(100 + n) for n in range(300)],
        [event_at(100 + n) for n in range(300) if n != 120],
    )
    for _ in range(4):
        job.wait(0.5)
    assert starts_ms(job.out) == [100 + n if n != 120 else 0 for n in range(300)]


def test_lost_call_leaves_its_event_and_no_other_unjoined() -> None:
    job = bound()
    give(
        job,
        [call_at(100 + n) for n in range(300) if n != 120],
        [event_at(100 + n) for n in range(300)],
    )
    job.wait(0.25)
    assert starts_ms(job.out) == [100 + n for n in range(300) if n != 120]
    job.wait(WAIT_S * 10)
    assert job.joiner.strays.outside_calls == 1


def test_what_is_not_usual_is_left_to_the_whole_rule_and_the_rest_goes_on() -> None:
    job = bound()
    odd = {10: Flag.GPU_TIME | Flag.PARTIAL, 20: Flag(0)}
    give(
        job,
        [call_at(100 + n) for n in range(40)],
        [event_at(100 + n, flags=odd.get(n, Flag.GPU_TIME)) for n in range(40)],
    )
    out = job.wait(0.25)
    assert [record.flags for record in out] == [odd.get(n, Flag.GPU_TIME) for n in range(40)]


def test_calls_of_several_threads_that_came_back_in_another_order_are_joined() -> None:
    job = bound()
    give(
        job,
        [call_at(100 + (n ^ 1)) for n in range(100)],
        [event_at(100 + n) for n in range(100)],
    )
    give(job, [call_at(199.5), call_at(300)], [event_at(199.5), event_at(300)])
    assert starts_ms(job.wait(0.25)) == [*(100 + (n ^ 1) for n in range(100)), 199.5, 300]


def test_event_within_two_calls_of_its_group_is_joined_with_neither() -> None:
    job = bound()
    give(job, [call_at(100, length_us=2000), call_at(101)], [event_at(101)])
    job.wait(WAIT_S + 1)
    assert starts_ms(job.out) == [0, 0]


def test_held_back_calls_keep_the_events_that_they_were_joined_with() -> None:
    job = bound()
    first = job.events
    give(job, [call_at(100 + n) for n in range(10)], [event_at(100 + n) for n in range(1, 10)])
    assert job.wait(0.1) == []
    assert job.joiner.events_tail == first, "a later sidecar needs them again"
    give(job, [], [event_at(100)])
    assert len(job.wait(0.1)) == 10
    assert (job.joiner.calls_tail, job.joiner.events_tail) == (None, None)


def test_call_of_a_group_that_was_never_described_is_given_up() -> None:
    job = bound()
    give(job, [call_at(100, group=9), call_at(101)], [event_at(101)])
    assert starts_ms(job.wait(0.1)) == [0, 101]


def test_more_groups_than_are_told_apart_at_a_glance_are_joined_too() -> None:
    comms = [Comm(n, 300 * n, RANK, 8) for n in range(20)]
    job = Job(*comms, groups={comm.group: GROUPS[0] for comm in comms})
    for comm in comms:
        job.prove(comm.index, comm.group)
    calls = [call_at(500 + n, group=300 * (n % 20)) for n in range(200)]
    give(job, calls, [event_at(500 + n, comm=n % 20) for n in range(200)])
    assert starts_ms(job.wait(0.25)) == [500 + n for n in range(200)]


def test_roots_must_agree_where_both_are_known() -> None:
    job = bound(Comm(0, 2, 1, 4))  # of ranks 4 to 7
    calls, events = [], []
    for n, (peer, root) in enumerate([(4, 0), (5, -1), (-1, 2), (6, 3), (7, 3)]):
        start_ns = (100 + n) * MS
        calls.append(call_record(Op.BROADCAST, 2, n, start_ns, start_ns + 100_000, peer=peer))
        events.append(event_at(100 + n)._replace(code=Op.BROADCAST, peer=root))
    give(job, calls, events)
    job.wait(1)
    job.wait(WAIT_S + 1)
    assert starts_ms(job.out) == [100, 101, 102, 0, 104]


@pytest.mark.parametrize("seed", range(30, 42))
def test_without_the_short_way_the_same_comes_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(seed, until_ns=3_000 * MS, late=seed % 2 == 0)
    if seed % 3 == 1:
        process.events = lose(process.events, random.Random(seed), 0.02)
    if seed % 3 == 2:
        process.calls = lose(process.calls, random.Random(seed), 0.02)

    def outcome() -> tuple[object, ...]:
        joiner = joiner_of(list(process.comms.values()))
        replay = Replay(joiner, process.calls, process.events)
        replay.run()
        strays = joiner.strays
        return (
            replay.given, replay.delays_s, joiner.unmeasured_calls, strays.outside_calls,
            strays.unjoined, joiner.foreign.events, joiner.book.contradictions,
        )  # fmt: skip

    short = outcome()
    monkeypatch.setattr(joiner_module, "join_run", lambda *_: 0)
    monkeypatch.setattr(joiner_module, "join_oldest", lambda *_: False)
    assert outcome() == short
