"""Other tools on the same DDP job: each in a launch of its own, against bare steps of it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline_service.bench.launch import RANKS, sidecar, train
from paceline_service.bench.steps import ratios

SCRIPT = Path(__file__).with_name("training_job.py")
PACKAGES = (
    "nvidia-resiliency-ext==0.4.1", "nvidia-cuda-cupti-cu12", "traceml-ai==0.5.0",
    "nvidia-ml-py", "psutil", "pyyaml",
)  # fmt: skip
"""Installed without their dependencies, which would replace torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One tool. ``distribution`` is empty for what torch brings."""

    condition: str
    shown: str
    distribution: str = ""


PEERS = (
    Peer(condition="python", shown="Paceline"),
    Peer(condition="torch_profiler", shown="torch.profiler (CPU)"),
    Peer(condition="flight_recorder", shown="Flight Recorder, dumped every second"),
    Peer(
        condition="nvrx",
        shown="nvidia-resiliency-ext sections",
        distribution="nvidia-resiliency-ext",
    ),
    Peer(condition="traceml", shown="TraceML", distribution="traceml-ai"),
)


def measure(*, quick: bool) -> dict[str, object]:
    """Return for each tool its ratio to bare steps, or why it was not measured."""
    rounds, steps = (4, 6) if quick else (12, 12)
    packages = _install()
    found: dict[str, object] = {}
    for peer in PEERS:
        try:
            found[peer.shown] = _measure(peer, packages, rounds, steps)
        except (InputError, subprocess.TimeoutExpired) as error:
            found[peer.shown] = {"skipped": _reason(str(error))}
    return found


def _measure(peer: Peer, packages: Path | None, rounds: int, steps: int) -> dict[str, Any]:
    if peer.distribution and packages is None:
        raise InputError(f"{peer.distribution} could not be installed from PyPI")
    conditions = ("off", peer.condition, "null")
    with sidecar() as (environment, _, _):
        if packages is not None and peer.distribution:
            _prepend(environment, "PYTHONPATH", packages)
            _prepend(environment, "LD_LIBRARY_PATH", packages / "nvidia" / "cuda_cupti" / "lib")
        launcher: Sequence[str] = ()
        if peer.condition == "traceml":
            launcher = _traceml_launcher(environment)
        measured = train(environment, conditions, rounds, steps, launcher=launcher)
    version = _version(peer.distribution, packages)
    return {"version": version, "to_off": ratios(measured["seconds"], conditions)}


def _prepend(environment: dict[str, str], name: str, place: Path) -> None:
    environment[name] = os.pathsep.join(filter(None, (str(place), environment.get(name, ""))))


def _traceml_launcher(environment: Mapping[str, str]) -> list[str]:
    logs = Path(environment["PACELINE_RUNTIME_DIR"]) / "traceml"
    return [
        sys.executable, "-m", "traceml_ai.launcher.cli", "run", "--mode", "summary",
        "--nproc-per-node", str(RANKS), "--logs-dir", str(logs), str(SCRIPT), "--args",
    ]  # fmt: skip


def _reason(text: str) -> str:
    """Return the line of an error's text that says most: the exception's own."""
    lines = text.strip().splitlines()
    errors = [line for line in lines if re.search(r"\b\w+Error: ", line)]
    return (errors or lines)[0].rpartition("]: ")[2][:200]


def _install() -> Path | None:
    """Return a directory with the tools, outside every environment; None where PyPI is not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "paceline" / "bench-peers"
    if (place / ".complete").exists():
        return place
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade",
         "--target", str(place), *PACKAGES],
        capture_output=True,
    )  # fmt: skip
    if done.returncode != 0:
        return None
    (place / ".complete").touch()
    return place


def _version(distribution: str, packages: Path | None) -> str:
    if not distribution or packages is None:
        return ""
    for found in importlib.metadata.distributions(name=distribution, path=[str(packages)]):
        return found.version
    return ""
