from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paceline_service.bench.plugin import measure
from tests.plugin import kit

pytestmark = pytest.mark.integration
MAX_INSTRUCTIONS = 900
"""About 600 were counted; more would be noticed before it is measured as time."""


def test_the_bench_gives_times_and_a_count_of_instructions_that_repeats() -> None:
    kit.needs_compiler()
    figures = measure(quick=True)
    assert figures["collective_ns"] > 0
    assert figures["kernel_times"]
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is missing: apt-get install valgrind libc6-dbg")
    assert 0 < figures["instructions_per_collective"] < MAX_INSTRUCTIONS


def test_what_the_bench_measures_is_really_recorded(tmp_path: Path) -> None:
    kit.play(tmp_path, "bench", collectives=640, channels=8)
    ring = kit.only_ring(tmp_path)
    assert len(ring.records) == 640 + 300
    assert all(kit.is_timed(record) for record in ring.records)
