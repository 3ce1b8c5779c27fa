"""Every metric of Paceline: name, kind, unit, labels, help (docs/metrics.md).

Standard library only: dashboards and alerts are built from these names, the collector fills
them (``paceline_service.export.prometheus``). Names and labels do not change; base units;
counters end in ``_total``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family."""

    name: str
    kind: Kind
    unit: str
    """seconds, bytes, ratio, or empty for a count."""
    labels: tuple[str, ...]
    help: str


_ALL: list[Metric] = []


def _define(name: str, kind: Kind, unit: str, labels: tuple[str, ...], text: str) -> Metric:
    metric = Metric(name=name, kind=kind, unit=unit, labels=labels, help=text)
    _ALL.append(metric)
    return metric


STEP_SECONDS = _define(
    "paceline_step_seconds", "histogram", "seconds", ("job",),
    "Duration of the analysed steps (median over the ranks).",
)  # fmt: skip
RANK_SELF_SECONDS = _define(
    "paceline_rank_self_seconds_total", "counter", "seconds", ("job", "rank"),
    "Time in which a rank worked by itself: neither waiting nor communicating.",
)  # fmt: skip
RANK_WAIT_SECONDS = _define(
    "paceline_rank_wait_seconds_total", "counter", "seconds", ("job", "rank"),
    "Exposed time in which a rank waited for others to arrive.",
)  # fmt: skip
RANK_CAUSED_WAIT_SECONDS = _define(
    "paceline_rank_caused_wait_seconds_total", "counter", "seconds", ("job", "rank"),
    "Wait of others in the collectives in which this rank arrived last.",
)  # fmt: skip
RANK_WASTED_GPU_SECONDS = _define(
    "paceline_rank_wasted_gpu_seconds_total", "counter", "seconds", ("job", "rank"),
    "Wait of others that is blamed on this rank, after inherited lateness went back to its cause.",
)  # fmt: skip
RANK_LATENESS_RATIO = _define(
    "paceline_rank_lateness_ratio", "gauge", "ratio", ("job", "rank"),
    "Share of the collectives that somebody waited in, in which this rank arrived last.",
)  # fmt: skip
RANK_FLAGGED = _define(
    "paceline_rank_flagged", "gauge", "", ("job", "rank", "kind", "cause"),
    "1 while a finding names this rank and still goes on.",
)  # fmt: skip
RANK_SILENCED = _define(
    "paceline_rank_silenced", "gauge", "", ("job", "rank", "kind", "cause"),
    "1 while a silence covers the finding that flags this rank.",
)  # fmt: skip
JOB_SLOWDOWN_RATIO = _define(
    "paceline_job_slowdown_ratio", "gauge", "ratio", ("job",),
    "Time of the job over its time without what the findings name.",
)  # fmt: skip
JOB_IDLE_RATIO = _define(
    "paceline_job_idle_ratio", "gauge", "ratio", ("job",),
    "Share of the ranks' time that is exposed wait.",
)  # fmt: skip
JOB_GAMMA_RATIO = _define(
    "paceline_job_gamma_ratio", "gauge", "ratio", ("job",),
    "Exposed communication over compute.",
)  # fmt: skip
INFLIGHT_AGE_SECONDS = _define(
    "paceline_inflight_collective_age_seconds", "gauge", "seconds", ("job", "rank"),
    "Age of the oldest collective that a rank was in when it was last heard of; 0: in none.",
)  # fmt: skip
JOB_RANKS = _define(
    "paceline_job_ranks", "gauge", "", ("job", "state"),
    "Ranks of the job that were seen; the state is that of the job: running, silent or ended.",
)  # fmt: skip
JOB_LAST_STEP = _define(
    "paceline_job_last_step", "gauge", "", ("job",), "The newest step that was analysed."
)
DROPPED = _define(
    "paceline_dropped_total", "counter", "", ("stage", "reason"),
    "What was lost, where (agent, ingest, analysis, store) and why.",
)  # fmt: skip
INGEST_FRAMES = _define(
    "paceline_ingest_frames_total", "counter", "", (), "Frames made durable and acknowledged."
)
INGEST_RECORDS = _define(
    "paceline_ingest_records_total", "counter", "", (), "Records in those frames."
)
INGEST_BYTES = _define(
    "paceline_ingest_bytes_total", "counter", "bytes", (), "Bytes of those frames, as stored."
)
INGEST_DUPLICATES = _define(
    "paceline_ingest_duplicates_total", "counter", "", (),
    "Frames that were sent again and not stored again.",
)  # fmt: skip
INGEST_REJECTED = _define(
    "paceline_ingest_rejected_total", "counter", "", ("reason",),
    "Frames that can never be taken: corrupt, over a limit, or not covered by the token.",
)  # fmt: skip
INGEST_REFUSED = _define(
    "paceline_ingest_refused_total", "counter", "", ("reason",),
    "Requests answered 429: their senders keep the frames and try again.",
)  # fmt: skip
ACCESS_REFUSED = _define(
    "paceline_access_refused_total", "counter", "", ("reason",),
    "Requests and connections refused before their work began, because of who sent them or how.",
)  # fmt: skip
INGEST_COMMITS = _define(
    "paceline_ingest_commits_total", "counter", "", (), "Transactions that stored frames."
)
INGEST_COMMIT_SECONDS = _define(
    "paceline_ingest_commit_seconds_total", "counter", "seconds", (),
    "Time spent in those transactions.",
)  # fmt: skip
INGEST_COMMIT_DURATION_SECONDS = _define(
    "paceline_ingest_commit_duration_seconds", "histogram", "seconds", (),
    "How long each of those transactions took, until it was durable.",
)  # fmt: skip
INGEST_COMMIT_FAILURES = _define(
    "paceline_ingest_commit_failures_total", "counter", "", (),
    "Transactions that the database refused; nothing of them was acknowledged.",
)  # fmt: skip
INGEST_QUEUE_BYTES = _define(
    "paceline_ingest_queue_bytes", "gauge", "bytes", (), "Frames waiting for their commit."
)
ANALYSIS_BACKLOG_BYTES = _define(
    "paceline_analysis_backlog_bytes", "gauge", "bytes", (),
    "Durable frames waiting for their analysis.",
)  # fmt: skip
ANALYSIS_LAG_SECONDS = _define(
    "paceline_analysis_lag_seconds", "gauge", "seconds", (),
    "From the arrival of the newest analysed frame to its analysis.",
)  # fmt: skip
VERDICT_LAG_SECONDS = _define(
    "paceline_verdict_lag_seconds", "histogram", "seconds", (),
    "From the end of a step on its ranks to its verdict, for steps that were analysed live.",
)  # fmt: skip
ANALYSIS_FRAMES = _define(
    "paceline_analysis_frames_total", "counter", "", (), "Frames that the analysis has taken."
)
ANALYSIS_TICKS = _define(
    "paceline_analysis_ticks_total", "counter", "", (),
    "Rounds in which all jobs were analysed and their reports made.",
)  # fmt: skip
ANALYSIS_TICK_SECONDS = _define(
    "paceline_analysis_tick_seconds_total", "counter", "seconds", (), "Time spent in those rounds."
)
ANALYSIS_FAILURES = _define(
    "paceline_analysis_failures_total", "counter", "", (),
    "Attempts whose analysis stopped with an error of its own.",
)  # fmt: skip
CHECKPOINTS = _define(
    "paceline_checkpoints_total", "counter", "", (),
    "How often the analysis of an attempt was written down.",
)  # fmt: skip
CHECKPOINT_SECONDS = _define(
    "paceline_checkpoint_seconds_total", "counter", "seconds", (),
    "CPU time that the analysis spent on that.",
)  # fmt: skip
CHECKPOINT_BYTES = _define(
    "paceline_checkpoint_bytes", "gauge", "bytes", (),
    "Size of the newest checkpoint before compression.",
)  # fmt: skip
CHECKPOINTS_USED = _define(
    "paceline_checkpoints_used_total", "counter", "", (),
    "Attempts that were taken up from a checkpoint.",
)  # fmt: skip
CHECKPOINTS_REFUSED = _define(
    "paceline_checkpoints_refused_total", "counter", "", (),
    "Checkpoints that could not be used; all stored frames were analysed again.",
)  # fmt: skip
ANALYSIS_ATTEMPTS = _define("paceline_analysis_attempts", "gauge", "", (), "Attempts in memory.")
STORE_RAW_BYTES = _define(
    "paceline_store_raw_bytes", "gauge", "bytes", (), "Raw frames kept in the database."
)
STORE_FREE_BYTES = _define(
    "paceline_store_free_bytes", "gauge", "bytes", (),
    "Free space of the disk that the database is on; of a SQLite file only.",
)  # fmt: skip
PERSIST_WAITING_STEPS = _define(
    "paceline_persist_waiting_steps", "gauge", "", (),
    "Analysed steps that are not written to the database yet.",
)  # fmt: skip
PERSIST_FAILURES = _define(
    "paceline_persist_failures_total", "counter", "", (),
    "Transactions of steps, states and incidents that failed; they are tried again.",
)  # fmt: skip
PERSIST_GIVEN_UP = _define(
    "paceline_persist_given_up_total", "counter", "", ("what",),
    "Steps and lanes that were not written, because the database was away for too long.",
)  # fmt: skip
RELIEF_STRIDE = _define(
    "paceline_relief_stride", "gauge", "", ("job",),
    "Every which step the collector asks a job to keep because it cannot keep up; absent: all.",
)  # fmt: skip
RELIEF_CHANGES = _define(
    "paceline_relief_changes_total", "counter", "", ("direction",),
    "How often the collector asked a job for fewer (up) or for more (down) steps by itself.",
)  # fmt: skip
PROCESS_CPU_SECONDS = _define(
    "paceline_process_cpu_seconds_total", "counter", "seconds", (),
    "CPU time of the collector's process.",
)  # fmt: skip
PROCESS_RESIDENT_BYTES = _define(
    "paceline_process_resident_bytes", "gauge", "bytes", (), "Memory of the collector's process."
)
BUS_PUBLISHED = _define(
    "paceline_bus_published_total", "counter", "", (), "Frames that the stream has acknowledged."
)
BUS_PUBLISHES = _define(
    "paceline_bus_publishes_total", "counter", "", (), "Requests whose frames were published."
)
BUS_PUBLISH_SECONDS = _define(
    "paceline_bus_publish_seconds_total", "counter", "seconds", (),
    "Time in which those requests waited for the stream.",
)  # fmt: skip
BUS_WAITING_BYTES = _define(
    "paceline_bus_waiting_bytes", "gauge", "bytes", (),
    "Frames that were published and are not acknowledged yet.",
)  # fmt: skip
BUS_FAILURES = _define(
    "paceline_bus_publish_failures_total", "counter", "", ("reason",),
    "Requests answered 503 because the bus was away or too slow.",
)  # fmt: skip
BUS_LEASES = _define(
    "paceline_bus_leases", "gauge", "", (), "Partitions that this analyzer owns."
)  # fmt: skip
BUS_TAKEOVERS = _define(
    "paceline_bus_takeovers_total", "counter", "", (), "Partitions that this analyzer has taken."
)
BUS_LAG_MESSAGES = _define(
    "paceline_bus_lag_messages", "gauge", "", ("partition",),
    "Frames in the stream that are not stored yet, of the partitions that this analyzer owns.",
)  # fmt: skip
BUS_REDELIVERED = _define(
    "paceline_bus_redelivered_total", "counter", "", (),
    "Messages that came again because nobody had acknowledged them in time.",
)  # fmt: skip
BUS_TERMINATED = _define(
    "paceline_bus_terminated_total", "counter", "", ("reason",),
    "Messages that can never be stored, and were taken out of the stream.",
)  # fmt: skip

ALL: tuple[Metric, ...] = tuple(_ALL)
