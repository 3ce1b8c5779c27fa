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


COUNTER: Kind = "counter"
GAUGE: Kind = "gauge"
HISTOGRAM: Kind = "histogram"
_JOB = ("job",)
_RANK = ("job", "rank")
_NODE = ("job", "node")
_COLLECTIVE = ("job", "group", "op")

# fmt: off
STEP_SECONDS = _define("paceline_step_seconds", HISTOGRAM, "seconds", _JOB,
    "Duration of the analysed steps (median over the ranks).")
RANK_SELF_SECONDS = _define("paceline_rank_self_seconds_total", COUNTER, "seconds", _RANK,
    "Time in which a rank worked by itself: neither waiting nor communicating.")
RANK_WAIT_SECONDS = _define("paceline_rank_wait_seconds_total", COUNTER, "seconds", _RANK,
    "Exposed time in which a rank waited for others to arrive.")
RANK_CAUSED_WAIT_SECONDS = _define("paceline_rank_caused_wait_seconds_total", COUNTER, "seconds",
    _RANK, "Wait of others in the collectives in which this rank arrived last.")
RANK_WASTED_GPU_SECONDS = _define("paceline_rank_wasted_gpu_seconds_total", COUNTER, "seconds",
    _RANK,
    "Wait of others that is blamed on this rank, after inherited lateness went back to its cause.")
RANK_LATENESS_RATIO = _define("paceline_rank_lateness_ratio", GAUGE, "ratio", _RANK,
    "Share of the collectives that somebody waited in, in which this rank arrived last.")
RANK_FLAGGED = _define("paceline_rank_flagged", GAUGE, "", ("job", "rank", "kind", "cause"),
    "1 while a finding names this rank and still goes on.")
RANK_SILENCED = _define("paceline_rank_silenced", GAUGE, "", ("job", "rank", "kind", "cause"),
    "1 while a silence covers the finding that flags this rank.")
JOB_SLOWDOWN_RATIO = _define("paceline_job_slowdown_ratio", GAUGE, "ratio", _JOB,
    "Time of the job over its time without what the findings name.")
JOB_IDLE_RATIO = _define("paceline_job_idle_ratio", GAUGE, "ratio", _JOB,
    "Share of the ranks' time that is exposed wait.")
JOB_GAMMA_RATIO = _define("paceline_job_gamma_ratio", GAUGE, "ratio", _JOB,
    "Exposed communication over compute.")
JOB_EXPECTED_STEP_SECONDS = _define("paceline_job_expected_step_seconds", GAUGE, "seconds", _JOB,
    "Step that the job would take with healthy ranks, by its own compute, alpha and beta.")
JOB_OBSERVED_STEP_SECONDS = _define("paceline_job_observed_step_seconds", GAUGE, "seconds", _JOB,
    "Mean step that the job took, over the same steps.")
JOB_STEP_GAP_SECONDS = _define("paceline_job_step_gap_seconds", GAUGE, "seconds", ("job", "part"),
    "Observed less expected step, by what it comes from; the parts sum to the difference.")
INFLIGHT_AGE_SECONDS = _define("paceline_inflight_collective_age_seconds", GAUGE, "seconds", _RANK,
    "Age of the oldest collective that a rank was in when it was last heard of; 0: in none.")
JOB_RANKS = _define("paceline_job_ranks", GAUGE, "", ("job", "state"),
    "Ranks of the job that were seen; the state is that of the job: running, silent or ended.")
JOB_LAST_STEP = _define("paceline_job_last_step", GAUGE, "", _JOB,
    "The newest step that was analysed.")
JOB_WORLD_SIZE = _define("paceline_job_world_size", GAUGE, "", _JOB,
    "Ranks that the job has, seen or not.")
JOB_SILENT_RANKS = _define("paceline_job_silent_ranks", GAUGE, "", _JOB,
    "Ranks of a running job that have not been heard of for the silence limit, or never.")
JOB_RANK_SERIES = _define("paceline_job_rank_series", GAUGE, "", _JOB,
    "Ranks that have series of their own here; fewer than the world size beyond the cap.")
JOB_VERDICT = _define("paceline_job_verdict", GAUGE, "", ("job", "verdict"),
    "1 for the present verdict.")
JOB_RECOVERABLE_RATIO = _define("paceline_job_recoverable_ratio", GAUGE, "ratio", _JOB,
    "Share of the job's time that it would get back without what its findings name.")
JOB_SELF_SECONDS = _define("paceline_job_self_seconds_total", COUNTER, "seconds", _JOB,
    "Time in which ranks worked by themselves, summed over all ranks.")
JOB_WAIT_SECONDS = _define("paceline_job_wait_seconds_total", COUNTER, "seconds", _JOB,
    "Exposed time in which ranks waited for others to arrive, summed over all ranks.")
JOB_EXPOSED_COMM_SECONDS = _define("paceline_job_exposed_comm_seconds_total", COUNTER, "seconds",
    _JOB, "Time in which ranks did nothing but transfer data, summed over all ranks.")
JOB_WASTED_GPU_SECONDS = _define("paceline_job_wasted_gpu_seconds_total", COUNTER, "seconds", _JOB,
    "Wait that is blamed on some rank, summed over all ranks.")
JOB_FINDING = _define("paceline_job_finding", GAUGE, "", ("job", "kind", "cause"),
    "1 while such a finding goes on, also one that names nobody.")
JOB_FINDING_SILENCED = _define("paceline_job_finding_silenced", GAUGE, "", ("job", "kind", "cause"),
    "1 while silences cover every such finding that goes on.")
JOB_FINDING_SECONDS = _define("paceline_job_finding_wasted_gpu_seconds_total", COUNTER, "seconds",
    ("job", "kind", "cause"),
    "GPU time that the findings of a kind and cause have cost since the job began.")
NODE_SELF_SECONDS = _define("paceline_node_self_seconds_total", COUNTER, "seconds", _NODE,
    "Time in which the ranks of a node worked by themselves.")
NODE_WAIT_SECONDS = _define("paceline_node_wait_seconds_total", COUNTER, "seconds", _NODE,
    "Exposed time in which the ranks of a node waited for others to arrive.")
NODE_CAUSED_WAIT_SECONDS = _define("paceline_node_caused_wait_seconds_total", COUNTER, "seconds",
    _NODE, "Wait of others in the collectives in which a rank of the node arrived last.")
NODE_WASTED_GPU_SECONDS = _define("paceline_node_wasted_gpu_seconds_total", COUNTER, "seconds",
    _NODE, "Wait of others that is blamed on the ranks of a node.")
NODE_FLAGGED = _define("paceline_node_flagged", GAUGE, "", ("job", "node", "kind", "cause"),
    "1 while a finding names this node, or ranks of it, and still goes on.")
NODE_SILENCED = _define("paceline_node_silenced", GAUGE, "", ("job", "node", "kind", "cause"),
    "1 while a silence covers the finding that flags this node.")
NODE_RECOVERABLE_RATIO = _define("paceline_node_recoverable_ratio", GAUGE, "ratio", _NODE,
    "Share of the job's time that it would get back without this node.")
NODE_OFFENCES = _define("paceline_node_offences", GAUGE, "", ("node",),
    "Incidents of the last 30 days that named this node; the worst nodes only.")
RANK_INFO = _define("paceline_rank_info", GAUGE, "", ("job", "rank", "node"),
    "1; tells on which node a rank is.")
RANK_EXPOSED_COMM_SECONDS = _define("paceline_rank_exposed_comm_seconds_total", COUNTER, "seconds",
    _RANK, "Time in which a rank did nothing but transfer data.")
RANK_PHASE_SECONDS = _define("paceline_rank_phase_seconds_total", COUNTER, "seconds",
    ("job", "rank", "phase"), "Own time of a rank by phase of the step.")
RANK_SM_CLOCK_HERTZ = _define("paceline_rank_sm_clock_hertz", GAUGE, "hertz", _RANK,
    "Clock of the SMs of the rank's GPU.")
RANK_SM_CLOCK_MAX_HERTZ = _define("paceline_rank_sm_clock_max_hertz", GAUGE, "hertz", _RANK,
    "Highest clock of the SMs of that GPU.")
RANK_GPU_TEMPERATURE_CELSIUS = _define("paceline_rank_gpu_temperature_celsius", GAUGE, "celsius",
    _RANK, "Temperature of the rank's GPU.")
RANK_GPU_MEMORY_TEMPERATURE_CELSIUS = _define("paceline_rank_gpu_memory_temperature_celsius", GAUGE,
    "celsius", _RANK, "Temperature of the memory of the rank's GPU.")
RANK_GPU_POWER_WATTS = _define("paceline_rank_gpu_power_watts", GAUGE, "watts", _RANK,
    "Power that the rank's GPU draws.")
RANK_GPU_POWER_LIMIT_WATTS = _define("paceline_rank_gpu_power_limit_watts", GAUGE, "watts", _RANK,
    "Power limit of the rank's GPU that is in force.")
RANK_GPU_BUSY_RATIO = _define("paceline_rank_gpu_busy_ratio", GAUGE, "ratio", _RANK,
    "Share of the time in which a kernel ran on the rank's GPU; a waiting GPU is busy, too.")
RANK_GPU_MEMORY_USED_BYTES = _define("paceline_rank_gpu_memory_used_bytes", GAUGE, "bytes", _RANK,
    "Memory of the rank's GPU that is in use, by all processes.")
RANK_GPU_LOST = _define("paceline_rank_gpu_lost", GAUGE, "", _RANK,
    "1 while the rank's GPU has fallen off its bus.")
RANK_THROTTLED = _define("paceline_rank_throttled", GAUGE, "", ("job", "rank", "reason"),
    "1 while this reason holds the clocks of the rank's GPU down.")
RANK_THROTTLE_SECONDS = _define("paceline_rank_throttle_seconds_total", COUNTER, "seconds",
    ("job", "rank", "reason"),
    "Time for which this reason has held the clocks of the rank's GPU down.")
RANK_PCIE_REPLAYS = _define("paceline_rank_pcie_replays_total", COUNTER, "", _RANK,
    "Transfers over PCIe that the rank's GPU had to repeat.")
RANK_NVLINK_ERRORS = _define("paceline_rank_nvlink_errors_total", COUNTER, "", _RANK,
    "Errors of the NVLinks of the rank's GPU: CRC, replay and recovery.")
RANK_ECC_ERRORS = _define("paceline_rank_ecc_errors_total", COUNTER, "", ("job", "rank", "kind"),
    "Memory errors of the rank's GPU, corrected and uncorrected, since its driver loaded.")
RANK_RUN_QUEUE_SECONDS = _define("paceline_rank_run_queue_seconds_total", COUNTER, "seconds", _RANK,
    "Time in which the main thread of a rank was ready to run and had no CPU.")
RANK_CPU_THROTTLED_SECONDS = _define("paceline_rank_cpu_throttled_seconds_total", COUNTER,
    "seconds", _RANK, "Time for which a CPU limit of its cgroup has stopped a rank.")
NODE_CPU_RATIO = _define("paceline_node_cpu_ratio", GAUGE, "ratio", ("job", "node", "mode"),
    "Share of all CPUs of a node: user, system, iowait and steal.")
NODE_LOAD = _define("paceline_node_load_tasks", GAUGE, "", _NODE,
    "Load average of a node over a minute.")
NODE_STALL_SECONDS = _define("paceline_node_stall_seconds_total", COUNTER, "seconds",
    ("job", "node", "resource"),
    "Time in which some task of a node waited for cpu, memory or io.")
NODE_MEMORY_AVAILABLE_BYTES = _define("paceline_node_memory_available_bytes", GAUGE, "bytes", _NODE,
    "Memory of a node that can still be had.")
NODE_OOM_KILLS = _define("paceline_node_oom_kills_total", COUNTER, "", _NODE,
    "Processes of a node that were killed for want of memory.")
NODE_NIC_BYTES = _define("paceline_node_nic_bytes_total", COUNTER, "bytes",
    ("job", "node", "device", "direction"),
    "Bytes that a network device of a node has received (rx) and sent (tx).")
NODE_NIC_ERRORS = _define("paceline_node_nic_errors_total", COUNTER, "", ("job", "node", "device"),
    "Packets of a network device of a node that were bad or dropped.")
NODE_IB_BYTES = _define("paceline_node_ib_bytes_total", COUNTER, "bytes",
    ("job", "node", "device", "direction"),
    "Bytes that an InfiniBand port of a node has received (rx) and sent (tx).")
NODE_IB_ERRORS = _define("paceline_node_ib_errors_total", COUNTER, "",
    ("job", "node", "device", "kind"),
    "Errors of an InfiniBand port of a node, by kind.")
NODE_IB_UP = _define("paceline_node_ib_up", GAUGE, "", ("job", "node", "device"),
    "1: the InfiniBand port of a node is up; 0: it is not.")
NODE_IB_XMIT_WAIT = _define("paceline_node_ib_xmit_wait_total", COUNTER, "",
    ("job", "node", "device"),
    "Ticks in which an InfiniBand port of a node had data to send and no credit.")
COLLECTIVE_TRANSFER_SECONDS = _define("paceline_collective_transfer_seconds", HISTOGRAM, "seconds",
    _COLLECTIVE,
    "How long the transfers of a group took, from the last arrival to the release.")
COLLECTIVE_BUSBW = _define("paceline_collective_busbw_bytes_per_second", GAUGE, "bytes_per_second",
    _COLLECTIVE, "Bus bandwidth of a group's newest large transfers.")
COLLECTIVE_ALPHA_SECONDS = _define("paceline_collective_alpha_seconds", GAUGE, "seconds",
    _COLLECTIVE, "Fixed cost of a transfer of a group, as fitted.")
COLLECTIVE_BETA = _define("paceline_collective_beta_bytes_per_second", GAUGE, "bytes_per_second",
    _COLLECTIVE, "Bytes that a transfer of a group moves in a second, as fitted.")
COLLECTIVE_RESIDUAL_RATIO = _define("paceline_collective_residual_ratio", GAUGE, "ratio",
    _COLLECTIVE,
    "Newest transfers of a group over what the fit expects of them; 1: as expected.")
LINK_FLAGGED = _define("paceline_link_flagged", GAUGE, "", ("job", "source", "destination"),
    "1 while a finding names this link between two ranks and still goes on.")
NOTIFICATIONS = _define("paceline_notifications_total", COUNTER, "", ("channel", "outcome"),
    "Messages about incidents, by where they went and what became of them.")
NOTIFICATIONS_WAITING = _define("paceline_notifications_waiting", GAUGE, "", (),
    "Messages about incidents that are not delivered yet.")
DROPPED = _define("paceline_dropped_total", COUNTER, "", ("stage", "reason"),
    "What was lost, where (agent, ingest, analysis, store) and why.")
INGEST_FRAMES = _define("paceline_ingest_frames_total", COUNTER, "", (),
    "Frames made durable and acknowledged.")
INGEST_RECORDS = _define("paceline_ingest_records_total", COUNTER, "", (),
    "Records in those frames.")
INGEST_BYTES = _define("paceline_ingest_bytes_total", COUNTER, "bytes", (),
    "Bytes of those frames, as stored.")
INGEST_DUPLICATES = _define("paceline_ingest_duplicates_total", COUNTER, "", (),
    "Frames that were sent again and not stored again.")
INGEST_REJECTED = _define("paceline_ingest_rejected_total", COUNTER, "", ("reason",),
    "Frames that can never be taken: corrupt, over a limit, or not covered by the token.")
INGEST_REFUSED = _define("paceline_ingest_refused_total", COUNTER, "", ("reason",),
    "Requests answered 429: their senders keep the frames and try again.")
ACCESS_REFUSED = _define("paceline_access_refused_total", COUNTER, "", ("reason",),
    "Requests and connections refused before their work began, because of who sent them or how.")
INGEST_COMMITS = _define("paceline_ingest_commits_total", COUNTER, "", (),
    "Transactions that stored frames.")
INGEST_COMMIT_SECONDS = _define("paceline_ingest_commit_seconds_total", COUNTER, "seconds", (),
    "Time spent in those transactions.")
INGEST_COMMIT_DURATION_SECONDS = _define("paceline_ingest_commit_duration_seconds", HISTOGRAM,
    "seconds", (), "How long each of those transactions took, until it was durable.")
INGEST_COMMIT_FAILURES = _define("paceline_ingest_commit_failures_total", COUNTER, "", (),
    "Transactions that the database refused; nothing of them was acknowledged.")
INGEST_QUEUE_BYTES = _define("paceline_ingest_queue_bytes", GAUGE, "bytes", (),
    "Frames waiting for their commit.")
ANALYSIS_BACKLOG_BYTES = _define("paceline_analysis_backlog_bytes", GAUGE, "bytes", (),
    "Durable frames waiting for their analysis.")
ANALYSIS_LAG_SECONDS = _define("paceline_analysis_lag_seconds", GAUGE, "seconds", (),
    "From the arrival of the newest analysed frame to its analysis.")
VERDICT_LAG_SECONDS = _define("paceline_verdict_lag_seconds", HISTOGRAM, "seconds", (),
    "From the end of a step on its ranks to its verdict, for steps that were analysed live.")
ANALYSIS_FRAMES = _define("paceline_analysis_frames_total", COUNTER, "", (),
    "Frames that the analysis has taken.")
ANALYSIS_TICKS = _define("paceline_analysis_ticks_total", COUNTER, "", (),
    "Rounds in which all jobs were analysed and their reports made.")
ANALYSIS_TICK_SECONDS = _define("paceline_analysis_tick_seconds_total", COUNTER, "seconds", (),
    "Time spent in those rounds.")
ANALYSIS_FAILURES = _define("paceline_analysis_failures_total", COUNTER, "", (),
    "Attempts whose analysis stopped with an error of its own.")
CHECKPOINTS = _define("paceline_checkpoints_total", COUNTER, "", (),
    "How often the analysis of an attempt was written down.")
CHECKPOINT_SECONDS = _define("paceline_checkpoint_seconds_total", COUNTER, "seconds", (),
    "CPU time that the analysis spent on that.")
CHECKPOINT_BYTES = _define("paceline_checkpoint_bytes", GAUGE, "bytes", (),
    "Size of the newest checkpoint before compression.")
CHECKPOINTS_USED = _define("paceline_checkpoints_used_total", COUNTER, "", (),
    "Attempts that were taken up from a checkpoint.")
CHECKPOINTS_REFUSED = _define("paceline_checkpoints_refused_total", COUNTER, "", (),
    "Checkpoints that could not be used; all stored frames were analysed again.")
ANALYSIS_ATTEMPTS = _define("paceline_analysis_attempts", GAUGE, "", (),
    "Attempts in memory.")
STORE_RAW_BYTES = _define("paceline_store_raw_bytes", GAUGE, "bytes", (),
    "Raw frames kept in the database.")
STORE_FREE_BYTES = _define("paceline_store_free_bytes", GAUGE, "bytes", (),
    "Free space of the disk that the database is on; of a SQLite file only.")
PERSIST_WAITING_STEPS = _define("paceline_persist_waiting_steps", GAUGE, "", (),
    "Analysed steps that are not written to the database yet.")
PERSIST_FAILURES = _define("paceline_persist_failures_total", COUNTER, "", (),
    "Transactions of steps, states and incidents that failed; they are tried again.")
PERSIST_GIVEN_UP = _define("paceline_persist_given_up_total", COUNTER, "", ("what",),
    "Steps and lanes that were not written, because the database was away for too long.")
RELIEF_STRIDE = _define("paceline_relief_stride", GAUGE, "", _JOB,
    "Every which step the collector asks a job to keep because it cannot keep up; absent: all.")
RELIEF_CHANGES = _define("paceline_relief_changes_total", COUNTER, "", ("direction",),
    "How often the collector asked a job for fewer (up) or for more (down) steps by itself.")
PROCESS_CPU_SECONDS = _define("paceline_process_cpu_seconds_total", COUNTER, "seconds", (),
    "CPU time of the collector's process.")
PROCESS_RESIDENT_BYTES = _define("paceline_process_resident_bytes", GAUGE, "bytes", (),
    "Memory of the collector's process.")
BUS_PUBLISHED = _define("paceline_bus_published_total", COUNTER, "", (),
    "Frames that the stream has acknowledged.")
BUS_PUBLISHES = _define("paceline_bus_publishes_total", COUNTER, "", (),
    "Requests whose frames were published.")
BUS_PUBLISH_SECONDS = _define("paceline_bus_publish_seconds_total", COUNTER, "seconds", (),
    "Time in which those requests waited for the stream.")
BUS_WAITING_BYTES = _define("paceline_bus_waiting_bytes", GAUGE, "bytes", (),
    "Frames that were published and are not acknowledged yet.")
BUS_FAILURES = _define("paceline_bus_publish_failures_total", COUNTER, "", ("reason",),
    "Requests answered 503 because the bus was away or too slow.")
BUS_LEASES = _define("paceline_bus_leases", GAUGE, "", (),
    "Partitions that this analyzer owns.")
BUS_TAKEOVERS = _define("paceline_bus_takeovers_total", COUNTER, "", (),
    "Partitions that this analyzer has taken.")
BUS_LAG_MESSAGES = _define("paceline_bus_lag_messages", GAUGE, "", ("partition",),
    "Frames in the stream that are not stored yet, of the partitions that this analyzer owns.")
BUS_REDELIVERED = _define("paceline_bus_redelivered_total", COUNTER, "", (),
    "Messages that came again because nobody had acknowledged them in time.")
BUS_TERMINATED = _define("paceline_bus_terminated_total", COUNTER, "", ("reason",),
    "Messages that can never be stored, and were taken out of the stream.")
# fmt: on

ALL: tuple[Metric, ...] = tuple(_ALL)
