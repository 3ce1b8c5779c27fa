"""Timelines of stored steps, asked of a real collector."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase, RecordKind
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    steps_of,
    wait_for_state,
    wait_until,
)
from tests.integration.collector.traces import check_trace
from tests.simulator.job import Fault, Scenario, Simulated, simulate

SLOW = 2


@pytest.fixture(scope="module")
def drawn(shared: CollectorProcess, slow_backward: Simulated) -> Client:
    """A collector with the job ``traced``, whose rank 2 is slow from step 60 on."""
    client = shared.client()
    post_all(client, bodies(slow_backward, senders(slow_backward, job="traced")))
    wait_for_state(client, "traced", "ended")
    return client


def timeline(client: Client, job: str = "traced", **query: Any) -> dict[str, Any]:
    return dict(client.get_json(f"/v1/jobs/{job}/timeline", **query))


def of_category(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def test_a_timeline_is_a_valid_trace_and_holds_every_record_of_its_steps(
    drawn: Client, slow_backward: Simulated
) -> None:
    trace = timeline(drawn, from_=100, to=109)
    check_trace(trace)
    kinds = Counter(row[0] for rows in slow_backward.rows for row in steps_of(rows, 100, 110))
    told = trace["otherData"]
    assert told["records"] == sum(kinds.values())
    assert told["not_drawn"] == told["unusable"] == 0
    assert len(of_category(trace, "step")) == kinds[RecordKind.STEP] == told["drawn"]["steps"]
    assert len(of_category(trace, "phase")) == kinds[RecordKind.PHASE]
    collectives = [one for one in of_category(trace, "collective") if one["ph"] == "X"]
    assert len(collectives) == kinds[RecordKind.COLLECTIVE]
    assert {one["args"]["step"] for one in collectives} == set(range(100, 110))
    assert (told["first_step"], told["last_step"], told["cut"]) == (100, 109, False)


def test_the_slow_rank_is_marked_as_last_arriver_and_the_others_wait_for_it(
    drawn: Client,
) -> None:
    trace = timeline(drawn, from_=100, to=109)
    last = Counter(
        event["pid"] - 1 for event in of_category(trace, "last arriver") if event["ph"] == "i"
    )
    assert last.most_common(1)[0][0] == SLOW
    assert last[SLOW] >= 10
    waits = Counter(event["name"] for event in of_category(trace, "wait"))
    assert waits.most_common(1)[0][0] == f"waits for rank {SLOW}"
    assert f"waits for rank {SLOW}" not in {
        event["name"] for event in of_category(trace, "wait") if event["pid"] - 1 == SLOW
    }


def test_waits_and_exposed_communication_add_up_to_the_figures_of_the_step(drawn: Client) -> None:
    trace = timeline(drawn, from_=100, to=109)
    waits: Counter[tuple[int, int]] = Counter()
    exposed: Counter[tuple[int, int]] = Counter()
    for event in of_category(trace, "wait"):
        waits[event["args"]["step"], event["pid"] - 1] += round(event["dur"] * 1000)
        assert event["name"] == f"waits for rank {event['args']['last_arriver']}"
    for event in of_category(trace, "collective"):
        key = event["args"]["step"], event["pid"] - 1
        exposed[key] += event["args"].get("exposed_comm_ns", 0)
    steps = drawn.get_json("/v1/jobs/traced/steps", from_=100, to=109)
    for i, step in enumerate(steps["steps"]):
        for j, rank in enumerate(steps["ranks"]):
            assert waits[step, rank] == pytest.approx(steps["wait_ns"][i][j], rel=0.02, abs=50_000)
            assert exposed[step, rank] == pytest.approx(
                steps["comm_ns"][i][j], rel=0.02, abs=50_000
            )


def test_clocks_that_are_not_shared_are_placed_with_their_uncertainty(drawn: Client) -> None:
    trace = timeline(drawn, from_=40, to=59)
    clocks = {one["rank"]: one for one in trace["otherData"]["clocks"]}
    assert clocks[0]["uncertainty_ns"] == 0
    assert all(one["how"] == "collectives" for one in clocks.values())
    assert all(one["uncertainty_ns"] > 0 for rank, one in clocks.items() if rank)
    labels = {
        event["pid"]: event["args"]["labels"]
        for event in trace["traceEvents"]
        if event["name"] == "process_labels"
    }
    assert "±" in labels[2]
    ends: dict[int, list[float]] = {}
    for event in of_category(trace, "collective"):
        if event["ph"] == "X":
            key = (event["args"]["group"], event["args"]["seq"])
            ends.setdefault(hash(key), []).append(event["ts"] + event["dur"])
    # All are released together, on clocks that began hours apart.
    assert all(max(of_one) - min(of_one) < 5_000 for of_one in ends.values())


def test_only_the_ranks_that_are_asked_for_are_drawn_yet_all_are_compared(drawn: Client) -> None:
    trace = timeline(drawn, from_=100, to=104, ranks="0-1")
    check_trace(trace)
    assert {event["pid"] - 1 for event in trace["traceEvents"]} == {0, 1}
    assert {event["name"] for event in of_category(trace, "wait")} >= {f"waits for rank {SLOW}"}
    assert trace["otherData"]["cut"] is True


def test_a_timeline_that_is_cut_says_where_to_go_on(drawn: Client) -> None:
    trace = timeline(drawn, from_=10, to=99, limit=5)
    told = trace["otherData"]
    assert (told["first_step"], told["last_step"], told["next_from"]) == (10, 14, 15)
    assert told["asked"] == {"from": 10, "to": 99}
    assert told["cut"] is True
    assert timeline(drawn)["otherData"]["last_step"] == 159


@pytest.mark.parametrize(
    ("query", "status"), [({"from_": 500}, 400), ({"from_": 9, "to": 8}, 400), ({"limit": 0}, 422)]
)
def test_steps_that_cannot_be_drawn_are_refused(
    drawn: Client, query: dict[str, int], status: int
) -> None:
    with pytest.raises(ProblemError) as refused:
        timeline(drawn, **query)
    assert refused.value.status == status


def test_frames_that_come_late_and_out_of_order_are_drawn_too(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client = shared.client()
    ranks = senders(healthy, job="jumbled")
    posted = [
        [rank.frame(steps_of(healthy.rows[rank.rank], first, first + 5)) for first in
         range(0, 60, 5)]
        for rank in ranks
    ]  # fmt: skip
    for of_rank in posted[:3]:
        post_all(client, reversed(of_rank))
    post_all(client, posted[3])
    wait_until(lambda: client.get_json("/v1/jobs/jumbled")["steps"] >= 55)
    trace = timeline(client, "jumbled", from_=20, to=29)
    check_trace(trace)
    expected = sum(len(steps_of(rows, 20, 30)) for rows in healthy.rows)
    assert trace["otherData"]["records"] == expected


def test_the_steps_of_a_restarted_rank_are_those_of_the_report(shared: CollectorProcess) -> None:
    job = simulate(Scenario(steps=20, seed=8))
    client = shared.client()
    for generation in range(2):
        ranks = senders(job, job="again")
        for sender in ranks:
            sender.incarnation = f"{generation:016x}{sender.rank:016x}"
        post_all(client, bodies(job, ranks, end=generation == 1))
    wait_for_state(client, "again", "ended")
    columns = client.get_json("/v1/jobs/again/steps", from_=0)
    trace = timeline(client, "again", from_=20, limit=100)
    check_trace(trace)
    told = {event["args"]["step"] for event in of_category(trace, "step")}
    assert told == {step for step in columns["steps"] if step >= 20}


def test_steps_whose_frames_were_deleted_are_told_as_such(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    client = collector.client()
    post_all(client, bodies(healthy, senders(healthy, job="old")))
    wait_for_state(client, "old", "ended")
    with sqlite3.connect(collector.database) as database:
        database.execute("DELETE FROM frames")
    with pytest.raises(ProblemError) as refused:
        timeline(client, "old", from_=0, to=9)
    assert refused.value.status == 404
    assert refused.value.problem["type"].endswith(":not-kept")


def test_the_command_writes_a_file_that_opens(
    shared: CollectorProcess, drawn: Client, tmp_path: Path
) -> None:
    path = tmp_path / "steps.json"
    call = "import sys; from paceline_service.cli import timeline; sys.exit(timeline(sys.argv[1:]))"
    arguments = ["traced", "--url", shared.url, "--from", "60", "--to", "64", "-o", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", call, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "steps 60 to 64" in done.stderr
    trace = json.loads(path.read_text(encoding="utf-8"))
    check_trace(trace)
    assert trace["otherData"]["asked"] == {"from": 60, "to": 64}


def test_a_rank_that_waits_for_its_input_shows_why(shared: CollectorProcess) -> None:
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=30, first=20)
    job = simulate(Scenario(steps=60, shared_clock=True, faults=(fault,), seed=4))
    client = shared.client()
    post_all(client, bodies(job, senders(job, job="hungry")))
    wait_for_state(client, "hungry", "ended")
    trace = timeline(client, "hungry", from_=30, to=39)
    check_trace(trace)
    inputs = [e for e in of_category(trace, "phase") if e["name"] == "input"]
    longest = max(inputs, key=lambda event: event["dur"])
    assert longest["pid"] - 1 == 1
    assert longest["dur"] > 20_000
    assert {one["uncertainty_ns"] for one in trace["otherData"]["clocks"]} == {0}
