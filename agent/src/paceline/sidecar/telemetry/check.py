"""What telemetry can be read on this node, as plain facts for ``paceline doctor``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.clock import mono_ns
from paceline.sidecar.telemetry.files import names_in, read_text
from paceline.sidecar.telemetry.host_source import Roots
from paceline.sidecar.telemetry.nvml import Nvml, load_module
from paceline.telemetry import GPU_LOST

NVML_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryFacts:
    """Each part: whether it can be read, and what is to be said of it."""

    gpus: int
    lost_gpus: int
    nvml: str
    """Why NVML tells nothing; empty: it answers."""
    has_driver: bool
    """Whether the NVIDIA driver is loaded, whatever NVML says."""
    kmsg: str
    """Why the kernel log cannot be read; empty: it can."""
    pressure: bool
    infiniband_ports: int
    network_cards: int


def telemetry_facts(
    roots: Roots, load_nvml: Callable[[], Any] = load_module, timeout_s: float = NVML_TIMEOUT_S
) -> TelemetryFacts:
    """Look at each source once. A call to NVML that blocks is given up after ``timeout_s``."""
    found: list[tuple[int, int, str]] = []
    asking = threading.Thread(
        target=lambda: found.append(_ask_nvml(load_nvml)), name="paceline-doctor-nvml", daemon=True
    )
    asking.start()
    asking.join(timeout_s)
    gpus, lost, problem = found[0] if found else (0, 0, f"no answer within {timeout_s:g} s")
    infiniband = roots.sysfs / "class/infiniband"
    cards = roots.sysfs / "class/net"
    return TelemetryFacts(
        gpus=gpus,
        lost_gpus=lost,
        nvml=problem,
        has_driver=(roots.procfs / "driver/nvidia/version").exists(),
        kmsg=_kernel_log(roots),
        pressure=bool(read_text(roots.procfs / "pressure/cpu", 512)),
        infiniband_ports=sum(
            len(names_in(infiniband / device / "ports")) for device in names_in(infiniband)
        ),
        network_cards=sum((cards / card / "device").exists() for card in names_in(cards)),
    )


def _ask_nvml(load_nvml: Callable[[], Any]) -> tuple[int, int, str]:
    nvml = Nvml(load_nvml)
    try:
        readings = nvml.read(mono_ns())
    except Exception as error:
        return 0, 0, repr(error)
    finally:
        nvml.close()
    lost = sum(GPU_LOST in reading.values for reading in readings)
    return len(nvml.gpus), lost, nvml.problem


def _kernel_log(roots: Roots) -> str:
    try:
        os.close(os.open(roots.kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{roots.kmsg}: {error.strerror}"
    return ""
