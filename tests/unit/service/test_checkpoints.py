from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from paceline.vocabulary import Op, Phase
from paceline.wire.frames import Frame, Pending, Sample
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.service.checkpointed import S, committed, frames_of, fresh, run, shuffled

SLOW = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=40, last=75)
STEPS = 100
EARLY, MIDDLE, LATE = 40, 110, 190


def with_telemetry(frame: Frame) -> Frame:
    sample = Sample(
        time_ns=frame.anchor_mono_ns + frame.frame_seq * 10**9,
        values={"sm_clock_hz": 1.1e9 if frame.rank == 2 else 1.9e9, "throttle_reasons": ["hw"]},
    )
    return msgspec.structs.replace(frame, telemetry=[sample])


def with_a_hang(frame: Frame) -> Frame:
    """Rank 3 never issues what the others wait in from frame 40 on."""
    if frame.frame_seq < 40:
        return frame
    mono_ns = 10**13 + (frame.frame_seq - 40) * 10**9
    waits = Pending(op=Op.ALL_REDUCE, group=0, seq=10**6, step=90, peer=-1,
                    payload_bytes=8, start_ns=10**13 - 10**9)  # fmt: skip
    pending = [waits] if frame.rank != 3 else []
    return msgspec.structs.replace(
        frame, read_mono_ns=mono_ns, step=90, pending=pending, count=0, columns={}, ended=""
    )


SCENES = {
    "a healthy job": Scenario(steps=STEPS, seed=5),
    "a straggler that recovers": Scenario(steps=STEPS, faults=(SLOW,), seed=3),
    "tensor parallel, a creeping spread": Scenario(
        steps=STEPS, data_parallel=2, tensor_parallel=2, persistent_spread=0.03, seed=9,
        faults=(replace(SLOW, rank=1, phase=Phase.FORWARD),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_the_report_after_a_checkpoint_and_the_tail_is_that_of_an_uninterrupted_run(
    scene: str,
) -> None:
    frames = committed(frames_of(simulate(SCENES[scene]), change=with_telemetry), 4)
    whole = run(frames, 4).told()
    assert whole["report"]["job"]["steps"] == STEPS
    assert run(frames, 4, stops=(EARLY, MIDDLE, 150), lost=17).told() == whole
    assert run(frames, 4, stops=range(30, len(frames), 30)).told() == whole


def test_a_straggler_before_the_checkpoint_is_named_after_it() -> None:
    job = simulate(Scenario(steps=STEPS, faults=(replace(SLOW, last=1000),), seed=3))
    frames = committed(frames_of(job), 4)
    told = run(frames, 4, stops=(LATE,)).told()["report"]
    assert told["verdict"] == "straggler"
    assert told["findings"][0]["ranks"] == [2]
    assert (
        told["findings"][0]["first_step"]
        == run(frames, 4).told()["report"]["findings"][0]["first_step"]
    )


def test_frames_behind_a_gap_are_in_the_checkpoint() -> None:
    frames = frames_of(simulate(SCENES["a straggler that recovers"]))
    mixed = committed(shuffled(frames, reach=24, seed=2), 4)
    whole = run(mixed, 4).told()
    assert run(mixed, 4, stops=(EARLY, MIDDLE, LATE - 40), lost=9).told() == whole
    assert run(committed(frames, 4), 4).told()["report"] == whole["report"]


def test_a_rank_that_restarts_goes_on_where_it_was() -> None:
    frames = frames_of(simulate(Scenario(steps=STEPS, seed=5)), end=False)
    again = [
        msgspec.structs.replace(frame, incarnation=f"{frame.rank + 16:032x}") for frame in frames
    ]
    both = committed([*frames[:150], *again], 4)
    whole = run(both, 4).told()
    assert any("restarted within the attempt" in note for note in whole["report"]["data"]["notes"])
    assert run(both, 4, stops=(140, 160, 250), lost=15).told() == whole


def test_a_hang_goes_on_over_a_checkpoint_and_none_is_made_up() -> None:
    frames = committed(frames_of(simulate(Scenario(steps=STEPS, seed=5)), change=with_a_hang), 4)
    whole = run(frames, 4).told()
    assert whole["report"]["verdict"] == "hang"
    assert run(frames, 4, stops=(150, 165, 185), lost=3).told() == whole


def test_what_retention_deletes_after_a_checkpoint_is_not_missed() -> None:
    frames = committed(frames_of(simulate(SCENES["a straggler that recovers"])), 4)
    whole = run(frames, 4).told()
    first, rest = frames[:MIDDLE], frames[MIDDLE:]
    low = {item.frame.incarnation: item.frame.frame_seq + 1 for item in first}
    cut = [msgspec.structs.replace(item, first_seq=low[item.frame.incarnation]) for item in rest]
    assert run([*first, *cut], 4, stops=(MIDDLE,)).told() == whole


def test_a_wall_clock_that_jumped_while_nobody_ran_makes_no_job_silent_or_ended() -> None:
    frames = committed(frames_of(simulate(Scenario(steps=20, seed=5)), end=False), 4)
    left = run(frames, 4)
    raw, last_id = left.live.dump(), frames[-1].id
    for jump_s, state in ((-3600, "running"), (5, "running"), (3600, "silent")):
        live = fresh(4)
        live.restore(raw, last_id)
        now_ns = frames[-1].received_wall_ns + jump_s * S
        live.heard(1e6, now_ns)
        live.replayed(whole=False)
        update = live.tick(1e6, now_ns)
        assert update is not None
        assert update.snapshot.state == state
        assert update.snapshot.report["findings"] == []
