"""A token that does not cover one job of a node, and the node's other jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until
from tests.integration.sidecar_kit import Processes

RECORDS = 400


def records_of(collector: CollectorProcess, job: str) -> int:
    query = (
        "select coalesce(sum(f.records), 0) from frames f join job_attempts a on a.id = "
        "f.attempt_id join jobs j on j.id = a.job_id where j.name = ?"
    )
    return int(collector.rows(query, job)[0][0])


def test_a_job_that_the_token_does_not_cover_is_set_aside_and_the_others_go_on(
    collector: CollectorProcess, processes: Processes, tmp_path: Path
) -> None:
    narrow = subprocess.run(
        collector.command("--new-token", "ingest", "--job-prefix", "job-a"),
        env=collector.environ(), capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    state = tmp_path / "of-the-sidecar"
    state.mkdir()
    (state / "token").write_text(narrow)
    sidecar = processes.sidecar(
        "--url", collector.url, PACELINE_TOKEN="", PACELINE_STATE_DIR=str(state)
    )
    processes.writer(job="job-b", total=RECORDS, per_s=300, end="stay")
    log = processes.log
    wait_until(lambda: "forbids frames of job-b" in log.read_text(), 30)
    processes.writer(job="job-a", total=RECORDS, per_s=300, end="close")
    wait_until(lambda: records_of(collector, "job-a") == RECORDS, 30)
    assert records_of(collector, "job-b") == 0
    # Somebody gives the token that covers both; what was set aside was kept.
    (state / "token").write_text(TOKEN)
    sidecar.terminate()
    assert sidecar.wait(60) == 0
    assert records_of(collector, "job-b") == RECORDS
    assert records_of(collector, "job-a") == RECORDS
    assert collector.rows("select count(*), count(distinct body) from frames") == [
        (count := collector.rows("select count(*) from frames")[0][0], count)
    ]
    assert narrow not in log.read_text()
