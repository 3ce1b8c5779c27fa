"""An attempt that is fed as the engine feeds it, and that may be left off and taken up again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.wire.codec import decode_frame, split_frames
from paceline.wire.frames import Frame
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Snapshot, Update
from paceline_service.jobs.steps import Step
from paceline_service.store.frames import AttemptRef, CommittedFrame
from tests.integration.collector.kit import bodies, senders
from tests.simulator.job import Simulated

S = 10**9
START_NS = 1_700_000_000 * S
FRAME_GAP_NS = 20_000_000
OPTIONS = Options(hang_floor_s=2.0)


def attempt_of(world_size: int) -> AttemptRef:
    return AttemptRef(
        id=7, job="train", ordinal=1, run_id="run-1", launch_attempt=0, world_size=world_size,
        first_seen_wall_ns=START_NS,
    )  # fmt: skip


def frames_of(
    job: Simulated, *, steps_per_frame: int = 2, end: bool = True, change: Any = None
) -> list[Frame]:
    """Return the frames of a simulated job, as the collector decodes them."""
    parts = [
        part
        for body in bodies(job, senders(job), steps_per_frame=steps_per_frame, end=end)
        for part in split_frames(body)
    ]
    frames = [decode_frame(part) for part in parts if isinstance(part, bytes)]
    return [change(frame) for frame in frames] if change else frames


def committed(frames: Iterable[Frame], world_size: int) -> list[CommittedFrame]:
    """Return frames as they are committed, one after the other."""
    return [
        CommittedFrame(
            id=at + 1, attempt=attempt_of(world_size), frame=frame,
            received_wall_ns=START_NS + at * FRAME_GAP_NS, packed_bytes=100,
        )
        for at, frame in enumerate(frames)
    ]  # fmt: skip


def shuffled(frames: Sequence[Frame], *, reach: int, seed: int) -> list[Frame]:
    """Return frames up to ``reach`` places away from where they were."""
    draw = random.Random(seed)
    keyed = sorted((at + draw.uniform(0, reach), at) for at in range(len(frames)))
    return [frames[at] for _, at in keyed]


@dataclass
class Run:
    """What became of an attempt."""

    live: LiveAttempt
    steps: list[Step] = field(default_factory=list)
    snapshot: Snapshot | None = None
    sizes: list[int] = field(default_factory=list)

    def take(self, update: Update | None) -> None:
        if update is not None:
            self.steps += update.steps
            self.snapshot = update.snapshot

    def told(self) -> dict[str, Any]:
        """Return everything that is published."""
        last = self.snapshot
        assert last is not None
        return {
            "report": last.report, "ranks": last.ranks, "groups": last.groups,
            "nodes": last.nodes, "frame_id": last.frame_id, "last_step": last.last_step,
            "totals": last.step_totals, "drain": _drain(last),
            "steps": [
                (s.step, s.start_wall_ns, s.duration_ns, s.slowest_rank, s.per_rank.tolist())
                for s in self.steps
            ],
        }  # fmt: skip


def _drain(snapshot: Snapshot) -> Any:
    drain = snapshot.drain
    return drain and (drain.steps, drain.duration_ns, drain.ranks, drain.nodes)


def fresh(
    world_size: int, make: Callable[[int], JobAnalysis] = lambda size: JobAnalysis(size, OPTIONS)
) -> LiveAttempt:
    return LiveAttempt(
        attempt_of(world_size), make(world_size), reorder_wait_ns=S, recent_bytes=1 << 24
    )


def run(
    frames: Sequence[CommittedFrame], world_size: int, *, stops: Iterable[int] = (),
    lost: int = 0, tick_every: int = 11,
) -> Run:  # fmt: skip
    """Feed an attempt; after each of ``stops`` frames it is written down and goes on elsewhere.

    ``lost`` frames more were taken by the process that is killed: they are replayed. The new one
    finds all frames in the store from the first that it lacks.
    """
    done = Run(fresh(world_size))
    left = set(stops)
    tail: list[tuple[int, bytes]] = []
    for at, item in enumerate(frames):
        done.live.push(item, item.received_wall_ns / S)
        if (at + 1) % tick_every == 0:
            done.take(done.live.tick(item.received_wall_ns / S, item.received_wall_ns))
        if at + 1 in left:
            done.take(done.live.tick(item.received_wall_ns / S, item.received_wall_ns))
            tail.append((at + 1 + lost, done.live.dump()))
            kept = len(done.steps)
        if tail and tail[0][0] == at + 1:
            raw = tail.pop(0)[1]
            done.sizes.append(len(raw))
            done.live = fresh(world_size)
            del done.steps[kept:]  # they come again
            done.live.restore(raw, at + 1 - lost)
            for again in frames[: at + 1]:
                done.live.push(again, again.received_wall_ns / S)
            done.live.advance()
            done.live.replayed(whole=False)
    last_ns = frames[-1].received_wall_ns
    for after_s in (0.1, 1.5, 3.0, 20.0, 21.5):
        done.take(done.live.tick(last_ns / S + after_s, last_ns + int(after_s * S)))
    return done
