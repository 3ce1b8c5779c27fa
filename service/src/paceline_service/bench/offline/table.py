"""The result of ``paceline bench offline`` as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("what", "median", "times as long as Paceline", "memory", "says", "limit")
LIMITS = {"HTA": ">= 10x, 2x memory", "TraceLens": ">= 3x, 2x memory",
          "StragglerAnalysis": ">= 3x"}  # fmt: skip


def rows_of_offline(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """Return a row for each tool and set of traces, and one for each that was skipped."""
    rows: list[Sequence[str]] = []
    for workload, tools in result["workloads"].items():
        rows.append((workload, "", "", "", "", ""))
        for name, one in tools.items():
            rows.append((f"  {name} {one['version']}".rstrip(), *_figures(name, one)))
    for what, reason in result["skipped"].items():
        rows.append((f"skipped: {what}", "", "", "", reason, ""))
    return rows


def _figures(name: str, one: Mapping[str, Any]) -> Sequence[str]:
    if "failed" in one:
        return ("", "", "", f"failed: {one['failed']}", "")
    seconds = sorted(one["seconds"])
    longer = ""
    if "times_as_long" in one:
        interval = one["times_as_long"]
        longer = f"{interval['mean']:.1f} ({interval['low']:.1f} to {interval['high']:.1f})"
    memory = f"{one['pss_mib']:.0f} MiB"
    if "times_as_large" in one:
        memory += f" ({one['times_as_large']:.1f}x)"
    says = ", ".join(f"{key} {_shown(value)}" for key, value in one["says"].items())
    return f"{seconds[len(seconds) // 2]:.2f} s", longer, memory, says, LIMITS.get(name, "")


def _shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
