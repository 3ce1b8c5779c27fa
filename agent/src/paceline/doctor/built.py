"""What is compiled on the user's machine: the NCCL plugin and the native hook."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.doctor.check import FAIL, OK, WARN, Check
from paceline.errors import PacelineError
from paceline.hooks.native.build import build as build_hook
from paceline.hooks.native.build import compiler
from paceline.hooks.native.loader import find, mode

BUILD = "`paceline doctor --build`"


def build_all() -> list[Check]:
    """Compile what can be compiled; says how each went."""
    checks = []
    plugin = _plugin_module()
    if plugin is not None and hasattr(plugin, "build"):
        checks.append(_built("build plugin", plugin.build))
    if importlib.util.find_spec("torch") is not None:
        checks.append(_built("build hook", _build_hook))
    return checks


def plugin_check() -> Check:
    """Look for the NCCL profiler plugin."""
    plugin = _plugin_module()
    library = plugin.library_path() if plugin is not None else None
    if library:
        try:
            ctypes.CDLL(str(library))  # NCCL is silent where it cannot
        except OSError as error:
            return Check(
                name="plugin",
                status=WARN,
                found=f"the NCCL profiler plugin cannot be loaded here: {error}",
                remedy="compile it on this machine: pip install --force-reinstall --no-cache-dir",
            )
        return Check(name="plugin", status=OK, found=str(library))
    return Check(
        name="plugin",
        status=OK,
        found="the NCCL profiler plugin is not built; arrivals come from the hooks",
        remedy=f"{BUILD} builds it, for times on the GPU" if plugin is not None else "",
    )


def native_hook() -> Check:
    """Say which hooks on collectives serve here, and why."""
    name = "native hook"
    if importlib.util.find_spec("torch") is None:
        return Check(name=name, status=OK, found="no torch, no hook")
    import torch

    loaded = find(torch, os.environ)
    if loaded.library is not None:
        return Check(name=name, status=OK, found=f"serves: {loaded.reason}")
    found = f"the Python hooks serve: {loaded.reason}"
    if loaded.broken:
        return Check(name=name, status=WARN, found=found, remedy=f"mend it, or {BUILD}")
    if mode(os.environ) == "off":
        return Check(name=name, status=OK, found=found)
    if compiler(os.environ) is None:
        found += ", and no C++ compiler is here"
        return Check(name=name, status=OK, found=found)
    remedy = f"{BUILD} builds it: a collective then costs half a microsecond instead of ten"
    return Check(name=name, status=OK, found=found, remedy=remedy)


def _build_hook() -> Path:
    import torch

    return build_hook(torch, os.environ)


def _built(name: str, build: Callable[[], object]) -> Check:
    try:
        return Check(name=name, status=OK, found=str(build()))
    except (PacelineError, OSError) as error:
        return Check(name=name, status=FAIL, found=str(error))


def _plugin_module() -> Any:
    if importlib.util.find_spec("paceline.plugin") is None:
        return None
    module = importlib.import_module("paceline.plugin")
    return module if hasattr(module, "library_path") else None
