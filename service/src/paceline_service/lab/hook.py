"""Whether the native hook is there, which sees the end of transfers that nobody waits for.

DDP's reducer waits in C++. The Python hooks see the end of its transfers only when the backward
pass is over; the native one sees it when it happens (docs/native-hook.md).
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from paceline.hooks.native.build import compiler
from paceline.hooks.native.cache import library_file

BUILD_TIMEOUT_S = 180.0


def wants_build(environment: Mapping[str, str]) -> bool:
    """Return whether the hook is missing and can be compiled here, without importing torch."""
    if environment.get("PACELINE_NATIVE") == "off" or compiler(environment) is None:
        return False
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    told = Path(spec.origin).with_name("version.py")
    if not told.is_file():
        return False
    version = runpy.run_path(str(told))
    torch = SimpleNamespace(
        __version__=version.get("__version__", ""),
        version=SimpleNamespace(git_version=version.get("git_version", "")),
    )
    return not library_file(torch, environment).is_file()


def build() -> bool:
    """Compile the hook, which takes some ten seconds; return whether that went well."""
    command = [sys.executable, "-m", "paceline", "doctor", "--build"]
    try:
        subprocess.run(
            command, env=dict(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not wants_build(os.environ)
