"""The dashboard *Paceline itself*: does the collector keep up, and has it lost anything?"""

from __future__ import annotations

from grafanalib.core import Dashboard

from paceline import metrics as m
from paceline_dashboards import frame, shared
from paceline_dashboards.charts import lines
from paceline_dashboards.layout import Section, line, section
from paceline_dashboards.panels import limits, override, stat
from paceline_dashboards.queries import itself as q
from paceline_dashboards.targets import query
from paceline_dashboards.words import BAD, GOOD, NEUTRAL, WARNING

_NO_BUS = "no bus: a collector by itself"


def _now() -> Section:
    return section(
        "Does it keep up?",
        line(
            4,
            stat(
                "Age of the answer",
                "From the arrival of the newest analysed frame to its analysis.",
                query(q.worst(m.ANALYSIS_LAG_SECONDS)),
                unit="s",
                thresholds=limits((None, GOOD), (5, WARNING), (30, BAD)),
                decimals=2,
            ),
            stat(
                "Verdict after a step",
                "99th percentile of the time from the end of a step to its verdict.",
                query(q.VERDICT_P99),
                unit="s",
                thresholds=limits((None, GOOD), (15, WARNING), (60, BAD)),
                decimals=1,
            ),
            stat(
                "Dropped",
                "Everything that was lost in the time shown, at any stage, and counted.",
                query(q.DROPPED_SHOWN),
                unit="short",
                thresholds=limits((None, GOOD), (1, WARNING)),
            ),
            stat(
                "Records a second",
                "Made durable and acknowledged.",
                query(q.growth(m.INGEST_RECORDS)),
                unit="short",
                thresholds=limits((None, NEUTRAL)),
                decimals=1,
            ),
            stat(
                "Attempts in memory",
                "Launches of jobs whose analysis is in memory.",
                query(q.now(m.ANALYSIS_ATTEMPTS)),
                thresholds=limits((None, NEUTRAL)),
            ),
            stat(
                "Messages not delivered",
                "Messages about incidents that wait for their channel.",
                query(q.now(m.NOTIFICATIONS_WAITING)),
                thresholds=limits((None, GOOD), (1, WARNING)),
            ),
        ),
    )


def _ingest() -> Section:
    return section(
        "Ingest",
        line(
            7,
            lines(
                "Frames and records",
                "Made durable and acknowledged, in a second.",
                [
                    query(q.growth(m.INGEST_FRAMES), "frames"),
                    query(q.growth(m.INGEST_RECORDS), "records"),
                ],
                unit="short",
            ),
            lines(
                "Bytes",
                "Stored in a second, and what waits: for its commit, for its analysis.",
                [
                    query(q.growth(m.INGEST_BYTES), "stored in a second"),
                    query(q.now(m.INGEST_QUEUE_BYTES), "waiting for commit"),
                    query(q.now(m.ANALYSIS_BACKLOG_BYTES), "waiting for analysis"),
                ],
                unit="bytes",
            ),
            lines(
                "Commits",
                "How long a transaction takes until it is durable.",
                [
                    query(q.COMMIT_P50, "median"),
                    query(q.COMMIT_P99, "99th percentile"),
                    query(q.each(m.INGEST_COMMIT_SECONDS, m.INGEST_COMMITS), "mean"),
                ],
                unit="s",
            ),
            lines(
                "Refused, in a second",
                "Rejected: can never be taken. Refused: to be sent again. Access: who sent it.",
                [
                    query(q.growth(m.INGEST_REJECTED, "reason"), "rejected: {{reason}}"),
                    query(q.growth(m.INGEST_REFUSED, "reason"), "refused: {{reason}}"),
                    query(q.growth(m.ACCESS_REFUSED, "reason"), "access: {{reason}}"),
                    query(q.growth(m.INGEST_DUPLICATES), "sent again"),
                    query(q.growth(m.INGEST_COMMIT_FAILURES), "commits that failed"),
                ],
                unit="short",
                at_least=1,
            ),
        ),
    )


def _analysis() -> Section:
    return section(
        "Analysis",
        line(
            7,
            lines(
                "Lag",
                "Of the analysis behind ingest, and of verdicts behind the steps of the jobs.",
                [
                    query(q.worst(m.ANALYSIS_LAG_SECONDS), "analysis"),
                    query(q.VERDICT_P50, "verdict, median"),
                    query(q.VERDICT_P99, "verdict, 99th percentile"),
                ],
                unit="s",
            ),
            lines(
                "Rounds",
                "Time of a round in which all jobs are analysed, and frames taken in a second.",
                [
                    query(q.each(m.ANALYSIS_TICK_SECONDS, m.ANALYSIS_TICKS), "time of a round"),
                    query(q.growth(m.ANALYSIS_FRAMES), "frames in a second"),
                ],
                overrides=[override("time of a round", unit="s", custom__axisPlacement="right")],
            ),
            lines(
                "Relief",
                "Jobs that are asked for fewer steps because the collector cannot keep up, and how "
                "often it changed that.",
                [
                    query(q.worst(m.RELIEF_STRIDE, "job"), "{{job}}: every which step"),
                    query(q.growth(m.RELIEF_CHANGES, "direction"), "changes {{direction}}"),
                ],
                none="no job has been asked for fewer steps",
            ),
            lines(
                "Went wrong",
                "Attempts whose analysis stopped with an error of its own; checkpoints that could "
                "not be used.",
                [
                    query(q.growth(m.ANALYSIS_FAILURES), "analysis failed"),
                    query(q.growth(m.CHECKPOINTS_REFUSED), "checkpoint refused"),
                    query(q.growth(m.CHECKPOINTS_USED), "checkpoint used"),
                ],
                unit="short",
                at_least=1,
            ),
        ),
    )


def _store() -> Section:
    return section(
        "Store",
        line(
            7,
            lines(
                "Size",
                "Raw frames that are kept, and the free space of the disk of a SQLite file.",
                [
                    query(q.now(m.STORE_RAW_BYTES), "raw frames"),
                    query(f"min({m.STORE_FREE_BYTES.name})", "free on disk"),
                ],
                unit="bytes",
            ),
            lines(
                "Written behind",
                "Analysed steps that are not written yet, and what was given up.",
                [
                    query(q.now(m.PERSIST_WAITING_STEPS), "steps waiting"),
                    query(q.growth(m.PERSIST_FAILURES), "transactions that failed"),
                    query(q.growth(m.PERSIST_GIVEN_UP, "what"), "given up: {{what}}"),
                ],
                unit="short",
                at_least=1,
            ),
            lines(
                "Checkpoints",
                "How often the analysis is written down, what that costs, and how large it is.",
                [
                    query(q.growth(m.CHECKPOINTS), "in a second"),
                    query(q.each(m.CHECKPOINT_SECONDS, m.CHECKPOINTS), "CPU time of one"),
                    query(q.worst(m.CHECKPOINT_BYTES), "size"),
                ],
                overrides=[
                    override("CPU time of one", unit="s"),
                    override("size", unit="bytes", custom__axisPlacement="right"),
                ],
            ),
            shared.dropped("Dropped, by stage"),
        ),
    )


def _process() -> Section:
    return section(
        "Process, messages, bus",
        line(
            7,
            lines(
                "CPU",
                "Cores that the collector uses.",
                [query(q.growth(m.PROCESS_CPU_SECONDS), "cores")],
                unit="short",
            ),
            lines(
                "Memory",
                "Of the collector's process.",
                [query(q.now(m.PROCESS_RESIDENT_BYTES), "resident")],
                unit="bytes",
            ),
            lines(
                "Messages",
                "Messages about incidents in a second, by channel and outcome.",
                [
                    query(q.NOTIFIED, "{{channel}}: {{outcome}}"),
                    query(q.now(m.NOTIFICATIONS_WAITING), "waiting"),
                ],
                unit="short",
                at_least=1,
            ),
        ),
        line(
            7,
            lines(
                "Bus: published",
                "Frames and requests in a second; only with several collectors behind NATS.",
                [
                    query(q.growth(m.BUS_PUBLISHED), "frames"),
                    query(q.growth(m.BUS_PUBLISHES), "requests"),
                    query(q.growth(m.BUS_FAILURES, "reason"), "failed: {{reason}}"),
                    query(q.growth(m.BUS_TERMINATED, "reason"), "taken out: {{reason}}"),
                ],
                unit="short",
                none=_NO_BUS,
            ),
            lines(
                "Bus: behind",
                "Frames in the stream that are not stored yet, and those that came again.",
                [
                    query(q.worst(m.BUS_LAG_MESSAGES, "partition"), "partition {{partition}}"),
                    query(q.growth(m.BUS_REDELIVERED), "came again, in a second"),
                ],
                unit="short",
                none=_NO_BUS,
            ),
            lines(
                "Bus: waiting",
                "For the stream's acknowledgement.",
                [
                    query(q.each(m.BUS_PUBLISH_SECONDS, m.BUS_PUBLISHES), "time of a request"),
                    query(q.now(m.BUS_WAITING_BYTES), "bytes"),
                ],
                overrides=[
                    override("time of a request", unit="s"),
                    override("bytes", unit="bytes", custom__axisPlacement="right"),
                ],
                none=_NO_BUS,
            ),
            lines(
                "Bus: partitions",
                "That analyzers own, and how often one was taken.",
                [
                    query(q.now(m.BUS_LEASES), "owned"),
                    query(q.growth(m.BUS_TAKEOVERS), "taken in a second"),
                ],
                unit="short",
                none=_NO_BUS,
            ),
        ),
    )


def dashboard(sources: frame.Sources) -> Dashboard:
    """Return the dashboard of the collector."""
    return frame.dashboard(
        frame.ITSELF,
        "Paceline / Itself",
        "The collector: does it keep up, and has anything been lost?",
        [],
        [_now(), _ingest(), _analysis(), _store(), _process()],
        sources=sources,
    )
