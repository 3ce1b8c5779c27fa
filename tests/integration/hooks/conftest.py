"""Runs the tests that ask for ``hooks`` twice: over the Python hooks, and over the native ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

CACHE = Path(tempfile.gettempdir()) / f"paceline-tests-{os.getuid()}"
"""Shared by all sessions and their processes: a library is built once a torch and a source."""


@pytest.fixture(scope="session")
def native() -> dict[str, str]:
    """The environment of a job on the native hook, which is built here first."""
    import torch

    from paceline.hooks.native.build import build, compiler

    env = {"XDG_CACHE_HOME": str(CACHE), "PACELINE_NATIVE": "auto"}
    if compiler(os.environ) is None:
        pytest.skip("no C++ compiler for the native hook: apt-get install g++")
    build(torch, env)
    return env


@pytest.fixture(scope="module", params=["python", "native"])
def hooks(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment that chooses the hooks."""
    if request.param == "native":
        chosen: Mapping[str, str] = request.getfixturevalue("native")
        return chosen
    return {"PACELINE_NATIVE": "off"}
