from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.plugin import kit

pytestmark = pytest.mark.integration

PLAYED: dict[str, tuple[str, dict[str, object]]] = {
    "threads, groups, sends": (
        "play",
        {"threads": 3, "comms": 2, "collectives": 200, "group": 2, "p2p": 5, "reorder": 1},
    ),
    "missing channels": ("play", {"collectives": 400, "lose_every": 10, "channels": 4, "lie": 1}),
    "the order of NCCL 2.27": ("play", {"abi": 4, "collectives": 150, "p2p": 2, "threads": 2}),
    "faults": ("faults", {"collectives": 20, "events": 3000}),
    "faults of v4": ("faults", {"collectives": 20, "events": 3000, "abi": 4}),
    "fuzz": ("fuzz", {"threads": 4, "events": 8000, "seed": 7}),
    "fuzz of v4": ("fuzz", {"threads": 4, "events": 8000, "seed": 8, "abi": 4}),
    "communicators": ("churn", {"comms": 400, "collectives": 2, "channels": 1, "kernel_us": 0}),
    "hang": ("hang", {"collectives": 5}),
}


@cache
def why_not(variant: str) -> str:
    """Return what is missing for ``variant``, empty when it can be run."""
    if variant == "valgrind" and shutil.which("valgrind") is None:
        return "valgrind is missing: apt-get install valgrind libc6-dbg"
    try:
        program = kit.built(variant)
    except subprocess.CalledProcessError:
        return f"the compiler has no {variant}: install gcc's sanitizer libraries"
    done = subprocess.run(
        program.command("play", {"collectives": 0}) if variant != "valgrind" else ["true"],
        env=kit.environment(program.host.parent),
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{variant} does not run here: {done.stderr[-300:]}" if done.returncode else ""


@pytest.mark.parametrize("variant", ["asan", "tsan", "valgrind"])
@pytest.mark.parametrize("what", PLAYED)
def test_no_sanitizer_complains(tmp_path: Path, variant: str, what: str) -> None:
    kit.needs_compiler()
    if why := why_not(variant):
        pytest.skip(why)
    mode, options = PLAYED[what]
    if variant == "valgrind":
        small = {"collectives": 30, "events": 800, "comms": 60}
        options = {
            name: min(int(str(value)), small.get(name, 10**9)) for name, value in options.items()
        }
    kit.play(tmp_path, mode, variant=variant, env={"PACELINE_NCCL_KERNELS": "on"}, **options)
    assert not any(ring.torn for ring in map(kit.read_ring, kit.ring_paths(tmp_path)))


def test_a_fork_is_clean_under_the_address_sanitizer(tmp_path: Path) -> None:
    kit.needs_compiler()
    if why := why_not("asan"):
        pytest.skip(why)
    kit.play(tmp_path, "fork", variant="asan", collectives=20)
