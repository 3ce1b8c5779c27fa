"""Real libnccl of several versions: from NVIDIA's wheels, kept outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

VERSIONS = {
    "2.26.2": 0,
    "2.27.5": 4,
    "2.28.9": 5,
    "2.29.7": 6,
    "2.30.7": 6,
    "2.31.2": 7,
    "2.32.3": 7,
}
"""NCCL, and the newest of our interfaces that it knows; 0: none."""
_INSIDE = "nvidia/nccl/lib/libnccl.so.2"
_DISTRIBUTIONS = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
_TIMEOUT_S = 600


def cache_directory() -> Path:
    """Return where the libraries stay between runs: some 400 MB each."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "paceline" / "nccl"


def library(version: str) -> Path:
    """Return libnccl.so.2 of ``version``; downloads its wheel at the first call, or skips."""
    directory = cache_directory() / version
    found = directory / "libnccl.so.2"
    if found.exists():
        return found
    directory.mkdir(parents=True, exist_ok=True)
    problems = ""
    for distribution in _DISTRIBUTIONS:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
             "--only-binary=:all:", "--dest", str(directory), f"{distribution}=={version}"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode == 0:
            break
        problems += done.stderr[-300:]
    else:
        pytest.skip(f"the wheel of NCCL {version} cannot be downloaded with pip: {problems}")
    (wheel,) = directory.glob("*.whl")
    partial = directory / "partial"
    with zipfile.ZipFile(wheel) as archive:
        partial.write_bytes(archive.read(_INSIDE))
    partial.rename(found)
    wheel.unlink()
    return found
