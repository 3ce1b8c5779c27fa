"""What goes wrong in production, done to real processes; rows are counted from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until

JOB = Path(__file__).parent / "jobs" / "steady.py"
RANKS = 2
TORCHRUN = (
    sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
)  # fmt: skip
RESTARTING = (sys.executable, str(JOB.parent / "launcher.py"))
TIMEOUT_S = 110

pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(tmp_path / "state").start()
    yield collector
    collector.stop()


def environment(tmp_path: Path, url: str, **extra: str) -> dict[str, str]:
    return {
        **os.environ,
        "PACELINE_URL": url,
        "PACELINE_TOKEN": TOKEN,
        "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"),
        "OMP_NUM_THREADS": "1",
        "OUT": str(tmp_path / "weights.json"),
        **extra,
    }


def run_job(
    tmp_path: Path, url: str, launcher: Sequence[str] = TORCHRUN, **extra: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "run", "--job", "steady", "--", *launcher, str(JOB)],
        env=environment(tmp_path, url, **extra),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def event_log(collector: CollectorProcess, attempt: int = 1) -> list[dict[str, Any]]:
    path = f"/v1/jobs/steady/event-log?attempt={attempt}"
    text = b"".join(collector.client().stream(path)).decode()
    return [json.loads(line) for line in text.splitlines()]


def assert_everything_is_there_once(collector: CollectorProcess, steps: int) -> None:
    """Every step, and every all-reduce of it, of every rank: once, in the log and in the rows."""
    lines = event_log(collector)
    reduced = [line for line in lines if line.get("op") == "all_reduce"]
    seen = Counter((line["rank"], line["group"], line["seq"]) for line in reduced)
    assert max(seen.values()) == 1
    assert Counter(line["rank"] for line in reduced) == dict.fromkeys(range(RANKS), steps)
    bundles = collector.rows(  # by stream
        "select incarnation_id, count(*), count(distinct frame_seq), max(frame_seq) "
        "from frames group by 1"
    )
    assert bundles
    for _, rows, distinct, last in bundles:
        assert rows == distinct == last + 1
    wait_until(lambda: collector.client().get_json("/v1/jobs/steady")["steps"] == steps, 20)
    ranks = collector.client().get_json("/v1/jobs/steady/ranks")["ranks"]
    assert [rank["dropped"] for rank in ranks] == [{}] * RANKS


def test_a_collector_that_is_away_in_the_middle_of_a_job_misses_nothing(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    port = collector.url.rpartition(":")[2]
    done: list[subprocess.CompletedProcess[str]] = []
    job = threading.Thread(
        target=lambda: done.append(run_job(tmp_path, collector.url, STEPS="500"))
    )
    job.start()
    wait_until(lambda: collector.rows("select count(*) from frames")[0][0] > 4, 60)
    collector.kill()
    before = collector.rows("select count(*) from frames")[0][0]
    time.sleep(5)
    collector.start("--port", port)
    job.join()
    assert done[0].returncode == 0, done[0].stderr
    assert collector.rows("select count(*) from frames")[0][0] > before
    assert_everything_is_there_once(collector, 500)


def test_a_job_trains_the_same_with_no_collector_and_what_it_left_is_sent_later(
    tmp_path: Path,
) -> None:
    nowhere = "http://127.0.0.1:9"
    done = run_job(tmp_path, nowhere, STEPS="120")
    assert done.returncode == 0, done.stderr
    trained = json.loads((tmp_path / "weights.json").read_text())
    assert trained == pytest.approx([0.5] * 64, abs=1e-3)
    assert "--drain" in done.stderr
    collector = CollectorProcess(tmp_path / "state").start()
    try:
        drain = [sys.executable, "-m", "paceline", "sidecar", "--drain", "--url", collector.url]
        subprocess.run(
            [*drain, "--runtime-dir", str(tmp_path / "rings")],
            env=environment(tmp_path, collector.url), check=True, timeout=60,
        )  # fmt: skip
        wait_until(lambda: collector.client().get_json("/v1/jobs/steady")["steps"] == 120, 20)
        assert_everything_is_there_once(collector, 120)
    finally:
        collector.stop()


def test_a_rank_killed_in_the_middle_of_a_step_is_told_and_the_rest_is_kept(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    done = run_job(tmp_path, collector.url, STEPS="120", WOUND="kill:1")
    assert done.returncode != 0
    client = collector.client()
    wait_until(lambda: client.get_json("/v1/jobs/steady")["state"] == "ended", 30)
    ranks = {row["rank"]: row for row in client.get_json("/v1/jobs/steady/ranks")["ranks"]}
    assert ranks[1]["ended"] == "killed"
    report = client.get_json("/v1/jobs/steady/report")
    assert any("rank 1" in note and "died" in note for note in report["data"]["notes"])
    # 60 whole steps; of the next one rank 1 never issued its all-reduce.
    assert report["job"]["steps"] >= 60
    reduced = Counter(
        line["rank"] for line in event_log(collector) if line.get("op") == "all_reduce"
    )
    assert reduced[1] == 60
    assert reduced[0] in (60, 61)


def test_a_restarted_job_is_a_new_attempt_and_keeps_the_old_one(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    done = run_job(tmp_path, collector.url, RESTARTING, STEPS="100", WOUND="fail:1")
    assert done.returncode == 0, done.stderr
    client = collector.client()
    wait_until(lambda: client.get_json("/v1/jobs/steady")["steps"] == 100, 30)
    attempts = client.get_json("/v1/jobs/steady")["attempts"]
    assert sorted((a["attempt"], a["launch_attempt"]) for a in attempts) == [(1, 0), (2, 1)]
    assert len({attempt["run_id"] for attempt in attempts}) == 1
    first = client.get_json("/v1/jobs/steady/report?attempt=1")
    assert 40 <= first["job"]["steps"] <= 51
