from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from paceline.hooks.native.build import compiler
from paceline.hooks.native.cache import library_file, why_not_safe
from tests.integration.hooks.kit import Finished, run_ranks

pytestmark = pytest.mark.integration


def run_few(directory: Path, env: Mapping[str, str], ranks: int = 1) -> Finished:
    directory.mkdir()
    job = run_ranks("few.py", directory, ranks, env=env)
    assert job.returncodes == [0] * ranks, job.output
    for ring in job.rings.values():
        assert len(ring.collectives()) == 3
    return job


def test_a_library_that_cannot_be_loaded_leaves_the_python_hooks_and_one_line(
    tmp_path: Path,
) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path), "PACELINE_NATIVE": "auto"}
    library = library_file(torch, env)
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    job = run_few(tmp_path / "job", env)
    assert job.rings[0].info["hooks"] == "python"
    assert job.output[0].count("the Python hooks serve; the native hook is") == 1


def test_a_library_that_others_can_write_is_not_loaded(
    tmp_path: Path, native: Mapping[str, str]
) -> None:
    env = {**native, "XDG_CACHE_HOME": str(tmp_path)}
    built, library = library_file(torch, native), library_file(torch, env)
    library.parent.mkdir(parents=True)
    library.write_bytes(built.read_bytes())
    library.chmod(0o722)
    job = run_few(tmp_path / "job", env)
    assert job.rings[0].info["hooks"] == "python"
    assert "can be written by others" in job.output[0]


def test_the_directories_above_count_too_but_for_sticky_ones(tmp_path: Path) -> None:
    place = tmp_path / "shared" / "mine"
    place.mkdir(parents=True)
    library = place / "library.so"
    library.touch(mode=0o700)
    assert why_not_safe(library) == ""
    (tmp_path / "shared").chmod(0o777)
    assert "shared can be written by others" in why_not_safe(library)
    (tmp_path / "shared").chmod(0o1777)
    assert why_not_safe(library) == ""


def test_build_serves_python_now_and_native_the_next_time(tmp_path: Path) -> None:
    if compiler(os.environ) is None:
        pytest.skip("no C++ compiler for the native hook: apt-get install g++")
    env = {"XDG_CACHE_HOME": str(tmp_path), "PACELINE_NATIVE": "build"}
    first = run_few(tmp_path / "first", env, ranks=2)
    assert {ring.info["hooks"] for ring in first.rings.values()} == {"python"}
    library = library_file(torch, env)
    deadline = time.monotonic() + 90
    while not library.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    second = run_few(tmp_path / "second", env, ranks=2)
    assert {ring.info["hooks"] for ring in second.rings.values()} == {"native"}
