"""Ranks whose frames come long after those of their peers, live and in a replay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from paceline.vocabulary import Phase
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.jobs import walltime
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.jobs.walltime import MAX_PAUSE_NS, ListeningClock
from paceline_service.store.frames import CommittedFrame
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.service.checkpointed import START_NS, S, attempt_of, committed, frames_of

STEPS, STEP_S = 140, 0.05
PATIENCE_S = 1.0
FAULT = Fault(rank=3, phase=Phase.BACKWARD, extra_ms=15, first=50)


@pytest.fixture(scope="module")
def frames() -> list[CommittedFrame]:
    """A frame every two steps; all come at once, each 0.1 s after the one before."""
    made = committed(frames_of(simulate(Scenario(steps=STEPS, seed=3, faults=(FAULT,)))), 4)
    return [
        replace(item, received_wall_ns=START_NS + int(item.frame.frame_seq * 2 * STEP_S * S))
        for item in made
    ]


def fed(
    frames: Sequence[CommittedFrame], *, replayed: bool = False
) -> tuple[LiveAttempt, Snapshot]:
    """Feed frames as they came, or as they lie in the store."""
    ends = {item.frame.incarnation: item.frame.frame_seq for item in frames} if replayed else {}
    live = LiveAttempt(
        attempt_of(4), JobAnalysis(4, Options(patience_s=PATIENCE_S, catch_up_s=3.0)),
        reorder_wait_ns=10 * S, recent_bytes=1 << 24, missing={} if replayed else None, ends=ends,
    )  # fmt: skip
    snapshot = None
    for at, item in enumerate(frames):
        live.push(replace(item, id=at + 1), item.received_wall_ns / S)
        if at % 4 == 3:
            update = live.tick(item.received_wall_ns / S, item.received_wall_ns)
            snapshot = update.snapshot if update else snapshot
    if replayed:
        live.advance()
        live.replayed(whole=True)
    last_ns = frames[-1].received_wall_ns + 30 * S
    update = live.tick(last_ns / S, last_ns)
    snapshot = update.snapshot if update else snapshot
    assert snapshot is not None
    assert snapshot.state == "ended"
    return live, snapshot


def late(frames: Sequence[CommittedFrame], *, from_step: int, to_step: int) -> list[CommittedFrame]:
    """Return them with those of rank 3 in between sent when the cut is over, in a moment."""
    cut = [f for f in frames if f.frame.rank == 3 and from_step <= 2 * f.frame.frame_seq < to_step]
    back_ns = START_NS + int(to_step * STEP_S * S)
    moved = {item.id: replace(item, received_wall_ns=back_ns) for item in cut}
    return sorted((moved.get(f.id, f) for f in frames), key=lambda f: f.received_wall_ns)


def test_a_node_that_was_cut_off_for_less_than_the_patience_loses_nothing(
    frames: list[CommittedFrame],
) -> None:
    _, whole = fed(frames)
    _, cut = fed(late(frames, from_step=40, to_step=56))
    assert cut.report == whole.report
    assert cut.frame_id == len(frames)


def test_a_node_that_was_cut_off_for_longer_is_late_live_and_whole_in_a_replay(
    frames: list[CommittedFrame],
) -> None:
    _, whole = fed(frames)
    came = late(frames, from_step=40, to_step=104)
    _, live = fed(came)
    assert live.report["data"]["dropped"]["late"] > 0
    assert not live.report["data"]["complete"]
    assert live.frame_id == 0  # analysing it again will tell more
    _, again = fed(came, replayed=True)
    assert again.report == whole.report
    assert again.frame_id == len(frames)


def test_spools_that_are_emptied_one_after_the_other_lose_nothing(
    frames: list[CommittedFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector was away; then the sidecars send all that they kept, the last after 0.5 s."""
    monkeypatch.setattr(walltime, "MAX_PAUSE_NS", S // 5)  # all times here are short
    _, whole = fed(frames)
    back_ns = START_NS + 3600 * S

    def when(item: CommittedFrame) -> int:
        if 2 * item.frame.frame_seq < 30:
            return item.received_wall_ns
        return back_ns + item.frame.rank * S // 6

    came = [replace(item, received_wall_ns=when(item)) for item in frames]
    _, live = fed(sorted(came, key=lambda f: (f.received_wall_ns, f.id)))
    assert live.report == whole.report
    assert live.frame_id == len(frames)


def test_what_is_late_in_a_replay_too_does_not_ask_for_another(
    frames: list[CommittedFrame],
) -> None:
    twice = [*frames, replace(frames[8], received_wall_ns=frames[-1].received_wall_ns)]
    assert fed(twice)[1].frame_id == 0
    assert fed(twice, replayed=True)[1].frame_id == len(twice)


def test_the_clock_of_arrivals_stands_still_in_pauses_and_never_goes_back() -> None:
    clock = ListeningClock()
    assert not clock.came(START_NS)
    assert clock.time_ns(START_NS) == START_NS
    assert not clock.came(START_NS + S)
    assert clock.came(START_NS + 1000 * S)
    assert clock.time_ns(START_NS + 1000 * S) == START_NS + S + MAX_PAUSE_NS
    assert clock.came(START_NS - 1000 * S)  # it was set back
    assert clock.time_ns(START_NS - 1000 * S) == START_NS + S + MAX_PAUSE_NS
    assert not clock.came(START_NS - 999 * S)
    assert clock.time_ns(START_NS - 999 * S) == START_NS + 2 * S + MAX_PAUSE_NS
