"""A report as a plan reads it."""

from __future__ import annotations

import json
from pathlib import Path


def calibrated(path: Path, **transfer: object) -> Path:
    """Write a report of which only what a plan reads is there."""
    row = {
        "op": "all_reduce", "links": [], "members": 8, "latency_s": 2e-5,
        "bandwidth_bytes_per_s": 10e9, "reason": None, **transfer,
    }  # fmt: skip
    report = {
        "schema": "paceline.report/1",
        "job": {"world_size": 8},
        "calibration": {"compute": [{"compute_s": 0.080}], "transfers": [row]},
        "expected": {"observed_step_s": 0.310, "expected_step_s": 0.221},
    }
    path.write_text(json.dumps(report))
    return path
