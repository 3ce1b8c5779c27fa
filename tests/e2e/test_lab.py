"""The lab trains, and what it says comes from what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 100


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_the_lab_tells_every_synchronization_of_a_sharded_job(tmp_path: Path) -> None:
    steps = 20
    done = subprocess.run(
        [
            sys.executable, "-m", "paceline", "lab", "--size", "tiny", "--steps", str(steps),
            "--strategy", "zero3", "--format", "json", "--html", "lab.html",
        ],
        # Nothing is compiled here: units of FSDP are waited for in Python, whose hooks see it all.
        env={**os.environ, "PACELINE_NATIVE": "off"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "http://127.0.0.1:" in done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "paceline.lab/1"
    (trained,) = answer["stretches"]
    assert trained["learned"], trained["losses"]
    assert trained["accuracy"] > 0.5
    # The embeddings and the head around two blocks, each gathered twice and scattered once.
    kinds = [sync["call"]["op"] for sync in trained["syncs"]]
    assert kinds.count("all_gather") == 6
    assert kinds.count("reduce_scatter") == 3
    assert trained["sent_bytes"] == pytest.approx(trained["modelled_sent_bytes"], rel=0.01)
    assert sum(trained["held_bytes"].values()) == pytest.approx(
        trained["modelled_held_bytes"], rel=0.01
    )
    assert all(sync["transfer_s"] is not None for sync in trained["syncs"])
    header, *lines = [
        json.loads(x) for x in (tmp_path / "paceline-lab.jsonl").read_text().split("\n") if x
    ]
    assert header["schema"] == "paceline.lab-syncs/1"
    planned = [line for line in lines if line["bucket"] is not None]
    assert len(planned) == 9 * steps
    assert {line["step"] for line in planned} == set(range(steps))
    assert all(len(line["arrival_ns"]) == 2 for line in planned)
    assert "<svg" in (tmp_path / "lab.html").read_text()
