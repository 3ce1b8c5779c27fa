"""One attempt in memory: its frames, its analysis, and what is published of it.

Only the engine's thread touches it. There is no clock here: times are passed in.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from paceline.ranks import format_ranks
from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.job import JobAnalysis
from paceline_service.export.step_blob import stack_per_rank
from paceline_service.export.words import headline
from paceline_service.jobs.checkpoint_codec import CheckpointError, dump, load
from paceline_service.jobs.details import DetailKeeper
from paceline_service.jobs.feed import FrameFeed
from paceline_service.jobs.imported import INFO_KEY, apply, imported_of
from paceline_service.jobs.snapshot import (
    ENDED,
    RUNNING,
    RUNNING_WINDOW_S,
    SILENT,
    Captured,
    Figures,
    Json,
    Snapshot,
    StepTotals,
    Update,
)
from paceline_service.jobs.steps import RecentSteps, Step
from paceline_service.store.frames import AttemptRef, CommittedFrame

MakeAnalysis = Callable[[int], JobAnalysis]
ENDED_QUIET_S = 1.0
"""With every rank ended, this long without a frame closes the attempt."""
MAX_RECENT_STEPS = 5000
LARGE_JOB = 1024
"""Beyond so many ranks what is told of each is told every ``ROWS_S``, not at every verdict."""
ROWS_S = 5.0
STEP_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0,
)  # fmt: skip
_BUCKETS_NS = [int(bound * 1e9) for bound in STEP_BUCKETS_S]
_WRITTEN = (
    "applied_id", "last_seen_wall_ns", "_analysis", "_feed", "_last_step", "_last_start_wall_ns",
    "_buckets", "_count", "_sum_ns", "_details", "_late_for_good",
)  # fmt: skip
"""What a checkpoint holds. Recent steps and the published report are in the store."""


class LiveAttempt:
    """Everything in memory about one attempt.

    Args:
        attempt: which one.
        analysis: a fresh analysis for its world size.
        reorder_wait_ns: how long a missing frame is waited for.
        recent_bytes: memory for the recent steps.
        missing: for a replay, see ``FrameFeed``.
        ends: for a replay, see ``FrameFeed``.
    """

    def __init__(
        self,
        attempt: AttemptRef,
        analysis: JobAnalysis,
        *,
        reorder_wait_ns: int,
        recent_bytes: int,
        missing: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
        ends: Mapping[str, int] | None = None,
    ) -> None:
        self.attempt = attempt
        self.applied_id = 0
        self.finished = False
        self.failure = ""
        self.last_frame_mono_s = 0.0
        self.used_mono_s = 0.0
        self.made_wall_ns = 0
        """Steps that ended before were not analysed live."""
        self.last_seen_wall_ns = attempt.first_seen_wall_ns
        row_bytes = max(attempt.world_size * 64, 1)
        self.recent = RecentSteps(max(min(MAX_RECENT_STEPS, recent_bytes // row_bytes), 16))
        self._analysis = analysis
        self._reorder_wait_ns = reorder_wait_ns
        self._feed = FrameFeed(
            attempt, analysis, wait_ns=reorder_wait_ns, missing=missing,
            on_telemetry=analysis.add_telemetry, arrivals=analysis, ends=ends,
        )  # fmt: skip
        self._late_for_good = 0
        self._dirty = True
        self._unpublished = True
        self._last_step = -1
        self._last_start_wall_ns = -1
        self._published: Snapshot | None = None
        self._told_mono_s = -math.inf
        """When it was last published."""
        self._rows_mono_s = -ROWS_S
        """When the rows of the ranks were last made."""
        self._new_steps: list[Step] = []
        self._buckets = [0] * (len(_BUCKETS_NS) + 1)
        self._count = 0
        self._sum_ns = 0
        self._details = DetailKeeper(attempt.world_size, attempt.first_seen_wall_ns)

    def push(self, committed: CommittedFrame, now_mono_s: float) -> None:
        """Take one committed frame; one that was taken before is ignored."""
        if committed.id <= self.applied_id:
            return
        self.applied_id = committed.id
        self.last_frame_mono_s = max(self.last_frame_mono_s, now_mono_s)
        self.last_seen_wall_ns = max(self.last_seen_wall_ns, committed.received_wall_ns)
        self._feed.push(committed)
        self._dirty = True

    def note(self, text: str) -> None:
        """Let the report say ``text``."""
        self._feed.note(text)
        self._dirty = True

    def replayed(self, *, whole: bool) -> None:
        """The store has been read to its end; where ``whole``, from its beginning."""
        self._feed.settle()
        self._feed.replayed()
        if whole:
            self._late_for_good = self._late

    @property
    def _late(self) -> int:
        """How much came too late to be analysed in its place."""
        return self._feed.late_frames + self._analysis.late_records

    @property
    def held_frames(self) -> int:
        """How many frames wait behind gaps."""
        return self._feed.held_frames

    def dump(self) -> bytes:
        """Return what ``restore`` goes on from; ``tick`` was called before.

        Raises:
            CheckpointError: something in it cannot be written down.
        """
        assert not self._new_steps, "steps are published before they are left behind"
        return dump({"attempt": self.attempt} | {name: getattr(self, name) for name in _WRITTEN})

    def restore(self, raw: bytes, frame_id: int) -> None:
        """Go on where ``dump`` was called; this attempt is a fresh one.

        Raises:
            CheckpointError: it is damaged, of another attempt, or made with other settings.
        """
        state = load(raw)
        if not isinstance(state, dict) or set(state) != {"attempt", *_WRITTEN}:
            raise CheckpointError("it does not hold what a checkpoint holds")
        analysis, feed = state["_analysis"], state["_feed"]
        if not isinstance(analysis, JobAnalysis) or not isinstance(feed, FrameFeed):
            raise CheckpointError("it does not hold an analysis and its feed")
        if state["attempt"] != self.attempt or feed.sink is not analysis:
            raise CheckpointError(f"it is of another attempt: {state['attempt']}")
        if state["applied_id"] != frame_id:
            raise CheckpointError(f"it ends at frame {state['applied_id']}, not {frame_id}")
        settling = analysis.options.settling_steps  # those of an imported job are its own
        if analysis.options != replace(self._analysis.options, settling_steps=settling):
            raise CheckpointError("it was made with other settings of the analysis")
        feed.attach(
            self.attempt, wait_ns=self._reorder_wait_ns,
            on_telemetry=analysis.add_telemetry,
        )  # fmt: skip
        for name in _WRITTEN:
            setattr(self, name, state[name])
        self._details.begin_anew()
        self._dirty = True

    def heard(self, now_mono_s: float, now_wall_ns: int) -> None:
        """Say when it is, where the newest frame was taken by an earlier process."""
        age_s = max(now_wall_ns - self.last_seen_wall_ns, 0) / 1e9
        self.last_frame_mono_s = max(self.last_frame_mono_s, now_mono_s - age_s)

    def state(self, now_mono_s: float) -> str:
        """Return running, silent or ended."""
        if self.finished:
            return ENDED
        quiet_s = now_mono_s - self.last_frame_mono_s
        return RUNNING if quiet_s < RUNNING_WINDOW_S else SILENT

    def advance(self) -> None:
        """Analyse what has become complete."""
        self._feed.settle()
        self._keep(self._analysis.advance())

    def tick(self, now_mono_s: float, now_wall_ns: int) -> Update | None:
        """Analyse, and return what there is to publish, if anything."""
        self.analyse(now_mono_s, now_wall_ns)
        return self.update(now_mono_s)

    def analyse(self, now_mono_s: float, now_wall_ns: int) -> None:
        """Judge what has become complete."""
        if self._feed.expire(now_wall_ns):
            self._dirty = True
        self._feed.settle()
        if not self.finished and self._is_over(now_mono_s):
            self._keep(self._analysis.finish())
            self._details.finish()
            self.finished = self._unpublished = True
        elif self._dirty and not self.finished:
            self.advance()
        self._unpublished |= self._dirty
        self._dirty = False

    def is_due(self, now_mono_s: float, retell_s: float) -> bool:
        """Whether it is to be published: a step is new, or ``retell_s`` are over."""
        return bool(self._new_steps) or now_mono_s - self._told_mono_s >= retell_s

    def update(self, now_mono_s: float) -> Update | None:
        """Return what there is to publish, if anything; ``analyse`` was called before."""
        state = self.state(now_mono_s)
        if not self._unpublished and self._published is not None and self._published.state == state:
            return None
        self._unpublished = False
        self._told_mono_s = now_mono_s
        return self._publish(state, now_mono_s)

    def again(self, checkpoint: Captured) -> Update | None:
        """Return what was published last, with a checkpoint."""
        if self._published is None:
            return None
        return Update(snapshot=self._published, steps=(), changed=False, checkpoint=checkpoint)

    def publish_failure(self, now_mono_s: float) -> Update:
        """Return an update whose report says that the analysis failed."""
        return self._publish(self.state(now_mono_s), now_mono_s)

    def _is_over(self, now_mono_s: float) -> bool:
        if not self._feed.all_ended:
            return False
        complete = self._feed.ranks_seen >= self.attempt.world_size
        quiet_s = ENDED_QUIET_S if complete else RUNNING_WINDOW_S
        return now_mono_s - self.last_frame_mono_s >= quiet_s

    def _keep(self, rows: list[StepRow]) -> None:
        steps = [self._step(row) for row in rows if row.step > self._last_step]
        if not steps:
            return
        self._last_step = steps[-1].step
        self._new_steps += steps
        self.recent.extend(steps)

    def _step(self, row: StepRow) -> Step:
        self._buckets[bisect_left(_BUCKETS_NS, row.duration_ns)] += 1
        self._count += 1
        self._sum_ns += row.duration_ns
        start_wall_ns = self._start_wall_ns(row)
        self._details.take(row, start_wall_ns, self._to_wall_ns)
        return Step(
            step=row.step,
            start_wall_ns=start_wall_ns,
            duration_ns=row.duration_ns,
            slowest_rank=row.slowest_rank,
            per_rank=stack_per_rank(row.self_ns, row.wait_ns, row.comm_ns, row.phase_self_ns),
        )

    def _start_wall_ns(self, row: StepRow) -> int:
        """Return when the step began on the clock of the lowest rank that has one."""
        for rank in np.flatnonzero(row.start_ns >= 0).tolist():
            wall_ns = self._to_wall_ns(rank, int(row.start_ns[rank]))
            if wall_ns >= 0:
                # Never before the step before: ranks take turns in being the lowest present.
                self._last_start_wall_ns = max(wall_ns, self._last_start_wall_ns)
                return self._last_start_wall_ns
        return -1

    def _to_wall_ns(self, rank: int, time_mono_ns: int) -> int:
        stream = self._feed.newest(rank)
        return stream.clock.to_wall_ns(time_mono_ns) if stream else -1

    def _publish(self, state: str, now_mono_s: float) -> Update:
        report = self._analysis.report().to_dict()
        if self._feed.imported:
            self._apply_imported(report)
        report["data"]["notes"] = [*report["data"].get("notes", []), *self._feed.notes]
        if self.failure:
            report["data"]["complete"] = False
            report["data"]["notes"].append(self.failure)
        job = {"name": self.attempt.job, "attempt": self.attempt.ordinal, "state": state}
        job["headline"] = headline(report)
        report["job"] = {**job, **report["job"]}
        encoded = msgspec.json.encode(report)
        before = self._published
        if before is None or self._rows_are_due(state, now_mono_s):
            self._rows_mono_s = now_mono_s
            ranks = self._rank_rows(report)
            nodes = {str(row["rank"]): row["node"] for row in ranks if row["node"]}
        else:
            ranks, nodes = before.ranks, before.nodes
        snapshot = Snapshot(
            attempt=self.attempt,
            state=state,
            report=report,
            report_json=encoded,
            ranks=ranks,
            groups=self._group_rows(),
            nodes=nodes,
            last_seen_wall_ns=self.last_seen_wall_ns,
            last_step=self._last_step,
            ranks_seen=self._feed.ranks_seen,
            # What came too late is taken into account when all is analysed again.
            frame_id=0 if self._late > self._late_for_good else self.applied_id,
            step_totals=StepTotals(
                buckets=tuple(self._buckets), count=self._count, sum_ns=self._sum_ns
            ),
            recent=self.recent,
            drain=self._analysis.drain(),
            figures=Figures(
                phase_ns=self._analysis.phase_totals_ns(),
                transfers=self._analysis.transfer_figures(),
            ),
        )
        self._published = snapshot
        steps, self._new_steps = tuple(self._new_steps), []
        changed = before is None or before.report_json != encoded
        self._details.lanes.flag(r for one in report["findings"] for r in one["ranks"])
        details = self._details.collect()
        return Update(snapshot=snapshot, steps=steps, changed=changed, details=details)

    def _apply_imported(self, report: Json) -> None:
        """Let the report say what the files of a replayed job tell beside records."""
        brought = imported_of({INFO_KEY: self._feed.imported})
        if brought is not None and brought.told is not None:
            apply(brought.told, report)

    def _rows_are_due(self, state: str, now_mono_s: float) -> bool:
        """Whether what is told of each rank is to be made again."""
        assert self._published is not None
        few = self.attempt.world_size <= LARGE_JOB
        over = state != self._published.state or bool(self.failure)
        return few or over or now_mono_s - self._rows_mono_s >= ROWS_S

    def _rank_rows(self, report: Json) -> list[Json]:
        totals = {row["rank"]: row for row in report["ranks"]}
        ages_s = self._analysis.standstill.ages_s()
        feed = self._feed
        rows = []
        for rank in range(self.attempt.world_size):
            streams = feed.of_rank(rank)
            total = totals.get(rank)
            if not streams and total is None:
                continue
            row = {"rank": rank} if total is None else total.copy()
            rows.append(row)
            stream = streams[-1] if streams else None
            lossy = any(one.has_losses for one in streams)
            row["node"] = stream.node if stream else ""
            row["step"] = stream.step if stream and stream.step >= 0 else None
            row["last_seen_wall_ns"] = stream.last_seen_wall_ns if stream else None
            row["ended"] = stream.ended if stream else ""
            row["dropped"] = feed.dropped(rank) if lossy else {}
            row["versions"] = feed.versions(rank)
            row["telemetry"] = self._telemetry(rank)
            row["pending_s"] = ages_s.get(rank)
        return rows

    def _telemetry(self, rank: int) -> Json | None:
        stream = self._feed.newest_telemetry(rank)
        if stream is None:
            return None
        newest = stream.telemetry
        wall_ns = stream.clock.to_wall_ns(newest.time_ns)
        return {
            "time_ns": newest.time_ns,
            "time_wall_ns": wall_ns if wall_ns >= 0 else None,
            "values": newest.values(),
        }

    def _group_rows(self) -> list[Json]:
        return [
            {
                "name": info.group.name,
                "ranks": format_ranks(info.group.ranks),
                "epoch": info.group.epoch,
                "mesh_dim": info.group.mesh_dim,
                "backend": info.backend,
            }
            for _, info in sorted(self._feed.groups.items())
        ]
