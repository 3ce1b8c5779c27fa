"""Loads the native hook where ``PACELINE_NATIVE`` and the cache allow it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.hooks.native.cache import MODULE, library_file, why_not_safe

MODES = ("auto", "off", "build")
log = logging.getLogger("paceline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The library, or why it is not in use."""

    library: Any
    reason: str
    broken: bool = False
    """Whether a library is there that should work and does not."""


def mode(env: Mapping[str, str]) -> str:
    """Return what ``PACELINE_NATIVE`` says; anything unknown counts as ``auto``."""
    given = env.get("PACELINE_NATIVE", "").strip().lower()
    return given if given in MODES else "auto"


def find(torch: Any, env: Mapping[str, str]) -> Loaded:
    """Load the library if it may be; never raises and never compiles."""
    if mode(env) == "off":
        return Loaded(library=None, reason="PACELINE_NATIVE is off")
    try:
        path = library_file(torch, env)
        if not path.is_file():
            return Loaded(library=None, reason="not built for this torch")
        problem = why_not_safe(path)
        if problem:
            return Loaded(library=None, reason=f"not loaded: {problem}", broken=True)
        return Loaded(library=_load(str(path)), reason=str(path))
    except Exception as error:
        return Loaded(library=None, reason=f"cannot be loaded: {error}", broken=True)


def load_for_training(torch: Any, env: Mapping[str, str]) -> Any:
    """Return the library or None; what is broken is logged once, what is missing may be ordered."""
    loaded = find(torch, env)
    if loaded.library is None:
        if loaded.broken:
            log.warning("the Python hooks serve; the native hook is %s", loaded.reason)
        elif mode(env) == "build":
            from paceline.hooks.native.build import build_in_background

            try:
                build_in_background(env)
            except OSError as error:
                log.warning("the native hook cannot be built: %s", error)
    return loaded.library


def _load(path: str) -> Any:
    known = sys.modules.get(MODULE)
    if known is not None:
        return known
    loader = importlib.machinery.ExtensionFileLoader(MODULE, path)
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[MODULE] = module
    return module
