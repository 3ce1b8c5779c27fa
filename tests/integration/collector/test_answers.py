from __future__ import annotations

import gzip
import http.client
import json
import math
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paceline_service.client import ProblemError
from paceline_service.importers.events import read_event_log
from paceline_service.importers.offline import analyze_log
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Simulated


@pytest.fixture(scope="module")
def told(shared: CollectorProcess, slow_backward: Simulated) -> CollectorProcess:
    """The collector after a whole job with a slow rank."""
    client = shared.client()
    assert post_all(client, bodies(slow_backward, senders(slow_backward))) == 64
    wait_for_state(client, "train", "ended")
    return shared


def test_slow_rank_is_named_with_its_phase_and_the_job_is_listed(told: CollectorProcess) -> None:
    client = told.client()
    report = client.report("train")
    assert report["schema"] == "paceline.report/1"
    assert report["verdict"] == "straggler"
    assert report["findings"][0]["ranks"] == [2]
    assert report["findings"][0]["phase"] == "backward"
    assert report["job"]["name"] == "train"
    assert report["job"]["steps"] == 160
    assert report["data"]["complete"]
    row = next(row for row in client.jobs() if row["job"] == "train")
    assert (row["state"], row["verdict"], row["ranks_seen"]) == ("ended", "straggler", 4)
    assert "Rank 2" in row["headline"]


def test_detail_lists_attempts_groups_and_nodes(told: CollectorProcess) -> None:
    detail = told.client().get_json("/v1/jobs/train")
    assert [attempt["attempt"] for attempt in detail["attempts"]] == [1]
    assert detail["groups"] == [
        {"name": "dp0", "ranks": "0-3", "epoch": 0, "mesh_dim": "", "backend": "gloo"}
    ]
    assert detail["nodes"] == {str(rank): "node-a" for rank in range(4)}


def test_leaving_out_the_slow_rank_gives_back_what_it_costs(told: CollectorProcess) -> None:
    answer = told.client().get_json("/v1/jobs/train/what-if", without="rank:2")
    assert (answer["ranks"], answer["steps"]) == ("2", 155)
    assert answer["recoverable_ratio"] > 0.05
    assert answer["candidates"][0]["recoverable_ns"] >= answer["recoverable_ns"] > 0
    with pytest.raises(ProblemError, match="ranks 0 to 3"):
        told.client().get_json("/v1/jobs/train/what-if", without="rank:7")


def test_what_healthy_ranks_would_take_is_told_with_the_flops_of_a_rank(
    told: CollectorProcess,
) -> None:
    path = "/v1/jobs/train/expected"
    answer = told.client().get_json(path, parameters=66e6, tokens_per_step=4096)
    block, calibration = answer["expected"], answer["calibration"]
    assert block == told.client().get_json("/v1/jobs/train")["expected"]
    assert block["gap_s"] > 0
    assert sum(block["gap_parts_s"].values()) == pytest.approx(block["gap_s"], abs=1e-8)
    assert calibration["flops_per_s_per_rank"] == pytest.approx(
        6 * 66e6 * 4096 / 4 / calibration["compute"][0]["compute_s"], rel=1e-4
    )
    with pytest.raises(ProblemError, match="together"):
        told.client().get_json(path, parameters=66e6)


def test_ranks_tell_their_totals_and_how_they_ended(told: CollectorProcess) -> None:
    ranks = told.client().get_json("/v1/jobs/train/ranks")["ranks"]
    assert [row["rank"] for row in ranks] == [0, 1, 2, 3]
    assert {row["ended"] for row in ranks} == {"closed"}
    assert {row["step"] for row in ranks} == {159}
    assert max(ranks, key=lambda row: row["caused_wait_ns"])["rank"] == 2


def test_steps_are_columns_that_add_up_to_the_duration(told: CollectorProcess) -> None:
    client = told.client()
    steps = client.get_json("/v1/jobs/train/steps", from_=100, to=109, ranks="1-2", phases=1)
    assert steps["steps"] == list(range(100, 110))
    assert steps["ranks"] == [1, 2]
    assert steps["phases"] == [
        "host", "input", "forward", "backward", "optimizer", "copy", "checkpoint",
    ]  # fmt: skip
    for index, duration_ns in enumerate(steps["duration_ns"]):
        for rank in range(2):
            parts = [steps[name][index][rank] for name in ("self_ns", "wait_ns", "comm_ns")]
            assert math.isclose(sum(parts), duration_ns, rel_tol=0.1)
            assert math.isclose(sum(steps["phase_self_ns"][index][rank]), parts[0], rel_tol=0.01)
    starts = steps["start_wall_ns"]
    assert starts == sorted(starts)


def test_newest_steps_come_without_a_range_and_the_limit_holds(told: CollectorProcess) -> None:
    client = told.client()
    assert client.get_json("/v1/jobs/train/steps")["steps"] == list(range(160))
    assert client.get_json("/v1/jobs/train/steps", limit=3)["steps"] == [157, 158, 159]
    assert client.get_json("/v1/jobs/train/steps", from_=10, limit=2)["steps"] == [10, 11]


def test_an_incident_was_opened_and_closed_with_the_job(told: CollectorProcess) -> None:
    client = told.client()
    incident = wait_until(
        lambda: [
            row
            for row in client.get_json("/v1/jobs/train/incidents")["incidents"]
            if not row["open"]
        ]
    )[0]
    assert (incident["kind"], incident["ranks"], incident["phase"]) == (
        "straggler",
        [2],
        "backward",
    )
    assert incident["closed_reason"] == "ended"


def test_stored_steps_are_one_row_each(told: CollectorProcess) -> None:
    wait_until(lambda: told.rows("SELECT count(*) FROM step_summaries")[0][0] == 160)


def test_event_log_holds_every_record_and_gives_the_same_report(
    told: CollectorProcess, slow_backward: Simulated, tmp_path: Path
) -> None:
    connection = http.client.HTTPConnection(urlsplit(told.url).netloc, timeout=20)
    connection.request("GET", "/v1/jobs/train/event-log", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.headers["Content-Encoding"] == "gzip"
    lines = [json.loads(line) for line in gzip.decompress(answer.read()).splitlines()]
    connection.close()
    assert lines[0]["schema"] == "paceline.events/1"
    assert lines[0]["world_size"] == 4
    written = sum(len(rows) for rows in slow_backward.rows)
    assert sum("start_ns" in line or "step_start_ns" in line for line in lines) == written
    plain = b"".join(told.client().stream("/v1/jobs/train/event-log"))
    assert [json.loads(line) for line in plain.splitlines()] == lines
    exported = tmp_path / "train.ndjson"
    exported.write_bytes(plain)
    with read_event_log([exported]) as log:
        offline = analyze_log(log).to_dict()
    online = told.client().report("train")
    assert offline == {**online, "job": offline["job"]}
    assert offline["job"].items() <= online["job"].items()


def test_unknown_jobs_attempts_and_parameters_are_problems(told: CollectorProcess) -> None:
    client = told.client()
    for path, status, problem in (
        ("/v1/jobs/nobody", 404, "unknown-job"),
        ("/v1/jobs/nobody/report", 404, "unknown-job"),
        ("/v1/jobs/nobody/events", 404, "unknown-job"),
        ("/v1/jobs/train/report?attempt=9", 404, "unknown-job"),
        ("/v1/jobs/train/steps?ranks=4", 400, "bad-request"),
        ("/v1/jobs/train/steps?limit=0", 422, "invalid-parameter"),
        ("/v1/nothing", 404, "not-found"),
    ):
        with pytest.raises(ProblemError) as caught:
            client.get_json(path)
        assert caught.value.status == status, path
        assert caught.value.problem["type"] == f"urn:paceline:problem:{problem}"
        assert caught.value.problem["detail"]


def test_metrics_tell_of_ingest_and_of_the_job(told: CollectorProcess) -> None:
    text = b"".join(told.client().stream("/metrics")).decode()
    assert "paceline_ingest_frames_total 64.0" in text
    assert 'paceline_rank_wasted_gpu_seconds_total{job="train",rank="2"}' in text
    assert 'paceline_step_seconds_count{job="train"} 160.0' in text


def test_readyz_says_that_all_is_well(told: CollectorProcess) -> None:
    answer = told.client().get_json("/readyz")
    assert answer["ready"]
    assert all(answer["checks"].values())


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_monitors_that_ask_with_head_get_the_status_alone(
    shared: CollectorProcess, path: str
) -> None:
    connection = http.client.HTTPConnection(urlsplit(shared.url).netloc, timeout=20)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.request("GET", path)  # nothing of the answer before is left in the connection
    assert connection.getresponse().status == 200
    connection.close()
