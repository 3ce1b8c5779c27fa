"""What a job needs of the machine: settings, the injection file, room for rings, a sidecar."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from paceline.doctor.check import FAIL, OK, WARN, Check
from paceline.run.plan import sidecar_runs
from paceline.settings import AgentSettings, is_disabled

RING_BYTES = 4 << 20
"""The most that the ring of one rank takes."""
MIN_FREE_BYTES = 16 * RING_BYTES
PTH = "paceline_inject.pth"


def settings_check(settings: AgentSettings, env: Mapping[str, str]) -> Check:
    """Say which settings hold, and which could not be used."""
    if is_disabled(env):
        return Check(
            name="settings",
            status=WARN,
            found="PACELINE_DISABLE is set: nothing is recorded",
            remedy="unset PACELINE_DISABLE",
        )
    if settings.problems:
        return Check(name="settings", status=WARN, found="; ".join(settings.problems))
    return Check(name="settings", status=OK, found=f"level {settings.level}, node {settings.node}")


def injection() -> Check:
    """Look for the file that lets ``paceline run`` instrument a job."""
    places = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    for place in places:
        if (place / PTH).is_file():
            return Check(name="injection", status=OK, found=str(place / PTH))
    return Check(
        name="injection",
        status=FAIL,
        found=f"{PTH} is not in {places[0]}: `paceline run` cannot instrument a job",
        remedy="reinstall paceline with pip in this environment, or call paceline.init()",
    )


def rings(directory: Path) -> Check:
    """See that the rings have a place to lie in."""
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return Check(
            name="rings",
            status=FAIL,
            found=f"{directory} cannot be written",
            remedy="set PACELINE_RUNTIME_DIR to a directory that this user can write",
        )
    free_bytes = shutil.disk_usage(place).free
    found = f"{directory}, {free_bytes >> 20} MiB free"
    if free_bytes < RING_BYTES:
        remedy = "free space there, or set PACELINE_RUNTIME_DIR"
        return Check(name="rings", status=FAIL, found=found, remedy=remedy)
    if free_bytes < MIN_FREE_BYTES:
        remedy = "a ring takes up to 4 MiB a rank; enlarge it, or set PACELINE_RUNTIME_DIR"
        return Check(name="rings", status=WARN, found=found, remedy=remedy)
    return Check(name="rings", status=OK, found=found)


def sidecar(settings: AgentSettings) -> Check:
    """See whether a sidecar can run here, and whether one does."""
    if importlib.util.find_spec("msgspec") is None:
        return Check(
            name="sidecar",
            status=FAIL,
            found="msgspec is missing: no sidecar can run in this environment",
            remedy="pip install 'paceline[sidecar]'",
        )
    running = sidecar_runs(settings.runtime_dir)
    found = "runs on this node" if running else "none runs; `paceline run` starts one for a job"
    return Check(name="sidecar", status=OK, found=found)
