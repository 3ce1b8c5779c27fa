"""What the sidecar can sample on this node (docs/telemetry.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.doctor.check import OK, WARN, Check
from paceline.sidecar.telemetry.check import TelemetryFacts, telemetry_facts
from paceline.sidecar.telemetry.host_source import Roots


def telemetry(env: Mapping[str, str]) -> Check:
    """Say what can be read of GPUs, kernel log, host and network."""
    normal = Roots()
    roots = Roots(
        sysfs=Path(env.get("PACELINE_SYSFS_ROOT") or normal.sysfs),
        procfs=Path(env.get("PACELINE_PROCFS_ROOT") or normal.procfs),
        kmsg=Path(env.get("PACELINE_KMSG") or normal.kmsg),
    )
    return judge(telemetry_facts(roots))


def judge(facts: TelemetryFacts) -> Check:
    """Return the check that the facts amount to; a node without GPUs lacks nothing."""
    parts = [f"{facts.gpus} GPU(s)" if not facts.nvml else f"no GPU ({facts.nvml})"]
    remedies = []
    if facts.lost_gpus:
        parts.append(f"{facts.lost_gpus} lost")
        remedies.append("a GPU does not answer: reset it, or drain the node")
    if facts.nvml and facts.has_driver:
        remedies.append(
            "pip install nvidia-ml-py"
            if "not installed" in facts.nvml
            else "the driver is loaded, NVML does not answer: see that nvidia-smi works here"
        )
    if facts.kmsg:
        parts.append("no kernel log")
        if facts.gpus:
            remedies.append(f"XIDs are not seen ({facts.kmsg}): give the sidecar CAP_SYSLOG")
    parts.append("pressure" if facts.pressure else "no pressure")
    parts.append(f"{facts.network_cards} network card(s)")
    parts.append(f"{facts.infiniband_ports} InfiniBand port(s)")
    return Check(
        name="telemetry",
        status=WARN if remedies else OK,
        found=", ".join(parts),
        remedy="; ".join(remedies),
    )
