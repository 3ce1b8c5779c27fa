from __future__ import annotations

from msgspec.structs import replace

from paceline_service.analysis.job import JobAnalysis
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.stream import MAX_VERSION_CHARS
from tests.simulator.job import Scenario, simulate
from tests.unit.service.checkpointed import OPTIONS, S, attempt_of, committed, frames_of

TOLD = {"torch": "2.13.0", "paceline": "0.1.0", "level": "full", "python": "3" * 500, "nccl": ""}


def test_ranks_keep_the_versions_that_they_told_once_and_nothing_else() -> None:
    frames = [
        replace(frame, info=TOLD) if frame.rank == 1 and frame.frame_seq == 0 else frame
        for frame in frames_of(simulate(Scenario(steps=20)))
    ]
    live = LiveAttempt(
        attempt_of(4), JobAnalysis(4, OPTIONS), reorder_wait_ns=S, recent_bytes=1 << 24
    )
    for item in committed(frames, 4):
        live.push(item, item.received_wall_ns / S)
    end_ns = item.received_wall_ns + 30 * S
    update = live.tick(end_ns / S, end_ns)
    assert update is not None
    versions = {row["rank"]: row["versions"] for row in update.snapshot.ranks}
    assert versions[0] == {}
    assert versions[1] == {
        "paceline": "0.1.0", "torch": "2.13.0", "python": "3" * MAX_VERSION_CHARS,
    }  # fmt: skip
