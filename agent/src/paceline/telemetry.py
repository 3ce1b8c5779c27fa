"""Names of telemetry: what a sample may hold, in which unit, and how it travels.

docs/telemetry.md lists them all. A name of several instances is written ``NAME/INSTANCE``, for
example ``nic_rx_bytes_total/eth0``. Names end in their unit; counters are totals and end
``_total``.

How a value travels depends on its kind alone. A gauge is in every sample that knows it. Counters
and facts are in a sample when they changed, and once a minute: one that is not there is unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum

from paceline.dataclass import dataclass

Value = int | float | str | list[str]
Values = dict[str, Value]
REFRESH_NS = 60_000_000_000
"""A counter or a fact that does not change is repeated this often."""
MAX_NAME_CHARS = 128
MAX_TEXT_CHARS = 512


class Kind(Enum):
    """How a value is to be read."""

    GAUGE = "gauge"
    COUNTER = "counter"
    FACT = "fact"
    EVENT = "event"
    """Of the moment of its sample; sent once."""


class Scope(Enum):
    """What a value is of."""

    GPU = "gpu"
    PROCESS = "rank process"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One name of the catalogue."""

    kind: Kind
    scope: Scope
    source: str
    meaning: str


CATALOGUE: dict[str, Name] = {}
"""By name without its instance."""


def _add(name: str, scope: Scope, source: str, meaning: str, kind: Kind = Kind.GAUGE) -> str:
    kind = Kind.COUNTER if name.endswith("_total") else kind
    CATALOGUE[name] = Name(kind=kind, scope=scope, source=source, meaning=meaning)
    return name


def _gpu(name: str, source: str, meaning: str, kind: Kind = Kind.GAUGE) -> str:
    return _add(name, Scope.GPU, source, meaning, kind)


def _node(name: str, source: str, meaning: str, kind: Kind = Kind.GAUGE) -> str:
    return _add(name, Scope.NODE, source, meaning, kind)


def _rank(name: str, source: str, meaning: str, kind: Kind = Kind.GAUGE) -> str:
    return _add(name, Scope.PROCESS, source, meaning, kind)


_FACT, _EVENT = Kind.FACT, Kind.EVENT

# Which GPU
GPU_BY = _gpu("gpu_by", "-", "how the GPU of the rank was found: uuid or local_rank", _FACT)
GPU_UUID = _gpu("gpu_uuid", "DeviceGetUUID", "UUID", _FACT)
GPU_NAME = _gpu("gpu_name", "DeviceGetName", "product name", _FACT)
GPU_PCI = _gpu("gpu_pci", "DeviceGetPciInfo", "PCI address, domain:bus:device", _FACT)
GPU_INDEX = _gpu("gpu_index", "order of NVML", "index at NVML", _FACT)
MIG = _gpu("mig", "DeviceGetMigMode", "1: the GPU is divided into MIG instances", _FACT)
MIG_UUID = _gpu("mig_uuid", "DeviceGetUUID of the instance", "the rank's MIG instance", _FACT)

# Clocks and what holds them down
SM_CLOCK = _gpu("sm_clock_hz", "DeviceGetClockInfo", "clock of the SMs")
MEM_CLOCK = _gpu("mem_clock_hz", "DeviceGetClockInfo", "clock of the memory")
SM_CLOCK_MAX = _gpu("max_sm_clock_hz", "DeviceGetMaxClockInfo", "highest SM clock", _FACT)
MEM_CLOCK_MAX = _gpu("max_mem_clock_hz", "DeviceGetMaxClockInfo", "highest memory clock", _FACT)
THROTTLE = _gpu(
    "throttle_reasons", "DeviceGetCurrentClocksEventReasons", "what holds the clocks down now"
)
THROTTLE_SW_POWER = _gpu("throttle_sw_power_cap_ns_total", "field 74", "held down for so long")
THROTTLE_SYNC_BOOST = _gpu("throttle_sync_boost_ns_total", "field 76", "held down for so long")
THROTTLE_SW_THERMAL = _gpu(
    "throttle_sw_thermal_slowdown_ns_total", "field 269", "held down for so long"
)
THROTTLE_HW_THERMAL = _gpu(
    "throttle_hw_thermal_slowdown_ns_total", "field 270", "held down for so long"
)
THROTTLE_HW_BRAKE = _gpu("throttle_hw_power_brake_ns_total", "field 271", "held down for so long")

# Heat, power, load, memory
TEMPERATURE = _gpu("temperature_c", "DeviceGetTemperature", "of the GPU")
MEM_TEMPERATURE = _gpu("mem_temperature_c", "field 82", "of the memory")
POWER = _gpu("power_w", "DeviceGetPowerUsage", "power draw")
POWER_LIMIT = _gpu("power_limit_w", "DeviceGetEnforcedPowerLimit", "power limit in force", _FACT)
UTILIZATION = _gpu("gpu_busy_ratio", "DeviceGetUtilizationRates", "share of time with a kernel")
MEM_UTILIZATION = _gpu(
    "gpu_mem_busy_ratio", "DeviceGetUtilizationRates", "share of time with memory traffic"
)
MEM_USED = _gpu("gpu_mem_used_bytes", "DeviceGetMemoryInfo", "memory in use, by all processes")
MEM_TOTAL = _gpu("gpu_mem_bytes", "DeviceGetMemoryInfo", "memory of the GPU", _FACT)

# Damage
ECC_CORRECTED = _gpu(
    "ecc_corrected_total", "DeviceGetTotalEccErrors", "corrected, since the driver loaded"
)
ECC_UNCORRECTED = _gpu(
    "ecc_uncorrected_total", "DeviceGetTotalEccErrors", "uncorrected, since the driver loaded"
)
REMAPPED_CORRECTABLE = _gpu(
    "remapped_rows_correctable_total", "DeviceGetRemappedRows", "rows remapped, ever"
)
REMAPPED_UNCORRECTABLE = _gpu(
    "remapped_rows_uncorrectable_total", "DeviceGetRemappedRows", "rows remapped, ever"
)
REMAP_PENDING = _gpu(
    "remapped_rows_pending", "DeviceGetRemappedRows", "1: a remap waits for a reset", _FACT
)
REMAP_FAILURE = _gpu("remapped_rows_failure", "DeviceGetRemappedRows", "1: a remap failed", _FACT)
GPU_LOST = _gpu("gpu_lost", "NVML errors", "1: it fell off the bus; absent otherwise")
NVML_STUCK = _gpu("nvml_stuck_s", "clock", "a call to NVML has not returned for so long")

# Links of the GPU
PCIE_GEN = _gpu("pcie_generation", "DeviceGetCurrPcieLinkGeneration", "now; idle GPUs lower it")
PCIE_GEN_MAX = _gpu("max_pcie_generation", "DeviceGetMaxPcieLinkGeneration", "highest", _FACT)
PCIE_WIDTH = _gpu("pcie_width_lanes", "DeviceGetCurrPcieLinkWidth", "lanes now", _FACT)
PCIE_WIDTH_MAX = _gpu("max_pcie_width_lanes", "DeviceGetMaxPcieLinkWidth", "most lanes", _FACT)
PCIE_REPLAY = _gpu("pcie_replays_total", "DeviceGetPcieReplayCounter", "repeated transfers")
NVLINK_ACTIVE = _gpu("nvlinks_active", "DeviceGetNvLinkState", "links that are up", _FACT)
NVLINK_DOWN = _gpu("nvlinks_down", "DeviceGetNvLinkState", "numbers of links that are down", _FACT)
NVLINK_CRC = _gpu("nvlink_crc_flit_errors_total", "DeviceGetNvLinkErrorCounter", "over all links")
NVLINK_REPLAY = _gpu("nvlink_replay_errors_total", "DeviceGetNvLinkErrorCounter", "over all links")
NVLINK_RECOVERY = _gpu(
    "nvlink_recovery_errors_total", "DeviceGetNvLinkErrorCounter", "over all links"
)

# Events of the kernel log
XID = _gpu("xid", "kernel log", "number of an XID", _EVENT)
XID_PCI = _gpu("xid_pci", "kernel log", "PCI address of the GPU", _EVENT)
XID_PID = _gpu("xid_pid", "kernel log", "process that it names, in the host's numbers", _EVENT)
XID_PROCESS = _gpu("xid_process", "kernel log", "name of that process", _EVENT)
XID_TEXT = _gpu("xid_text", "kernel log", "the rest of the line", _EVENT)
SXID = _node("sxid", "kernel log", "number of an SXid of an NVSwitch", _EVENT)
SXID_PCI = _node("sxid_pci", "kernel log", "PCI address of the NVSwitch", _EVENT)
SXID_TEXT = _node("sxid_text", "kernel log", "the rest of the line", _EVENT)
NVML_ERROR = _node("nvml_error", "NVML", "why NVML answers nothing; empty: it does again", _FACT)

# The rank's process
RANK_ON_CPU = _rank("rank_on_cpu_ns_total", "/proc/PID/schedstat", "main thread ran")
STACK = _rank(
    "stack",
    "py-spy",
    "lines of the main thread of a process that stands still, innermost first",
    _EVENT,
)
REPLICA_CHECK = _rank("replica_check", "hooks", "how often replicas are checked", _FACT)
REPLICA_LEFT_OUT = _rank(
    "replica_left_out", "hooks", "what is compared with nobody, and why; `; ` between", _FACT
)
LEFT_OUT_BETWEEN = "; "
MAX_LEFT_OUT_CHARS = 240
"""A fact about a process may be a little longer."""
REPLICA_DIGEST = _rank(
    "replica_digest", "hooks", "parameters of this replica at one step: 16 hex digits", _EVENT
)
REPLICA_SET = _rank("replica_set", "hooks", "what they are: equal where they must agree", _EVENT)
REPLICA_COUNT = _rank("replica_count", "hooks", "how many ranks hold a replica of it", _EVENT)
REPLICA_STEP = _rank("replica_step", "hooks", "the step before whose update it was taken", _EVENT)
REPLICA_SEQ = _rank("replica_seq", "hooks", "collectives of the group until then", _EVENT)
REPLICA_PART = _rank("replica_part", "hooks", "which part was read: PART/PARTS", _EVENT)
RANK_RUN_QUEUE = _rank(
    "rank_run_queue_ns_total", "/proc/PID/schedstat", "main thread was ready and had no CPU"
)
RANK_MAJOR_FAULTS = _rank("rank_major_faults_total", "/proc/PID/stat", "faults that read a disk")
CGROUP_THROTTLED = _rank(
    "cgroup_cpu_throttled_ns_total", "cgroup cpu.stat", "stopped by a CPU limit"
)
CGROUP_PERIODS = _rank(
    "cgroup_cpu_throttled_periods_total", "cgroup cpu.stat", "periods with a stop"
)
CGROUP_LIMIT = _rank("cgroup_cpu_limit_cores", "cgroup cpu.max", "CPU limit in cores", _FACT)

# The host
CPU_USER = _node("cpu_user_ratio", "/proc/stat", "share of all CPUs: user and nice")
CPU_SYSTEM = _node("cpu_system_ratio", "/proc/stat", "share: kernel and interrupts")
CPU_IOWAIT = _node("cpu_iowait_ratio", "/proc/stat", "share: idle while I/O was awaited")
CPU_STEAL = _node("cpu_steal_ratio", "/proc/stat", "share: taken by the hypervisor")
LOAD = _node("load_tasks", "/proc/loadavg", "load average of a minute")
STALL_CPU = _node("cpu_stall_us_total", "/proc/pressure/cpu", "some task waited for a CPU")
STALL_MEMORY = _node(
    "memory_stall_us_total", "/proc/pressure/memory", "some task waited for memory"
)
STALL_IO = _node("io_stall_us_total", "/proc/pressure/io", "some task waited for I/O")
STALL_MEMORY_FULL = _node(
    "memory_full_stall_us_total", "/proc/pressure/memory", "all tasks waited for memory"
)
STALL_IO_FULL = _node("io_full_stall_us_total", "/proc/pressure/io", "all tasks waited for I/O")
MEMORY = _node("memory_bytes", "/proc/meminfo", "memory of the host", _FACT)
MEMORY_AVAILABLE = _node("memory_available_bytes", "/proc/meminfo", "MemAvailable")
SWAP_IN = _node("swap_in_pages_total", "/proc/vmstat", "pages read from swap")
SWAP_OUT = _node("swap_out_pages_total", "/proc/vmstat", "pages written to swap")
OOM_KILLS = _node("oom_kills_total", "/proc/vmstat", "processes killed for memory")
CPU_CLOCK_MIN = _node("min_cpu_clock_hz", "cpufreq/scaling_cur_freq", "slowest CPU now")
CPU_CLOCK_MEAN = _node("mean_cpu_clock_hz", "cpufreq/scaling_cur_freq", "mean over the CPUs")
CPU_CORE_THROTTLE = _node(
    "cpu_core_throttle_total", "thermal_throttle/core_throttle_count", "over all CPUs"
)
CPU_PACKAGE_THROTTLE = _node(
    "cpu_package_throttle_total", "thermal_throttle/package_throttle_count", "over all packages"
)

# Network cards; instance: the interface
NIC_RX_BYTES = _node("nic_rx_bytes_total", "net/*/statistics", "received")
NIC_TX_BYTES = _node("nic_tx_bytes_total", "net/*/statistics", "sent")
NIC_RX_ERRORS = _node("nic_rx_errors_total", "net/*/statistics", "bad packets received")
NIC_TX_ERRORS = _node("nic_tx_errors_total", "net/*/statistics", "packets that could not be sent")
NIC_RX_DROPPED = _node("nic_rx_dropped_total", "net/*/statistics", "dropped for want of room")
NIC_TX_DROPPED = _node("nic_tx_dropped_total", "net/*/statistics", "dropped for want of room")
NIC_CARRIER_CHANGES = _node("nic_carrier_changes_total", "net/*/carrier_changes", "link up or down")
NIC_UP = _node("nic_up", "net/*/operstate", "1: the link is up, 0: it is not", _FACT)
NIC_SPEED = _node("nic_speed_bits_per_s", "net/*/speed", "speed of the link", _FACT)

# InfiniBand and RoCE; instance: DEVICE:PORT
IB_RX_BYTES = _node("ib_rx_bytes_total", "counters/port_rcv_data", "received; 4 times the file")
IB_TX_BYTES = _node("ib_tx_bytes_total", "counters/port_xmit_data", "sent; 4 times the file")
IB_STATE = _node("ib_up", "state, phys_state", "1: ACTIVE and LinkUp, 0: not", _FACT)
IB_STATE_TEXT = _node("ib_state", "state, phys_state", "both as the kernel says them", _FACT)
IB_RATE = _node("ib_rate_bits_per_s", "rate", "rate of the port", _FACT)
IB_RATE_LOWERED = _node(
    "ib_rate_degraded", "rate", "1: below the highest rate seen of this port", _FACT
)
IB_COUNTERS = {
    "port_xmit_wait": _node("ib_xmit_wait_total", "counters", "ticks with data and no credit"),
    "symbol_error": _node("ib_symbol_errors_total", "counters", "bad symbols on the wire"),
    "link_downed": _node("ib_link_downed_total", "counters", "link went down"),
    "link_error_recovery": _node("ib_link_error_recovery_total", "counters", "link recovered"),
    "port_rcv_errors": _node("ib_rx_errors_total", "counters", "bad packets received"),
    "port_xmit_discards": _node("ib_tx_discards_total", "counters", "packets not sent"),
    "local_link_integrity_errors": _node(
        "ib_local_link_integrity_errors_total", "counters", "link errors over the threshold"
    ),
}
"""File under ``counters`` to name."""
IB_HW_COUNTERS = {
    "out_of_sequence": _node("ib_out_of_sequence_total", "hw_counters", "packets out of order"),
    "packet_seq_err": _node("ib_packet_sequence_errors_total", "hw_counters", "NAK of a sequence"),
    "local_ack_timeout_err": _node("ib_ack_timeouts_total", "hw_counters", "no answer in time"),
    "rnr_nak_retry_err": _node("ib_rnr_nak_retries_total", "hw_counters", "receiver not ready"),
    "np_cnp_sent": _node("ib_cnp_sent_total", "hw_counters", "congestion notices sent"),
    "rp_cnp_handled": _node("ib_cnp_handled_total", "hw_counters", "congestion notices heeded"),
    "np_ecn_marked_roce_packets": _node("ib_ecn_marked_total", "hw_counters", "marked packets"),
    "roce_adp_retrans": _node("ib_adaptive_retransmits_total", "hw_counters", "sent again"),
    "implied_nak_seq_err": _node("ib_implied_naks_total", "hw_counters", "sequence gaps"),
}
"""File under ``hw_counters`` to name."""


def base_of(name: str) -> str:
    """Return ``name`` without its instance."""
    return name.partition("/")[0]


def instance(name: str, of: str) -> str:
    """Return the name of one instance, for example of one network card."""
    return f"{name}/{of}"


def kind_of(name: str) -> Kind:
    """Return how a value of that name travels; a name of another version is a gauge."""
    base = base_of(name)
    known = CATALOGUE.get(base)
    if known is not None:
        return known.kind
    return Kind.COUNTER if base.endswith("_total") else Kind.GAUGE


def clean(values: Mapping[str, object]) -> Values:
    """Return what of ``values`` may travel: known types, finite, of bounded length."""
    kept: Values = {}
    for name, value in values.items():
        if not name or len(name) > MAX_NAME_CHARS:
            continue
        if type(value) is int:
            if -(1 << 63) <= value < 1 << 64:
                kept[name] = value
        elif type(value) is float:
            if math.isfinite(value):
                kept[name] = value
        elif isinstance(value, str):
            kept[name] = value[:MAX_TEXT_CHARS]
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            kept[name] = [one[:MAX_TEXT_CHARS] for one in value[:MAX_NAME_CHARS]]
    return kept
