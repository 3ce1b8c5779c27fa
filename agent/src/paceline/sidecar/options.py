"""The settings of a sidecar, read once: argument, then environment, then default."""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.sidecar.telemetry.options import (
    TelemetryOptions,
    add_arguments,
    read_telemetry_options,
)

DEFAULT_SPOOL_BYTES = 256 << 20
MIN_SPOOL_BYTES = 2 << 20
"""A frame takes up to 1 MiB."""
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one sidecar runs. The token is not among them: it is read when it is used."""

    runtime_dir: Path
    spool_dir: Path
    url: str
    """Where the collector is; empty in event-log mode."""
    events_dir: Path | None
    """Where event logs go; None where frames are sent to a collector."""
    node: str
    """Name of this node; empty: what the rings say."""
    exit_when_idle: bool
    """Exit when the last rank of a job has ended; wait for a first one before."""
    job_holds_stdin: bool
    """The job goes on, whatever its ranks do, until standard input ends."""
    drain: bool
    """Exit when nothing is left to read or send; wait for nothing else."""
    interval_s: float
    spool_bytes: int
    drain_s: float
    """How long to wait, after SIGTERM, for the collector to acknowledge the spool."""
    telemetry: TelemetryOptions


def read_options(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Return the options of one run.

    Raises:
        ConfigError: there is neither a collector nor a directory for event logs, or a value is
            out of range.
    """
    given = build_parser().parse_args(argv)
    runtime_dir = given.runtime_dir or default_runtime_dir(environ)
    if given.url and given.events_dir:
        raise ConfigError("--url and --events-dir exclude each other: give one of them")
    url = "" if given.events_dir else given.url or environ.get("PACELINE_URL", "")
    if not url and given.events_dir is None:
        raise ConfigError(
            "the sidecar knows no collector: give --url or set PACELINE_URL, or give --events-dir "
            "to keep event logs"
        )
    if not 0.01 <= given.interval_s <= 5:
        raise ConfigError(f"--interval-s {given.interval_s} is not within 0.01 to 5 s")
    if given.spool_bytes < MIN_SPOOL_BYTES:
        raise ConfigError(f"--spool-bytes {given.spool_bytes} is under {MIN_SPOOL_BYTES}")
    spool_dir = given.spool_dir or environ.get("PACELINE_SPOOL_DIR")
    return Options(
        runtime_dir=runtime_dir,
        spool_dir=Path(spool_dir) if spool_dir else default_spool_dir(runtime_dir),
        url=url,
        events_dir=given.events_dir,
        node=given.node,
        exit_when_idle=given.exit_when_idle,
        job_holds_stdin=given.job_holds_stdin,
        drain=given.drain,
        interval_s=given.interval_s,
        spool_bytes=given.spool_bytes,
        drain_s=given.drain_s,
        telemetry=read_telemetry_options(given, environ),
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``paceline sidecar``."""
    parser = argparse.ArgumentParser(
        prog="paceline sidecar",
        allow_abbrev=False,
        description="Reads the rings of this node and sends them to the collector.",
        epilog="The token is read from PACELINE_TOKEN; there is no argument for it.",
    )
    add = parser.add_argument
    add("--runtime-dir", type=Path, help="where the rings are (PACELINE_RUNTIME_DIR)")
    add("--url", default="", help="the collector, e.g. http://127.0.0.1:8750 (PACELINE_URL)")
    add("--events-dir", type=Path, help="write event logs there instead of sending")
    add("--spool-dir", type=Path, help="where frames wait for the collector (PACELINE_SPOOL_DIR)")
    add("--spool-bytes", type=int, default=DEFAULT_SPOOL_BYTES, help="most the spool may take")
    add("--node", default="", help="name of this node (default: the writer's host name)")
    add("--interval-s", type=float, default=0.25, help="how often rings are read")
    add("--drain-s", type=float, default=5.0, help="how long SIGTERM waits for the collector")
    add("--exit-when-idle", action="store_true", help="exit when the last rank has ended")
    add(
        "--job-holds-stdin",
        action="store_true",
        help="with --exit-when-idle: not before standard input ends, for jobs that restart ranks",
    )
    add("--drain", action="store_true", help="send what earlier runs left, then exit")
    add_arguments(parser)
    return parser


def default_runtime_dir(environ: Mapping[str, str]) -> Path:
    """Return where rings are: ``PACELINE_RUNTIME_DIR``, else this user's own directory."""
    if directory := environ.get("PACELINE_RUNTIME_DIR"):
        return Path(directory)
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"paceline-{os.getuid()}"


def default_spool_dir(runtime_dir: Path) -> Path:
    """Return ``spool`` within ``runtime_dir``, or a directory on disk where that is memory.

    A container's /dev/shm is often 64 MB, NCCL needs it, and it does not survive a reboot.
    """
    resolved = runtime_dir.resolve()
    if _SHARED_MEMORY not in resolved.parents:
        return runtime_dir / "spool"
    tag = hashlib.blake2b(str(resolved).encode(), digest_size=4).hexdigest()
    return Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}" / f"spool-{tag}"
