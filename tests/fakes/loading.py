"""A fresh module of the fake NVML."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

FAKE_NVML = Path(__file__).parent / "nvml"


def fake_nvml(*gpus: dict[str, Any], **state: Any) -> ModuleType:
    """Return an NVML with these GPUs that no other test knows."""
    spec = importlib.util.spec_from_file_location("fake_pynvml", FAKE_NVML / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.state = {"gpus": list(gpus), **state}
    return module


def a_gpu(number: int = 0, **changed: Any) -> dict[str, Any]:
    """Return a GPU of a healthy H100 with something to say on everything."""
    return {
        "uuid": f"GPU-{number:08x}-0000-0000-0000-000000000000",
        "name": "a GPU",
        "pci": f"00000000:{number + 16:02X}:00.0",
        "sm_mhz": 1980,
        "mem_mhz": 2619,
        "max_sm_mhz": 1980,
        "max_mem_mhz": 2619,
        "reasons": 0,
        "fields": {"82": 60, "74": 1000, "270": 2000},
        "temperature_c": 55,
        "power_mw": 650_500,
        "power_limit_mw": 700_000,
        "busy_percent": [97, 35],
        "memory_bytes": [40 << 30, 80 << 30],
        "ecc": [3, 0],
        "remapped_rows": [1, 0, 0, 0],
        "pcie": [5, 16],
        "max_pcie": [5, 16],
        "pcie_replays": 2,
        "nvlinks": [1] * 18,
        "nvlink_errors": [1, 2, 3, 0, 0],
        "mig": 0,
        **changed,
    }
