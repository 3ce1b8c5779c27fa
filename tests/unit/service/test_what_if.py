from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.errors import InputError
from paceline.vocabulary import Phase
from paceline_service.jobs.snapshot import Snapshot, pack_state, unpack_state
from paceline_service.jobs.what_if import what_if
from paceline_service.store.frames import AttemptRef
from tests.simulator.feed import analyse
from tests.simulator.job import Fault, Scenario


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Four ranks on two nodes; ranks 2 and 3 of node-1 take 8 and 6 ms more."""
    faults = tuple(
        Fault(rank=rank, phase=Phase.FORWARD, extra_ms=extra) for rank, extra in ((2, 8), (3, 6))
    )
    analysis = analyse(Scenario(steps=60, jitter=0.001, faults=faults), nodes=2)
    ref = AttemptRef(
        id=1, job="train", run_id="r", launch_attempt=0, ordinal=1, world_size=4,
        first_seen_wall_ns=1,
    )  # fmt: skip
    return Snapshot(
        attempt=ref, state="ended", report=analysis.report().to_dict(), report_json=b"{}",
        ranks=[], groups=[], nodes={str(r): f"node-{r // 2}" for r in range(4)},
        last_seen_wall_ns=1, last_step=59, ranks_seen=4, frame_id=1, drain=analysis.drain(),
    )  # fmt: skip


def gain_ms(answer: dict[str, Any]) -> float:
    return float(answer["recoverable_ns"]) / answer["steps"] / 1e6


def test_one_rank_gives_back_its_lead_and_the_whole_node_all_of_it(snapshot: Snapshot) -> None:
    assert gain_ms(what_if(snapshot, ["rank:2"])) == pytest.approx(2, abs=0.2)
    assert gain_ms(what_if(snapshot, ["rank:3"])) == pytest.approx(0, abs=0.05)
    for both in (["node:node-1"], ["rank:2", "rank:3"], ["rank:2-3"], ["rank:2", "node:node-1"]):
        answer = what_if(snapshot, both)
        assert answer["ranks"] == "2-3"
        assert gain_ms(answer) == pytest.approx(8, abs=0.2)
        assert answer["recoverable_ratio"] == pytest.approx(8 / 45, abs=0.05)


def test_without_a_question_it_tells_the_best_candidates(snapshot: Snapshot) -> None:
    answer = what_if(snapshot, [])
    assert (answer["recoverable_ns"], answer["without"]) == (0, [])
    assert [row["without"] for row in answer["candidates"][:2]] == ["node:node-1", "rank:2"]
    assert answer["replay"]["slowdown"] > 1.1


@pytest.mark.parametrize(
    ("without", "word"),
    [
        (["rank:9"], "ranks 0 to 3"),
        (["rank:x"], "rank"),
        (["node:nowhere"], "nodes"),
        (["3"], "rank:LIST"),
        (["rank:0-3"], "no job"),
        (["rank:1"] * 65, "65 times"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(
    snapshot: Snapshot, without: list[str], word: str
) -> None:
    with pytest.raises(InputError, match=word):
        what_if(snapshot, without)


def test_what_is_stored_still_answers_for_one_rank_or_node(snapshot: Snapshot) -> None:
    stored = unpack_state(snapshot.attempt, pack_state(snapshot), 1)
    for without in (["rank:2"], ["node:node-1"]):
        assert what_if(stored, without) == what_if(snapshot, without)
    with pytest.raises(InputError, match="not in memory"):
        what_if(stored, ["rank:2", "rank:3"])


def test_a_job_of_which_no_step_was_seen_gives_nothing_and_no_nan(snapshot: Snapshot) -> None:
    empty = replace(snapshot, drain=None, report={**snapshot.report, "what_if": None})
    answer = what_if(empty, ["rank:1-2"])
    assert (answer["steps"], answer["recoverable_ratio"], answer["candidates"]) == (0, None, [])
