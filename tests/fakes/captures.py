"""Real ``nvidia-smi -q`` output as GPUs of the fake NVML."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

_REASONS = (
    ("Idle", 0x1),
    ("SW Power Cap", 0x4),
    ("HW Slowdown", 0x8),
    ("Sync Boost", 0x10),
    ("SW Thermal Slowdown", 0x20),
    ("HW Thermal Slowdown", 0x40),
    ("HW Power Brake Slowdown", 0x80),
)
Tree = dict[str, Any]


def shared_data(name: str) -> Path:
    """Return a file of the shared data, or skip the test."""
    directory = Path(os.environ.get("PACELINE_SHARED_DATA") or ROOT.parent / "shared/data")
    path = directory / name
    if not path.exists():
        pytest.skip(f"no {name}: set PACELINE_SHARED_DATA to the directory of the shared data")
    return path


def query_trees(text: str) -> list[Tree]:
    """Return one tree per GPU of the output of ``nvidia-smi -q``, in its order."""
    gpus: list[Tree] = []
    stack: list[tuple[int, Tree]] = []
    for line in text.splitlines():
        if line.startswith(("#", "=")) or (line and not line.startswith((" ", "GPU 0"))):
            stack = []
        if match := re.match(r"GPU (\w{8}:\w\w:\w\w\.\w)", line):
            gpus.append({"pci": match[1]})
            stack = [(0, gpus[-1])]
            continue
        if not stack or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while stack[-1][0] >= indent:
            stack.pop()
        key, colon, value = (part.strip() for part in line.partition(" : "))
        if colon:
            stack[-1][1].setdefault(key, value)
        else:
            stack.append((indent, stack[-1][1].setdefault(line.strip(), {})))
    return gpus


def fake_gpu(tree: Tree) -> dict[str, Any]:
    """Return what the fake NVML says for a GPU that was captured; ``N/A`` is not supported."""

    def get(*path: str) -> str | None:
        value: Any = tree
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return None if value in (None, "N/A", "[N/A]") else value

    def number(*path: str) -> float | None:
        match = re.match(r"-?[0-9.]+", get(*path) or "")
        return float(match[0]) if match else None

    def whole(*path: str) -> int | None:
        value = number(*path)
        return None if value is None else round(value)

    def both(first: float | None, second: float | None) -> list[int] | None:
        return None if first is None or second is None else [round(first), round(second)]

    power = "GPU Power Readings"
    draw = number(power, "Power Draw") or number(power, "Average Power Draw")
    limit = number(power, "Current Power Limit")
    mib = 1 << 20
    used, total = number("FB Memory Usage", "Used"), number("FB Memory Usage", "Total")
    reasons = tree.get("Clocks Event Reasons") or {}
    hw = reasons.get("HW Slowdown")
    flat = {**reasons, **(hw if isinstance(hw, dict) else {})}
    link = ("PCI", "GPU Link Info")
    generation, width = (*link, "PCIe Generation"), (*link, "Link Width")
    volatile = tree.get("ECC Errors", {}).get("Volatile", {})
    corrected = [number("ECC Errors", "Volatile", key) for key in volatile if " Correct" in key]
    bad = [number("ECC Errors", "Volatile", key) for key in volatile if "Uncorrect" in key]
    rows = [whole("Remapped Rows", f"{kind} Error") for kind in ("Correctable", "Uncorrectable")]
    flags = [get("Remapped Rows", key) for key in ("Pending", "Remapping Failure Occurred")]
    gpu = {
        "uuid": get("GPU UUID"),
        "name": get("Product Name"),
        "pci": tree["pci"],
        "sm_mhz": whole("Clocks", "SM"),
        "mem_mhz": whole("Clocks", "Memory"),
        "max_sm_mhz": whole("Max Clocks", "SM"),
        "max_mem_mhz": whole("Max Clocks", "Memory"),
        "reasons": sum(bit for name, bit in _REASONS if flat.get(name) == "Active"),
        "temperature_c": whole("Temperature", "GPU Current Temp"),
        "power_mw": None if draw is None else round(draw * 1000),
        "power_limit_mw": None if limit is None else round(limit * 1000),
        "busy_percent": both(
            number("Utilization", "GPU" if get("Utilization", "GPU") else "Gpu"),
            number("Utilization", "Memory"),
        ),
        "memory_bytes": None if used is None or total is None else [used * mib, total * mib],
        "pcie": both(number(*generation, "Current"), number(*width, "Current")),
        "max_pcie": both(number(*generation, "Max"), number(*width, "Max")),
        "pcie_replays": whole("PCI", "Replays Since Reset"),
        "mig": {"Enabled": 1, "Disabled": 0}.get(get("MIG Mode", "Current") or ""),
    }  # fmt: skip
    if all(value is not None for value in (*corrected, *bad)) and bad:
        gpu["ecc"] = [int(sum(corrected)), int(sum(bad))]
    if all(value is not None for value in (*rows, *flags)):
        gpu["remapped_rows"] = [*rows, *(int(flag == "Yes") for flag in flags)]
    memory_c = whole("Temperature", "Memory Current Temp")
    gpu["fields"] = {} if memory_c is None else {"82": memory_c}
    return {key: value for key, value in gpu.items() if value is not None}
