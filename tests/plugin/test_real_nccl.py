"""The plugin inside the real libnccl, which needs no GPU to load it (make test-real-nccl)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin import kit, nccl_probe
from tests.plugin.wheels import VERSIONS, library

pytestmark = [pytest.mark.realnccl, pytest.mark.timeout(1200)]
MASKS = {4: 0x06, 5: 0x46, 6: 0x1046, 7: 0x1046}


def probe(version: str, runtime: Path, **env: str) -> tuple[dict[str, Any], str]:
    """Let NCCL ``version`` load the plugin in a process of its own; what happened, and its log."""
    done = subprocess.run(
        [sys.executable, nccl_probe.__file__, str(library(version))],
        env={
            **kit.environment(runtime),
            "NCCL_PROFILER_PLUGIN": str(kit.built().plugin),
            "NCCL_DEBUG": "INFO",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    answer = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(answer), done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_nccl_takes_the_newest_interface_that_both_know(tmp_path: Path, version: str) -> None:
    result, log = probe(version, tmp_path)
    abi = VERSIONS[version]
    major, minor, _patch = (int(part) for part in version.split("."))
    assert result["version"] // 10000 == major
    assert result["version"] // 100 % 100 == minor
    if abi == 0:
        assert not result["loaded"]
        assert "failed to find ncclProfiler_v3" in log
        return
    assert result["loaded"], log
    assert result["mask"] == MASKS[abi]
    assert result["contexts"] == [True, True]
    if abi > 4:  # 2.27 does not log the version
        assert re.search(rf"Loaded Paceline \(v{abi}\)", log)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_fails_from_the_first_communicator_to_unloading_and_after(
    tmp_path: Path, version: str
) -> None:
    result, log = probe(version, tmp_path)
    assert result["init"] == [0, 0], log
    assert result["finalize"] == [0, 0]
    assert result["unloaded"]
    assert result["again"] == 0
    if VERSIONS[version]:
        assert result["still_mapped"], "late calls of NCCL up to 2.30 would hit nothing"


@pytest.mark.parametrize("version", [one for one, abi in VERSIONS.items() if abi > 4])
def test_events_that_nobody_asked_for_are_taken_from_nccl_itself(
    tmp_path: Path, version: str
) -> None:
    result, _ = probe(version, tmp_path)
    assert result["api_events"] == [0, 0, 0, 0]
    assert kit.ring_paths(tmp_path) == []  # nothing was enqueued, so no ring was made


@pytest.mark.parametrize("version", [one for one, abi in VERSIONS.items() if abi])
def test_times_on_the_gpu_are_asked_for_where_nccl_is_known_to_give_them_safely(
    tmp_path: Path, version: str
) -> None:
    default, _ = probe(version, tmp_path)
    on, _ = probe(version, tmp_path, PACELINE_NCCL_KERNELS="on")
    off, _ = probe(version, tmp_path, PACELINE_NCCL_KERNELS="off")
    assert bool(default["mask"] & 0x40) is (VERSIONS[version] > 4)
    assert on["mask"] & 0x40
    assert not off["mask"] & 0x40


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plugin_turned_off_is_loaded_and_asks_for_nothing(tmp_path: Path, version: str) -> None:
    result, _ = probe(version, tmp_path, PACELINE_DISABLE="1")
    assert (result["mask"], result["init"], result["finalize"]) == (0, [0, 0], [0, 0])
