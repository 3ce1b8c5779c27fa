"""Telemetry of GPUs, processes and hosts as metrics: the newest values of each rank and node.

Names and values come from agents: only catalogued names are shown, and a node has a bounded
number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline import metrics, telemetry
from paceline.metrics import Metric
from paceline_service.export.rows import Values

MAX_DEVICES = 16
"""Network devices of a node with series, and as many InfiniBand ports."""
MAX_REASONS = 16
"""Reasons of a rank that hold its clocks down; NVML knows nine."""
Told = Mapping[str, object]

_RANK: dict[str, tuple[Metric, float]] = {
    telemetry.SM_CLOCK: (metrics.RANK_SM_CLOCK_HERTZ, 1.0),
    telemetry.SM_CLOCK_MAX: (metrics.RANK_SM_CLOCK_MAX_HERTZ, 1.0),
    telemetry.TEMPERATURE: (metrics.RANK_GPU_TEMPERATURE_CELSIUS, 1.0),
    telemetry.MEM_TEMPERATURE: (metrics.RANK_GPU_MEMORY_TEMPERATURE_CELSIUS, 1.0),
    telemetry.POWER: (metrics.RANK_GPU_POWER_WATTS, 1.0),
    telemetry.POWER_LIMIT: (metrics.RANK_GPU_POWER_LIMIT_WATTS, 1.0),
    telemetry.UTILIZATION: (metrics.RANK_GPU_BUSY_RATIO, 1.0),
    telemetry.MEM_USED: (metrics.RANK_GPU_MEMORY_USED_BYTES, 1.0),
    telemetry.GPU_LOST: (metrics.RANK_GPU_LOST, 1.0),
    telemetry.PCIE_REPLAY: (metrics.RANK_PCIE_REPLAYS, 1.0),
    telemetry.RANK_RUN_QUEUE: (metrics.RANK_RUN_QUEUE_SECONDS, 1e-9),
    telemetry.CGROUP_THROTTLED: (metrics.RANK_CPU_THROTTLED_SECONDS, 1e-9),
}
_NVLINK_ERRORS = (telemetry.NVLINK_CRC, telemetry.NVLINK_REPLAY, telemetry.NVLINK_RECOVERY)
_ECC = {telemetry.ECC_CORRECTED: "corrected", telemetry.ECC_UNCORRECTED: "uncorrected"}
_THROTTLE_TIMES = {
    name: name.removeprefix("throttle_").removesuffix("_ns_total")
    for name in (
        telemetry.THROTTLE_SW_POWER, telemetry.THROTTLE_SYNC_BOOST, telemetry.THROTTLE_SW_THERMAL,
        telemetry.THROTTLE_HW_THERMAL, telemetry.THROTTLE_HW_BRAKE,
    )
}  # fmt: skip
_NODE: dict[str, tuple[Metric, tuple[str, ...], float]] = {
    telemetry.CPU_USER: (metrics.NODE_CPU_RATIO, ("user",), 1.0),
    telemetry.CPU_SYSTEM: (metrics.NODE_CPU_RATIO, ("system",), 1.0),
    telemetry.CPU_IOWAIT: (metrics.NODE_CPU_RATIO, ("iowait",), 1.0),
    telemetry.CPU_STEAL: (metrics.NODE_CPU_RATIO, ("steal",), 1.0),
    telemetry.LOAD: (metrics.NODE_LOAD, (), 1.0),
    telemetry.STALL_CPU: (metrics.NODE_STALL_SECONDS, ("cpu",), 1e-6),
    telemetry.STALL_MEMORY: (metrics.NODE_STALL_SECONDS, ("memory",), 1e-6),
    telemetry.STALL_IO: (metrics.NODE_STALL_SECONDS, ("io",), 1e-6),
    telemetry.MEMORY_AVAILABLE: (metrics.NODE_MEMORY_AVAILABLE_BYTES, (), 1.0),
    telemetry.OOM_KILLS: (metrics.NODE_OOM_KILLS, (), 1.0),
}
_DEVICE: dict[str, tuple[Metric, tuple[str, ...]]] = {
    telemetry.NIC_RX_BYTES: (metrics.NODE_NIC_BYTES, ("rx",)),
    telemetry.NIC_TX_BYTES: (metrics.NODE_NIC_BYTES, ("tx",)),
    telemetry.NIC_RX_ERRORS: (metrics.NODE_NIC_ERRORS, ()),
    telemetry.NIC_TX_ERRORS: (metrics.NODE_NIC_ERRORS, ()),
    telemetry.NIC_RX_DROPPED: (metrics.NODE_NIC_ERRORS, ()),
    telemetry.NIC_TX_DROPPED: (metrics.NODE_NIC_ERRORS, ()),
    telemetry.IB_RX_BYTES: (metrics.NODE_IB_BYTES, ("rx",)),
    telemetry.IB_TX_BYTES: (metrics.NODE_IB_BYTES, ("tx",)),
    telemetry.IB_STATE: (metrics.NODE_IB_UP, ()),
    telemetry.IB_COUNTERS["port_xmit_wait"]: (metrics.NODE_IB_XMIT_WAIT, ()),
}
"""Values of one of several devices; those of the same labels are added up."""
_NO_ERRORS = ("ib_xmit_wait_total", "ib_cnp_sent_total", "ib_cnp_handled_total",
              "ib_ecn_marked_total")  # fmt: skip
"""Congestion is no error of the port."""
for _name in (*telemetry.IB_COUNTERS.values(), *telemetry.IB_HW_COUNTERS.values()):
    if _name not in _NO_ERRORS:
        _kind = _name.removeprefix("ib_").removesuffix("_total")
        _DEVICE[_name] = (metrics.NODE_IB_ERRORS, (_kind,))

OF_HARDWARE = frozenset(
    {
        metrics.RANK_PCIE_REPLAYS, metrics.RANK_NVLINK_ERRORS, metrics.RANK_ECC_ERRORS,
        metrics.RANK_RUN_QUEUE_SECONDS, metrics.RANK_CPU_THROTTLED_SECONDS,
        metrics.RANK_THROTTLE_SECONDS, metrics.NODE_STALL_SECONDS, metrics.NODE_OOM_KILLS,
        metrics.NODE_NIC_BYTES, metrics.NODE_NIC_ERRORS, metrics.NODE_IB_BYTES,
        metrics.NODE_IB_ERRORS, metrics.NODE_IB_XMIT_WAIT,
    }
)  # fmt: skip
"""Counters that begin again with a driver, a process or a host."""


def rank_telemetry(values: Values, job: str, rank: str, told: Told) -> None:
    """Add what is known of the GPU and the process of one rank."""
    for name, (metric, scale) in _RANK.items():
        number = _number(told.get(name))
        if number is not None:
            values[metric][job, rank] = number * scale
    errors = [number for name in _NVLINK_ERRORS if (number := _number(told.get(name))) is not None]
    if errors:
        values[metrics.RANK_NVLINK_ERRORS][job, rank] = sum(errors)
    for name, kind in _ECC.items():
        number = _number(told.get(name))
        if number is not None:
            values[metrics.RANK_ECC_ERRORS][job, rank, kind] = number
    for name, reason in _THROTTLE_TIMES.items():
        number = _number(told.get(name))
        if number is not None:
            values[metrics.RANK_THROTTLE_SECONDS][job, rank, reason] = number * 1e-9
    reasons = told.get(telemetry.THROTTLE)
    if isinstance(reasons, list):
        for reason in reasons[:MAX_REASONS]:
            values[metrics.RANK_THROTTLED][job, rank, str(reason)] = 1.0


def node_telemetry(values: Values, job: str, node: str, told: Told) -> None:
    """Add what is known of a host; only one rank of each node tells it."""
    for name, (metric, labels, scale) in _NODE.items():
        number = _number(told.get(name))
        if number is not None:
            values[metric][(job, node, *labels)] = number * scale
    devices: dict[str, set[str]] = {"ib": set(), "nic": set()}
    for name in sorted(told):
        base, _, device = name.partition("/")
        known = _DEVICE.get(base)
        number = _number(told[name])
        if known is None or number is None or not device:
            continue
        of_kind = devices[base.partition("_")[0]]
        if device not in of_kind and len(of_kind) >= MAX_DEVICES:
            continue
        of_kind.add(device)
        metric, labels = known
        key = (job, node, device, *labels)
        values[metric][key] = values[metric].get(key, 0.0) + number


def tells_of_node(told: Told) -> bool:
    """Whether these values hold those of a host."""
    return any(name in told for name in _NODE)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
