"""Snapshots of jobs as what /metrics shows of them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paceline import metrics
from paceline.metrics import Metric
from paceline_service.export.drop_ledger import Key
from paceline_service.export.job_series import JobSample
from paceline_service.export.rows import Example, HistogramRow, Labels, Rows, histogram_row
from paceline_service.incidents.service import closed_reason
from paceline_service.incidents.silences import SilenceBook
from paceline_service.jobs.live import STEP_BUCKETS_S
from paceline_service.jobs.snapshot import ENDED, RUNNING_WINDOW_S, Snapshot

TELEMETRY_WINDOW_NS = 60 * 10**9
"""Telemetry of a rank that was silent for longer than others by this is not of now."""
EXAMPLE_STEPS = 200
"""Newest steps from which the example of each duration is taken."""
MOST_SILENCED = 1_000
"""Ranks that silences cover, of one job, with series."""
KNOWN_LOSSES: tuple[Key, ...] = (
    *(
        ("agent", reason)
        for reason in (
            "ring_overwritten", "ring_torn", "hook_errors", "meta_full", "unencodable",
            "spool_full", "collector_refused", "nccl_unjoined", "nccl_lost_records",
        )
    ),
    *(("analysis", reason) for reason in ("frames_missing", "frames_late", "unknown_group")),
    *(("ingest", reason) for reason in ("corrupt", "header", "limit", "forbidden")),
)  # fmt: skip
"""What is told from the start: a count that began with its first loss would hide that one from
``increase()``."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The newest attempt of a job that is in memory."""

    ordinal: int
    snapshot: Snapshot
    sample: JobSample
    silent_ranks: int


class JobSamples:
    """Makes a sample of each snapshot once.

    Args:
        live_window_s: a job that was silent for longer is only being looked at.
    """

    def __init__(self, live_window_s: float) -> None:
        self._window_ns = int(live_window_s * 1e9)
        self._made: dict[int, tuple[Snapshot, JobSample]] = {}

    def of(self, snapshots: Iterable[Snapshot], now_wall_ns: int) -> list[Shown]:
        """Return what there is to show, in the order of the snapshots."""
        latest: dict[str, Snapshot] = {}
        for snapshot in snapshots:
            if now_wall_ns - snapshot.last_seen_wall_ns > self._window_ns:
                continue  # an old job that somebody reads: what it found then is no alert now
            known = latest.get(snapshot.attempt.job)
            if known is None or known.attempt.ordinal < snapshot.attempt.ordinal:
                latest[snapshot.attempt.job] = snapshot
        before, self._made = self._made, {}
        shown = []
        for snapshot in latest.values():
            number = snapshot.attempt.id
            made = before.get(number)
            if made is None or made[0] is not snapshot:
                made = (snapshot, job_sample(snapshot))
            self._made[number] = made
            shown.append(
                Shown(
                    ordinal=snapshot.attempt.ordinal,
                    snapshot=snapshot,
                    sample=made[1],
                    silent_ranks=silent_ranks(snapshot, now_wall_ns),
                )
            )
        return shown


def job_sample(snapshot: Snapshot) -> JobSample:
    """Return what is shown of a snapshot."""
    figures, drain = snapshot.figures, snapshot.drain
    duration_ns = drain.duration_ns if drain is not None else 0
    drained = drain.nodes if drain is not None and duration_ns > 0 else {}
    return JobSample(
        job=snapshot.attempt.job,
        state=snapshot.state,
        world_size=snapshot.attempt.world_size,
        report=snapshot.report,
        ranks=snapshot.ranks,
        ranks_seen=snapshot.ranks_seen,
        last_step=snapshot.last_step,
        open_findings=open_findings(snapshot),
        steps=_steps(snapshot),
        drained_nodes={node: ns / duration_ns for node, ns in drained.items()},
        recoverable_ratio=recoverable_ratio(snapshot),
        phase_ns=figures.phase_ns if figures is not None else None,
        transfers=figures.transfers if figures is not None else (),
        fresh_wall_ns=snapshot.last_seen_wall_ns - TELEMETRY_WINDOW_NS,
    )


def open_findings(snapshot: Snapshot) -> tuple[Json, ...]:
    """Return the findings that go on."""
    ended = snapshot.state == ENDED
    findings = snapshot.report["findings"]
    return tuple(f for f in findings if not closed_reason(f, snapshot.last_step, ended))


def recoverable_ratio(snapshot: Snapshot) -> float | None:
    """Return what share of the time the job gets back without what its open findings name.

    Each finding makes its steps ``1 / (1 - ratio)`` times as long; several ranks together give
    back more than one by one, and that is asked of the newest steps.
    """
    if not snapshot.step_totals.count:
        return None
    left = 1.0
    ranks: set[int] = set()
    for finding in open_findings(snapshot):
        left *= 1.0 - min(max(finding["recoverable_ratio"] or 0.0, 0.0), 1.0)
        ranks.update(finding["ranks"] if finding["kind"] == "straggler" else ())
    history = snapshot.drain.history if snapshot.drain is not None else None
    together = 0.0
    if history is not None and len(ranks) > 1:
        together = history.without(sorted(ranks)).ratio
    return max(1.0 - left, together)


def silent_ranks(snapshot: Snapshot, now_wall_ns: int) -> int:
    """Return how many ranks of a job that has not ended say nothing."""
    if snapshot.state == ENDED:
        return 0
    limit_ns = now_wall_ns - int(RUNNING_WINDOW_S * 1e9)
    heard = [row for row in snapshot.ranks if row.get("last_seen_wall_ns") is not None]
    silent = sum(1 for row in heard if row["last_seen_wall_ns"] < limit_ns and not row["ended"])
    begun = snapshot.attempt.first_seen_wall_ns < limit_ns
    return silent + (snapshot.attempt.world_size - len(heard) if begun else 0)


def silenced_rows(rows: Rows, shown: Iterable[Shown], book: SilenceBook) -> None:
    """Add which flags a silence covers: those of which every finding is covered."""
    for one in shown:
        job = one.sample.job
        covered: dict[tuple[Metric, Labels], bool] = {}
        for finding in one.sample.open_findings:
            silenced = book.covering(job, finding) is not None
            what = (finding["kind"], finding["cause"])
            keys: list[tuple[Metric, Labels]] = [
                (metrics.JOB_FINDING_SILENCED, (job, *what)),
                *((metrics.NODE_SILENCED, (job, node, *what)) for node in finding["nodes"]),
                *(
                    (metrics.RANK_SILENCED, (job, str(rank), *what))
                    for rank in finding["ranks"][:MOST_SILENCED]
                ),
            ]
            for key in keys:
                covered[key] = covered.get(key, True) and silenced
        for (metric, labels), silenced in covered.items():
            if silenced:
                rows.values[metric][labels] = 1.0


def lost_by(snapshot: Snapshot) -> Counter[Key]:
    """Return what the ranks of an attempt have lost, and what the analysis has."""
    lost: Counter[Key] = Counter()
    for row in snapshot.ranks:
        for reason, count in row["dropped"].items():
            lost["analysis" if reason in _LOST_HERE else "agent", reason] += count
    return lost


def _steps(snapshot: Snapshot) -> HistogramRow | None:
    totals = snapshot.step_totals
    if not totals.buckets:
        return None
    examples = {}
    for step in snapshot.recent.newest(EXAMPLE_STEPS) if snapshot.recent is not None else ():
        duration_s = step.duration_ns / 1e9
        known = step.start_wall_ns >= 0
        rank = {"rank": str(step.slowest_rank)} if step.slowest_rank >= 0 else {}
        examples[bisect_left(STEP_BUCKETS_S, duration_s)] = Example(
            labels={"step": str(step.step), **rank},
            value=duration_s,
            time_s=round((step.start_wall_ns + step.duration_ns) / 1e9, 3) if known else None,
        )
    return histogram_row(STEP_BUCKETS_S, totals.buckets, totals.sum_ns / 1e9, examples)


_LOST_HERE = frozenset(
    {
        "frames_missing", "frames_late", "frames_deleted", "bad_group", "unknown_kind",
        "unknown_group", "out_of_range",
    }
)  # fmt: skip
"""Reasons that the collector gives itself (``jobs.stream``, ``jobs.sanitize``)."""
