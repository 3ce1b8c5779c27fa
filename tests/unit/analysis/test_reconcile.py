from __future__ import annotations

import math
from dataclasses import replace

from paceline_service.analysis.reconcile import reconcile
from paceline_service.analysis.report import Finding

RANK = Finding(
    kind="straggler", ranks=[3], nodes=["node-a"], cause="compute", phase="backward",
    first_step=100, last_step=199, slowdown=1.3, recoverable_ratio=0.1, wasted_gpu_s=10.0,
    confidence=0.99, evidence=["it is slow"], action=None,
)  # fmt: skip
STAGE = replace(
    RANK, kind="stage_imbalance", ranks=[2, 3], slowdown=1.35, first_step=0, wasted_gpu_s=50.0
)
SLOW_LINK = replace(RANK, kind="communication", cause="network", wasted_gpu_s=30.0)
BOUND = replace(RANK, kind="communication_bound", ranks=[], wasted_gpu_s=100.0)
UNIFORM = replace(RANK, kind="uniform_slowdown", ranks=[], first_step=104, wasted_gpu_s=90.0)
LENGTHS = replace(RANK, kind="imbalance", ranks=[], first_step=5, slowdown=math.exp(0.2))


def kinds(*findings: Finding) -> list[tuple[str, list[int]]]:
    return [(finding.kind, finding.ranks) for finding in reconcile(list(findings))[0]]


def test_the_ranks_of_a_slow_stage_are_no_stragglers() -> None:
    assert kinds(RANK, STAGE) == [("stage_imbalance", [2, 3])]


def test_a_rank_far_slower_than_its_slow_stage_is_named_as_well() -> None:
    worse = replace(RANK, slowdown=1.8)
    assert kinds(worse, STAGE) == [("stage_imbalance", [2, 3]), ("straggler", [3])]


def test_a_rank_of_a_node_that_is_slow_as_a_whole_is_not_named_again() -> None:
    node = replace(RANK, ranks=[2, 3], wasted_gpu_s=20.0)
    assert kinds(RANK, node) == [("straggler", [2, 3])]


def test_a_rank_that_was_slow_at_another_time_than_its_node_is_named() -> None:
    node = replace(RANK, ranks=[2, 3], first_step=300, last_step=399)
    assert len(kinds(RANK, node)) == 2


def test_slow_transfers_of_a_throttled_gpu_are_its_evidence() -> None:
    hot = replace(RANK, cause="gpu_throttle")
    link = replace(SLOW_LINK, evidence=["its transfers took twice as long"])
    (finding,), _ = reconcile([hot, link])
    assert finding.kind == "straggler"
    assert "its transfers took twice as long" in finding.evidence
    assert len(kinds(RANK, link)) == 2


def test_a_communication_bound_job_with_a_straggler_is_a_straggler_first() -> None:
    findings, notes = reconcile([BOUND, RANK])
    assert [finding.kind for finding in findings] == ["straggler"]
    assert any("waits for communication" in note for note in notes)
    assert kinds(BOUND) == [("communication_bound", [])]


def test_all_becoming_slower_when_one_does_is_that_ones_doing() -> None:
    assert kinds(UNIFORM, RANK) == [("straggler", [3])]
    later = replace(UNIFORM, first_step=160)
    assert kinds(later, RANK) == [("uniform_slowdown", []), ("straggler", [3])]


def test_a_rank_that_drew_long_batches_for_a_while_is_a_note() -> None:
    short = replace(RANK, first_step=100, last_step=119)
    findings, notes = reconcile([LENGTHS, short])
    assert [finding.kind for finding in findings] == ["imbalance"]
    assert any("batches of different size explain" in note for note in notes)
    lasting = replace(RANK, first_step=0, last_step=999)
    assert ("straggler", [3]) in kinds(LENGTHS, lasting)
    late_input = replace(short, phase="input")
    assert ("straggler", [3]) in kinds(LENGTHS, late_input)


def test_batches_explain_a_rank_that_was_behind_in_few_steps_of_a_long_time() -> None:
    now_and_then = replace(RANK, first_step=100, last_step=399)
    assert ("straggler", [3]) in kinds(LENGTHS, now_and_then)
    findings, notes = reconcile([LENGTHS, now_and_then], {3: 30})
    assert [finding.kind for finding in findings] == ["imbalance"]
    assert any("for 30 steps by no more than" in note for note in notes)


def test_ranks_late_in_turns_are_one_rotation() -> None:
    rotation = replace(LENGTHS, slowdown=None)
    turns = [replace(RANK, ranks=[rank], period_steps=8.0) for rank in range(4)]
    assert kinds(rotation, *turns) == [("imbalance", [])]
    assert len(kinds(rotation, *turns[:1])) == 2


def test_a_rank_that_writes_checkpoints_is_a_note() -> None:
    findings, notes = reconcile([replace(RANK, phase="checkpoint")])
    assert findings == []
    assert "checkpoints" in notes[0]


def test_what_is_no_number_is_null_and_findings_descend_by_cost() -> None:
    broken = replace(RANK, slowdown=math.nan, wasted_gpu_s=math.inf, confidence=-math.inf)
    findings, _ = reconcile([broken, replace(RANK, ranks=[9])])
    assert [finding.ranks for finding in findings] == [[9], [3]]
    assert (findings[1].slowdown, findings[1].wasted_gpu_s, findings[1].confidence) == (None,) * 3
