"""Frames that come minutes late, or in any order: after outages, retries and slow links."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import (
    CollectorProcess,
    RankSender,
    post_all,
    senders,
    steps_of,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, Simulated, simulate

STEPS = 160
SLOW = 2


@pytest.fixture(scope="module")
def job() -> Simulated:
    """Four ranks; rank 2 is slow in backward from step 40 on."""
    fault = Fault(rank=SLOW, phase=Phase.BACKWARD, extra_ms=15, first=40)
    return simulate(Scenario(steps=STEPS, faults=(fault,), seed=3))


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector that gives up a missing frame after half a second."""
    state = tmp_path_factory.mktemp("late") / "state"
    collector = CollectorProcess(state, PACELINE_SERVE_REORDER_WAIT_S="0.5").start()
    yield collector
    assert collector.stop() == 0


def frames_of(job: Simulated, sender: RankSender) -> list[bytes]:
    """Return the frames of one rank, 10 steps in each, the last one with its end."""
    return [
        sender.frame(
            steps_of(job.rows[sender.rank], first, first + 10),
            ended="closed" if first + 10 == STEPS else "",
        )
        for first in range(0, STEPS, 10)
    ]


def named(report: dict[str, object]) -> list[list[int]]:
    return [finding["ranks"] for finding in report["findings"]]  # type: ignore[attr-defined]


def test_frames_of_minutes_in_any_order_give_the_report_of_those_in_order(
    collector: CollectorProcess, job: Simulated
) -> None:
    client = collector.client()
    frames = [frames_of(job, sender) for sender in senders(job, job="shuffled")]
    everything = [frame for of_rank in frames for frame in of_rank]
    random.Random(4).shuffle(everything)
    assert post_all(client, everything) == len(everything)
    row = wait_for_state(client, "shuffled", "ended", 30)
    assert row["steps"] == STEPS
    report = client.report("shuffled")
    assert named(report) == [[SLOW]]
    assert report["data"]["complete"], report["data"]


def test_a_frame_that_was_given_up_counts_when_the_job_is_analysed_again(
    hasty: CollectorProcess, job: Simulated
) -> None:
    client = hasty.client()
    frames = [frames_of(job, sender) for sender in senders(job, job="given-up")]
    late = frames[1].pop(5)
    for of_rank in frames:
        post_all(client, of_rank[:-1])
    wait_until(lambda: client.report("given-up")["data"]["dropped"].get("frames_missing"), 20)
    assert client.post_frames(late)["accepted"] == 1
    post_all(client, [of_rank[-1] for of_rank in frames])
    wait_for_state(client, "given-up", "ended", 30)
    report = client.report("given-up")
    assert named(report) == [[SLOW]]
    assert not report["data"]["complete"]
    assert report["data"]["dropped"]["frames_late"] == 1
    hasty.kill()
    hasty.start()
    again = hasty.client()
    wait_until(lambda: again.report("given-up")["data"]["complete"], 30)
    assert named(again.report("given-up")) == [[SLOW]]
    assert again.get_json("/v1/jobs/given-up")["steps"] == STEPS


def test_a_node_whose_frames_all_come_minutes_after_the_others_is_counted_and_named(
    hasty: CollectorProcess, job: Simulated, tmp_path: Path
) -> None:
    client = hasty.client()
    frames = [frames_of(job, sender) for sender in senders(job, job="cut-off")]
    for rank in range(4):
        if rank != SLOW:
            post_all(client, frames[rank][:-1])
    wait_until(lambda: client.report("cut-off")["job"]["ranks_observed"] == 3, 20)
    # Its link is back: the spool is sent, the oldest frames first.
    assert post_all(client, frames[SLOW]) == STEPS // 10
    post_all(client, [frames[rank][-1] for rank in range(4) if rank != SLOW])
    wait_for_state(client, "cut-off", "ended", 30)
    report = client.report("cut-off")
    assert report["job"]["ranks_observed"] == 4
    assert named(report) == [[SLOW]]
    stored = hasty.rows(
        "SELECT count(*), count(DISTINCT f.incarnation_id || ':' || f.frame_seq) FROM frames f "
        "JOIN job_attempts a ON a.id = f.attempt_id JOIN jobs j ON j.id = a.job_id "
        "WHERE j.name = 'cut-off'"
    )
    assert stored == [(4 * STEPS // 10, 4 * STEPS // 10)]
