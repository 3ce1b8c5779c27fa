"""The join against a simulated truth: never a wrong time, and few calls without one."""

from __future__ import annotations

import random

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
    kept, gap = [], 0
    for one in made:
        gap = gap - 1 if gap else int(chance.random() < ratio / 20) * 20
        if not gap and chance.random() >= ratio:
            kept.append(one)
    return kept


@pytest.mark.parametrize("seed", range(12))
def test_every_call_gets_the_times_of_its_own_events(seed: int) -> None:
    process = Process(seed)
    jitter_ns = random.Random(seed).choice((-20 * MS, 0, 20 * MS))
    joiner = joiner_of(list(process.comms.values()))
    replay = Replay(joiner, process.calls, process.events, jitter_ns=jitter_ns)
    replay.run()
    joined, total = judge(replay)
    assert joined >= 0.9 * total, (joined, total)
