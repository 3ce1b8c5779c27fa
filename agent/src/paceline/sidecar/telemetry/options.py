"""The settings of telemetry: argument, then environment, then default."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.sidecar.telemetry.host_source import Roots
from paceline.sidecar.telemetry.sampler import (
    DEFAULT_INTERVAL_S,
    MAX_INTERVAL_S,
    MIN_INTERVAL_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """What is sampled, from where, how often."""

    interval_s: float
    roots: Roots


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of telemetry."""
    add = parser.add_argument
    add(
        "--telemetry-interval-s",
        type=float,
        help="how often GPUs and host are sampled; 0: not (PACELINE_TELEMETRY_INTERVAL_S)",
    )
    add("--sysfs-root", type=Path, help="where the host's /sys is (PACELINE_SYSFS_ROOT)")
    add("--procfs-root", type=Path, help="where the host's /proc is (PACELINE_PROCFS_ROOT)")
    add("--kmsg", type=Path, help="the kernel log, for XIDs (PACELINE_KMSG)")


def read_telemetry_options(
    given: argparse.Namespace, environ: Mapping[str, str]
) -> TelemetryOptions:
    """Return the settings of telemetry.

    Raises:
        ConfigError: the interval is no number or out of range.
    """
    interval_s = given.telemetry_interval_s
    if interval_s is None:
        text = environ.get("PACELINE_TELEMETRY_INTERVAL_S", "").strip()
        try:
            interval_s = float(text) if text else DEFAULT_INTERVAL_S
        except ValueError as error:
            raise ConfigError(
                f"PACELINE_TELEMETRY_INTERVAL_S is {text[:40]!r}, not a number of seconds"
            ) from error
    if interval_s and not MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
        raise ConfigError(
            f"the telemetry interval {interval_s} s is not within {MIN_INTERVAL_S} to "
            f"{MAX_INTERVAL_S:g} s; 0 turns telemetry off"
        )

    def path(argument: Path | None, variable: str, default: Path) -> Path:
        return argument or Path(environ.get(variable) or default)

    normal = Roots()
    return TelemetryOptions(
        interval_s=interval_s,
        roots=Roots(
            sysfs=path(given.sysfs_root, "PACELINE_SYSFS_ROOT", normal.sysfs),
            procfs=path(given.procfs_root, "PACELINE_PROCFS_ROOT", normal.procfs),
            kmsg=path(given.kmsg, "PACELINE_KMSG", normal.kmsg),
        ),
    )
