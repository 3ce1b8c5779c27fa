"""A real DDP job on Gloo in which one replica goes wrong, from the bit to the report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_service.client import ProblemError
from paceline_service.importers.sources import analyze_paths
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until

JOB = Path(__file__).parent / "jobs" / "replicas.py"
RANKS = 4
EVERY = 2
FLIPPED_AT, FLIPPED_ON = 9, 2

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(tmp_path / "state").start()
    yield collector
    collector.stop()


def test_a_rank_whose_parameter_has_a_flipped_bit_is_named_with_the_step(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
    subprocess.run(
        [sys.executable, "-m", "paceline", "run", "--job", "replicas", "--", sys.executable,
         *launcher, str(JOB)],
        env={
            **os.environ, "PACELINE_URL": collector.url, "PACELINE_TOKEN": TOKEN,
            "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"), "OMP_NUM_THREADS": "1",
            "PACELINE_REPLICA_CHECK_STEPS": str(EVERY),
            "FLIPPED_AT": str(FLIPPED_AT), "FLIPPED_ON": str(FLIPPED_ON),
        },
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    client = collector.client()

    def ended() -> object:
        try:
            report = client.report("replicas")
        except ProblemError:
            return None
        return report if report["job"]["state"] == "ended" else None

    report = wait_until(ended)
    (finding,) = report["findings"]
    assert (report["verdict"], finding["ranks"]) == ("desync", [FLIPPED_ON])
    # Within step 9 it flipped, so the check before the update of step 10 is the first to differ.
    assert finding["first_step"] == FLIPPED_AT + 1
    assert f"all agreed at step {FLIPPED_AT - 1}" in finding["evidence"][0]

    def opened() -> list[tuple[object, object]]:
        return [(one["kind"], one["ranks"]) for one in client.iter_incidents(job="replicas")]

    wait_until(opened)  # incidents are stored about a second after the report
    assert opened() == [("desync", [FLIPPED_ON])]
    log = tmp_path / "replicas.ndjson"
    log.write_bytes(b"".join(client.event_log("replicas")))
    (again,) = analyze_paths([log]).report["findings"]
    assert again == finding
