from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest

from paceline.vocabulary import Flag, Op, Phase, RecordKind
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, records_from_rows
from paceline_service.analysis.report import Finding, Report
from tests.simulator.job import MS, Scenario, Simulated, simulate

S = 10**9
STEPS = 40
CULPRIT = 2
OTHERS = (0, 1, 3)


class Job:
    """A job of four ranks whose records end with step 39, as a collector hears of it."""

    def __init__(self, options: Options | None = None, **scenario: float) -> None:
        self.simulated: Simulated = simulate(Scenario(steps=STEPS, **scenario))
        self.analysis = JobAnalysis(4, options)
        for name, ranks in self.simulated.groups:
            self.analysis.declare_group(Group(name=name, ranks=ranks))
        for rank, rows in enumerate(self.simulated.rows):
            self.analysis.declare_rank(rank, node=f"node-{rank // 2}")
            self.analysis.add(records_from_rows(rank, rows))
        self.analysis.advance()
        self.last_ns = [max(row[8] for row in rows) for rows in self.simulated.rows]
        self.next_seq = 1 + max(
            row[3] for row in self.simulated.rows[0] if row[0] == RecordKind.COLLECTIVE
        )

    def hear(
        self, rank: int, after_s: float, *, waits: bool = True, op: Op = Op.ALL_REDUCE,
        saving_s: float = 0.0, heard_s: float | None = None,
    ) -> None:  # fmt: skip
        """A frame of ``rank``, made so long after its last record."""
        start_ns = self.last_ns[rank] + 10 * MS
        now_ns = start_ns + int(after_s * S)
        row = (0, int(op), self.next_seq, STEPS, -1, 1 << 20, start_ns)
        self.analysis.note_pending(
            rank,
            np.array([row] if waits else [], dtype=np.int64).reshape(-1, 7),
            now_ns=now_ns,
            heard_wall_ns=10**18 + int((after_s if heard_s is None else heard_s) * S),
            step=STEPS,
            checkpoint_ns=now_ns - int(saving_s * S) if saving_s else 0,
        )

    def hear_all(self, times_s: Iterable[float], **culprit: float) -> None:
        for after_s in times_s:
            for rank in OTHERS:
                self.hear(rank, after_s)
            self.hear(CULPRIT, after_s, waits=False, **culprit)

    def report(self) -> Report:
        report = self.analysis.report()
        json.dumps(report.to_dict(), allow_nan=False)
        return report

    def standing(self) -> list[Finding]:
        return [f for f in self.report().findings if f.kind in ("hang", "desync")]


def test_a_rank_that_does_not_come_is_named_after_the_threshold_and_not_before() -> None:
    job = Job()
    job.hear_all(range(0, 29, 5))
    assert job.standing() == []
    job.hear_all([31])
    (finding,) = job.standing()
    assert job.report().verdict == "hang"
    assert (finding.kind, finding.ranks, finding.nodes) == ("hang", [CULPRIT], ["node-1"])
    assert (finding.cause, finding.first_step) == ("host", STEPS)
    assert finding.collective == {
        "group": "dp0", "op": "all_reduce", "seq": job.next_seq, "age_s": 31.0,
    }  # fmt: skip
    assert finding.wasted_gpu_s == pytest.approx(93)
    assert "3 ranks wait for it" in finding.evidence[1]


def test_a_peer_whose_step_was_told_a_moment_later_waits_too_and_is_not_accused() -> None:
    job = Job()
    for rank in OTHERS[1:]:
        job.hear(rank, 0)
    job.hear(OTHERS[0], 1)
    job.hear_all([30.5])  # rank 0 is known to be in this step for 29.5 s of the 30
    (finding,) = job.standing()
    assert finding.ranks == [CULPRIT]


def test_a_hang_that_ends_is_no_finding_any_more() -> None:
    job = Job()
    job.hear_all([0, 40])
    assert job.standing()
    for rank in range(4):
        job.hear(rank, 45, waits=False)
    assert job.standing() == []


def test_the_threshold_follows_the_longest_steps_of_the_job() -> None:
    job = Job(phase_ms={Phase.FORWARD: 10_000.0, Phase.BACKWARD: 2_000.0, **dict.fromkeys(
        (Phase.HOST, Phase.INPUT, Phase.OPTIMIZER), 1.0)})  # fmt: skip
    job.hear_all([0, 50])
    assert job.standing() == []
    job.hear_all([80])
    assert [finding.ranks for finding in job.standing()] == [[CULPRIT]]


def test_before_the_first_step_is_over_more_patience_is_had() -> None:
    analysis = JobAnalysis(2)
    analysis.declare_group(Group(name="dp", ranks=(0, 1)))
    for after_s, named in ((0, False), (500, False), (700, True)):
        row = np.array([[0, int(Op.BARRIER), 0, 0, -1, 0, S]])
        analysis.note_pending(0, row, now_ns=S + after_s * S, heard_wall_ns=after_s * S + 1)
        analysis.note_pending(1, row[:0], now_ns=S + after_s * S, heard_wall_ns=after_s * S + 1)
        assert bool(analysis.report().findings) == named


def test_a_rank_that_saves_a_checkpoint_is_no_hang_but_not_for_ever() -> None:
    job = Job()
    for after_s in (0, 60, 600):
        job.hear_all([after_s], saving_s=after_s + 1)
        assert job.standing() == []
    assert any("saving a checkpoint" in note for note in job.report().notes)
    job.hear_all([4000], saving_s=4001)
    assert [finding.ranks for finding in job.standing()] == [[CULPRIT]]


def test_a_rank_that_still_writes_records_evaluates_and_is_no_hang() -> None:
    job = Job()
    for after_s in (0, 20, 40, 60):
        end_ns = job.last_ns[CULPRIT] + after_s * S
        row = (int(RecordKind.PHASE), int(Phase.FORWARD), 0, 0, STEPS, -1, 0,
               end_ns - S, end_ns, 0, 0, 0)  # fmt: skip
        job.analysis.add(records_from_rows(CULPRIT, [row]))
        job.hear_all([after_s])
        assert job.standing() == []
    assert any("still writing records" in note for note in job.report().notes)
    job.hear_all([100])
    assert [finding.ranks for finding in job.standing()] == [[CULPRIT]]


def test_a_rank_of_a_node_that_is_not_heard_of_is_named_with_that() -> None:
    job = Job()
    job.hear(CULPRIT, 0, waits=False)
    for after_s in (0, 20, 40):
        for rank in OTHERS:
            job.hear(rank, after_s)
    (finding,) = job.standing()
    assert (finding.ranks, finding.cause) == ([CULPRIT], "unknown")
    assert any("nothing was heard of rank 2 for 40 s" in line for line in finding.evidence)


def test_a_dead_rank_is_named_as_such() -> None:
    job = Job()
    job.hear(CULPRIT, 0, waits=False)
    job.analysis.rank_ended(CULPRIT, "killed")
    for after_s in (0, 20, 40):
        for rank in OTHERS:
            job.hear(rank, after_s)
    (finding,) = job.standing()
    assert (finding.ranks, finding.cause) == ([CULPRIT], "unknown")
    assert any("rank 2 is dead" in line for line in finding.evidence)


def test_a_rank_that_was_killed_with_the_job_is_not_called_dead() -> None:
    job = Job()
    job.hear_all([0, 50, 100])
    for rank in range(4):
        job.analysis.rank_ended(rank, "killed")
    (finding,) = job.standing()
    assert (finding.ranks, finding.cause) == ([CULPRIT], "host")
    assert not any("dead" in line for line in finding.evidence)


def test_ranks_that_closed_wait_for_nobody() -> None:
    job = Job()
    job.hear_all([0, 50])
    for rank in range(4):
        job.analysis.rank_ended(rank, "closed")
    assert job.standing() == []


def test_an_operation_that_was_forgotten_accuses_nobody_while_steps_go_on() -> None:
    job = Job()
    start_ns = job.last_ns[0] + S
    row = np.array([[0, int(Op.ALL_REDUCE), job.next_seq, STEPS, -1, 64, start_ns]])
    for number in range(20):
        now_ns = start_ns + number * 10 * S
        job.analysis.note_pending(0, row, now_ns=now_ns, step=STEPS + number)
    assert job.standing() == []


def test_a_rank_whose_records_never_came_is_not_accused_of_what_its_peers_have_left() -> None:
    simulated = simulate(Scenario(steps=STEPS))
    analysis = JobAnalysis(4)
    for name, ranks in simulated.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank in OTHERS:
        analysis.add(records_from_rows(rank, simulated.rows[rank]))
    last = [row for row in simulated.rows[0] if row[0] == RecordKind.COLLECTIVE][-1]
    row = np.array([[0, int(Op.ALL_REDUCE), last[3], STEPS - 1, -1, 64, last[7]]])
    for after_s in (0, 100):
        analysis.note_pending(0, row, now_ns=last[7] + after_s * S, step=STEPS)
    assert [f.ranks for f in analysis.report().findings if f.kind == "hang"] != [[CULPRIT]]


def test_another_operation_under_the_same_number_is_a_desync() -> None:
    job = Job()
    for after_s in (0, 50):
        for rank in OTHERS:
            job.hear(rank, after_s)
        job.hear(CULPRIT, after_s, op=Op.ALL_GATHER)
    (finding,) = job.standing()
    assert (finding.kind, finding.ranks) == ("desync", [CULPRIT])
    assert job.report().verdict == "desync"


def test_a_transfer_in_which_nobody_is_missing_stands_still_and_names_nobody() -> None:
    job = Job()
    for rank in range(4):
        job.hear(rank, 0)
        job.hear(rank, 29)
    assert job.standing() == []
    for rank in range(4):
        job.hear(rank, 90)
    (finding,) = job.standing()
    assert (finding.kind, finding.ranks, finding.cause) == ("hang", [], "network")
    assert "none has left it for 90.0 s: nobody is missing" in finding.evidence[0]
    assert "node-0, node-1" in finding.action
    assert job.report().verdict == "hang"


def test_a_transfer_that_nobody_asks_about_is_no_standstill_while_one_of_them_works() -> None:
    job = Job()
    for rank in range(4):
        job.hear(rank, 0)
        job.hear(rank, 90, saving_s=60 if rank == CULPRIT else 0)
    assert job.standing() == []


def test_the_innermost_lines_of_a_stuck_process_are_evidence() -> None:
    job = Job()
    job.hear_all([0, 40])
    stack = ["read (loader.py:12)", "next_batch (loader.py:40)", "main (train.py:9)"]
    job.analysis.standstill.stack(CULPRIT, job.last_ns[CULPRIT] + 30 * S, stack)
    (finding,) = job.standing()
    assert "rank 2 stands in read (loader.py:12) < next_batch" in finding.evidence[-1]


@pytest.mark.parametrize("told", [True, False])
def test_a_log_that_ends_in_a_hang_gives_the_answer_of_the_live_job(told: bool) -> None:
    live = Job()
    live.hear_all([0, 20, 40])
    ended = Job()
    flags = int(Flag.NOT_WAITED)
    for rank in OTHERS:
        start_ns = ended.last_ns[rank] + 10 * MS
        row = (int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), 0, ended.next_seq, STEPS, -1,
               1 << 20, start_ns, 0, 0, 0, flags)  # fmt: skip
        ended.analysis.add(records_from_rows(rank, [row]))
        if told:
            ended.analysis.standstill.alive_at(rank, start_ns + 40 * S)
    ended.analysis.standstill.alive_at(CULPRIT, ended.last_ns[CULPRIT] + 40 * S)
    ended.analysis.log_ends(ages_known=told)
    ended.analysis.finish()
    (of_log,), (of_live,) = ended.standing(), live.standing()
    assert (of_log.kind, of_log.ranks, of_log.cause) == ("hang", [CULPRIT], "host")
    if told:
        assert of_log.collective == of_live.collective


def test_contradicting_operations_in_steps_that_went_on_are_a_desync() -> None:
    simulated = simulate(Scenario(steps=STEPS))
    analysis = JobAnalysis(4)
    for name, ranks in simulated.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank, rows in enumerate(simulated.rows):
        changed = [
            (row[0], int(Op.BROADCAST), *row[2:])
            if rank == 1 and row[0] == RecordKind.COLLECTIVE and row[3] == 50
            else row
            for row in rows
        ]
        analysis.add(records_from_rows(rank, changed))
    analysis.finish()
    finding = next(f for f in analysis.report().findings if f.kind == "desync")
    assert finding.ranks == [1]
    assert "issued broadcast as number 50" in finding.evidence[0]
