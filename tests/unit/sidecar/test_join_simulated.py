"""The join against a simulated truth: never a wrong time, and few calls without one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from paceline.vocabulary import Flag
from tests.unit.sidecar.join_kit import MS, Made, Process, Replay, joiner_of


def judge(replay: Replay) -> tuple[int, int]:
    """Check every record that came out; return how many were joined, and of how many."""
    assert [index for index, _ in replay.given] == list(range(len(replay.calls)))
    joined = 0
    for index, record in replay.given:
        made = replay.calls[index]
        assert made.truth is not None
        assert not record.flags & Flag.HOST_RETURN
        assert record[:7] == made.record[:7]
        assert record.issue_ns == made.record.start_ns
        if record.flags & Flag.GPU_TIME:
            joined += 1
            start_ns, end_ns, _ = made.truth
            if record.flags & Flag.PARTIAL:  # a bound: more of it may have come too late
                assert start_ns <= record.start_ns <= record.end_ns <= end_ns
                continue
            assert (record.start_ns, record.end_ns, False) == made.truth, (index, made)
        else:
            assert (record.start_ns, record.end_ns) == (made.record.start_ns, 0)
    return joined, len(replay.calls)


def lose(made: list[Made], chance: random.Random, ratio: float) -> list[Made]:
    """Leave out single records and runs of them, as an overwritten ring does."""
    kept = []
    gap = 0
    lost = False
    for one in made:
        gap = gap - 1 if gap else int(chance.random() < ratio / 10) * 20
        if gap or chance.random() < ratio:
            lost = True
        else:
            kept.append(replace(one, after_gap=lost))
            lost = False
    return kept


def run(process: Process, jitter_ns: int = 0) -> tuple[Replay, int, int]:
    replay = Replay(
        joiner_of(list(process.comms.values())), process.calls, process.events, jitter_ns=jitter_ns
    )
    replay.run()
    return replay, *judge(replay)


@pytest.mark.parametrize("seed", range(10))
def test_every_call_gets_the_times_of_its_own_events(seed: int) -> None:
    # Not all: what the device kept back for seconds is given up, as it would be in a job.
    jitter_ns = random.Random(seed).choice((-20 * MS, 0, 20 * MS))
    _, joined, total = run(Process(seed), jitter_ns)
    assert joined >= 0.9 * total


@pytest.mark.parametrize("seed", range(10, 16))
def test_lost_events_leave_their_calls_without_times_and_no_other(seed: int) -> None:
    process = Process(seed)
    process.events = lose(process.events, random.Random(seed), 0.02)
    _, joined, total = run(process)
    assert 0.5 * total <= joined < total


@pytest.mark.parametrize("seed", range(16, 22))
def test_lost_calls_take_no_events_from_others(seed: int) -> None:
    process = Process(seed, late=False)
    process.calls = lose(process.calls, random.Random(seed), 0.02)
    replay, joined, total = run(process)
    assert joined >= 0.8 * total
    strays = replay.joiner.strays
    assert strays.outside_calls + replay.joiner.foreign.events + sum(strays.unjoined.values()) > 0


@pytest.mark.parametrize("seed", range(22, 26))
def test_steps_without_records_of_the_hooks_are_no_loss(seed: int) -> None:
    process = Process(seed, late=False)
    process.calls = [made for made in process.calls if made.record.start_ns // (500 * MS) % 4 != 1]
    _, joined, total = run(process)
    assert joined >= 0.9 * total
