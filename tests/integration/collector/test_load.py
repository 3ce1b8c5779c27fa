"""``paceline bench ingest --ranks``: a load on a real collector, whose fault must be named."""

from __future__ import annotations

import json
import subprocess
import sys


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "bench", "ingest", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_load_with_duplicates_disorder_and_a_storm_is_taken_and_its_straggler_named() -> None:
    done = bench(
        "--ranks", "32", "--collectives", "10", "--rate", "0", "--steps", "60",
        "--fault", "9:straggler:40", "--duplicates", "10", "--out-of-order", "10",
        "--storm", "100", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["accepted"] == 4 * 60  # bundles, of four nodes
    assert found["duplicate"] >= 100  # of the storm alone
    assert found["storm"]["answered"] == 100
    assert found["fault"]["named"]
    assert found["complete"]
    assert found["stored_bytes"] > 0
    assert found["collector_cpu_s"] > 0


def test_a_straggler_that_is_too_small_to_be_named_fails_the_load_with_a_line() -> None:
    done = bench(
        "--ranks", "8", "--collectives", "10", "--rate", "0", "--steps", "20",
        "--fault", "3:straggler:0.001",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "rank 3 was not named" in done.stderr


def test_a_load_without_a_collector_says_so() -> None:
    done = bench("--ranks", "8", "--steps", "2", "--url", "http://127.0.0.1:9", "--token", "x")
    assert done.returncode == 2
    assert "paceline bench ingest:" in done.stderr
