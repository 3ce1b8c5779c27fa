"""One scrape of /metrics: what every part of the collector tells at this moment."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from paceline import metrics
from paceline.metrics import Metric
from paceline_service.collector import Collector
from paceline_service.export import prometheus
from paceline_service.export.drop_ledger import DropLedger, Key
from paceline_service.export.job_book import JobBook
from paceline_service.export.labels import bounded_reasons
from paceline_service.export.prometheus import Sample
from paceline_service.export.rows import Labels
from paceline_service.incidents.offences import REMEMBERED_NS, worst_nodes
from paceline_service.readiness import free_bytes
from paceline_service.scrape_jobs import KNOWN_LOSSES, JobSamples, lost_by, silenced_rows
from paceline_service.store.drops import read_drops

TOP_OFFENDERS = 20
"""Nodes whose incidents are shown: those that most incidents named."""
OFFENDERS_REFRESH_S = 60.0
DATABASE_TIMEOUT_S = 3.0
"""A scrape tells the rest when the database does not answer: that is when it is needed."""


class Scraper:
    """Makes the text of /metrics; one scrape at a time, whoever asks."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._book = JobBook(collector.settings.rank_series)
        self._samples = JobSamples(collector.settings.live_window_s)
        self._drops = DropLedger(time.time_ns())
        self._stored_drops: Counter[Key] | None = None
        self._offences: dict[Labels, float] = {}
        self._offences_mono_s = float("-inf")
        self._lock = asyncio.Lock()

    async def text(self, form: str) -> bytes:
        """Return what is known now, in a format of ``export.exposition``."""
        async with self._lock:
            # Where the database does not answer, what was read last is told again.
            with suppress(SQLAlchemyError, OSError, asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._read(), DATABASE_TIMEOUT_S)
            # Taken here, because what they count changes on the event loop.
            own = self._values(), self._labelled()
            return await asyncio.to_thread(prometheus.render, lambda: self._sample(*own), form)

    async def _read(self) -> None:
        """Read from the database what is kept there."""
        collector = self._collector
        await collector.silences.refresh()
        async with collector.database.read() as connection:
            stored = await read_drops(connection)
            if time.monotonic() - self._offences_mono_s >= OFFENDERS_REFRESH_S:
                since_ns = time.time_ns() - REMEMBERED_NS
                worst = await worst_nodes(connection, since_ns, TOP_OFFENDERS)
                self._offences = {(node,): float(count) for node, count in worst}
                self._offences_mono_s = time.monotonic()
        total: Counter[Key] = Counter()
        for (_, stage, reason), count in (stored + collector.commits.unstored_rejects).items():
            total[stage, reason] += count
        # The larger one: rows are deleted with their jobs.
        self._stored_drops = total | (self._stored_drops or Counter())

    def _sample(
        self, values: dict[Metric, float], labelled: dict[Metric, Mapping[Labels, float]]
    ) -> Sample:
        collector = self._collector
        snapshots = collector.board.all()
        for snapshot in snapshots:
            attempt = snapshot.attempt
            self._drops.take(attempt.id, attempt.first_seen_wall_ns, lost_by(snapshot))
        shown = self._samples.of(snapshots, time.time_ns())
        rows = self._book.rows((one.ordinal, one.sample) for one in shown)
        for one in shown:
            rows.values[metrics.JOB_SILENT_RANKS][(one.sample.job,)] = one.silent_ranks
        silenced_rows(rows, shown, collector.silences)
        return Sample(
            jobs=rows,
            values=values,
            labelled={**labelled, metrics.DROPPED: bounded_reasons(self._all_drops())},
            histograms={
                metrics.INGEST_COMMIT_DURATION_SECONDS: collector.commits.stats.durations.sample(),
                metrics.VERDICT_LAG_SECONDS: collector.engine.stats.verdict_lag.sample(),
            },
        )

    def _values(self) -> dict[Metric, float]:
        collector = self._collector
        stats, engine = collector.commits.stats, collector.engine
        if collector.bus is not None and collector.bus.publisher is not None:
            stats = collector.bus.publisher.stats if not collector.analyses else stats
        values: dict[Metric, float] = {
            metrics.INGEST_FRAMES: stats.frames,
            metrics.INGEST_RECORDS: stats.records,
            metrics.INGEST_BYTES: stats.raw_bytes,
            metrics.INGEST_DUPLICATES: stats.duplicates,
            metrics.INGEST_COMMITS: stats.commits,
            metrics.INGEST_COMMIT_SECONDS: stats.commit_seconds,
            metrics.INGEST_COMMIT_FAILURES: stats.failures,
            metrics.INGEST_QUEUE_BYTES: collector.commits.waiting_bytes,
            metrics.ANALYSIS_BACKLOG_BYTES: engine.backlog_bytes,
            metrics.ANALYSIS_LAG_SECONDS: engine.stats.lag_seconds,
            metrics.ANALYSIS_FAILURES: engine.stats.failures,
            metrics.ANALYSIS_ATTEMPTS: engine.stats.loaded,
            metrics.ANALYSIS_FRAMES: engine.stats.frames,
            metrics.ANALYSIS_TICKS: engine.stats.ticks,
            metrics.ANALYSIS_TICK_SECONDS: engine.stats.tick_seconds,
            metrics.CHECKPOINTS: engine.checkpoints.stats.made,
            metrics.CHECKPOINT_SECONDS: engine.checkpoints.stats.seconds,
            metrics.CHECKPOINT_BYTES: engine.checkpoints.stats.raw_bytes,
            metrics.CHECKPOINTS_USED: engine.checkpoints.stats.used,
            metrics.CHECKPOINTS_REFUSED: engine.checkpoints.stats.refused,
            metrics.STORE_RAW_BYTES: collector.housekeeping.raw_bytes,
            metrics.PERSIST_WAITING_STEPS: collector.persister.waiting_steps,
            metrics.PERSIST_FAILURES: collector.persister.failures,
            metrics.NOTIFICATIONS_WAITING: sum(collector.notifier.stats.waiting.values()),
            metrics.PROCESS_CPU_SECONDS: time.process_time(),
            metrics.PROCESS_RESIDENT_BYTES: _resident_bytes(),
        }
        free = free_bytes(collector.database)
        if free is not None:
            values[metrics.STORE_FREE_BYTES] = free
        if collector.bus is not None:
            values.update(collector.bus.stats.values())
        return values

    def _labelled(self) -> dict[Metric, Mapping[Labels, float]]:
        collector = self._collector
        stats = collector.commits.stats
        if collector.bus is not None and collector.bus.publisher is not None:
            stats = collector.bus.publisher.stats if not collector.analyses else stats
        return {
            metrics.INGEST_REJECTED: {(name,): n for name, n in stats.rejects.items()},
            metrics.ACCESS_REFUSED: {(name,): n for name, n in collector.guard.refused.items()},
            metrics.INGEST_REFUSED: {(name,): n for name, n in stats.refused.items()},
            metrics.NODE_OFFENCES: self._offences,
            metrics.RELIEF_STRIDE: {
                (job,): stride for job, stride in collector.control.relieved().items()
            },
            metrics.NOTIFICATIONS: collector.notifier.stats.labelled(),
            metrics.RELIEF_CHANGES: {(way,): n for way, n in collector.relief.changes.items()},
            metrics.PERSIST_GIVEN_UP: {
                ("steps",): collector.persister.steps_given_up,
                ("lanes",): collector.persister.lanes_given_up,
            },
            **(collector.bus.stats.labelled() if collector.bus is not None else {}),
        }

    def _all_drops(self) -> Counter[Key]:
        drops = Counter(dict.fromkeys(KNOWN_LOSSES, 0))
        drops.update(self._stored_drops or {})
        drops.update(self._drops.total)
        if self._stored_drops is None:  # what the database keeps would seem to be lost now
            drops = Counter({key: n for key, n in drops.items() if key[0] != "ingest"})
        return drops


def _resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
