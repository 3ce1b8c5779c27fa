from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from paceline_service.export.words import headline
from tests.unit.importers import timing_texts
from tests.unit.importers.timing_texts import (
    Answer,
    Job,
    deepspeed,
    detector,
    iterations_of,
    megatron,
    named,
    nemo,
    notes_of,
    report_of,
    stamped,
)


@pytest.fixture
def answer(tmp_path: Path) -> Answer:
    """Return the report on logs, written into one directory."""
    return partial(report_of, tmp_path)


# Times of every rank


def test_a_rank_that_is_slow_in_a_log_of_all_ranks_is_named_with_its_cost(answer: Answer) -> None:
    report = answer(megatron(Job(slow={5: 1.2}, iterations=300), "all"))
    assert named(report) == ("straggler", [5], "compute")
    (finding,) = report["findings"]
    # 600 ms of forward and backward of 810 ms, 29 reports of 10 iterations, 7 ranks wait.
    assert finding["wasted_gpu_s"] == pytest.approx(0.12 * 290 * 7, rel=0.05)
    assert finding["first_step"] == 10
    assert report["job"]["steps"] == 30
    assert "sum of the 10 iterations" in notes_of(report)


def test_a_healthy_log_of_all_ranks_is_healthy(answer: Answer) -> None:
    report = answer(megatron(Job(iterations=800), "all"))
    assert report["verdict"] == "healthy"
    assert report["data"]["complete"]


def test_a_rank_of_a_pipeline_is_compared_with_those_of_its_stage(answer: Answer) -> None:
    job = Job(ranks=16, stages=4, slow={6: 1.3}, heavy={3: 1.1}, iterations=400)
    report = answer(megatron(job, "all"))
    kinds = {finding["kind"]: finding["ranks"] for finding in report["findings"]}
    assert kinds["straggler"] == [6]
    assert kinds.get("stage_imbalance", [12, 13, 14, 15]) == [12, 13, 14, 15]


@pytest.mark.parametrize("arguments", [True, False])
def test_a_heavy_stage_is_told_by_the_arguments_or_by_who_receives(
    arguments: bool, answer: Answer
) -> None:
    job = Job(ranks=16, stages=4, heavy={3: 1.2}, iterations=300, arguments=arguments)
    report = answer(megatron(job, "all"))
    assert named(report) == ("stage_imbalance", [12, 13, 14, 15], "compute")


def test_ranks_that_share_layers_are_one_finding(answer: Answer) -> None:
    report = answer(megatron(Job(tensor=2, slow={5: 1.2}, iterations=400), "all"))
    assert named(report) == ("straggler", [4, 5], "compute")
    (finding,) = report["findings"]
    assert finding["recoverable_ratio"] == pytest.approx(0.15, abs=0.03)
    assert "share layers" in finding["evidence"][-1]


def test_the_latest_attempt_of_a_restarted_job_is_judged(answer: Answer) -> None:
    first = megatron(Job(slow={5: 1.2}, iterations=200), "all")
    second = megatron(Job(slow={3: 1.2}, iterations=400, seed=9), "all")
    report = answer([*first, *second])
    assert named(report)[1] == [3]
    attempts = report["data"]["timings"]["attempts"]
    assert [attempt["reports"] for attempt in attempts] == [20, 40]
    assert "restarted" in notes_of(report)


def test_times_of_all_ranks_without_their_own_work_name_nobody(answer: Answer) -> None:
    lines = []
    own = False
    for line in megatron(Job(slow={5: 1.2}, iterations=200), "all"):
        own = (own and "rank" in line) or line.strip() in ("forward-compute:", "backward-compute:")
        lines += [] if own else [line]
    report = answer(lines)
    assert report["verdict"] == "insufficient_evidence"
    assert "--timing-log-level 2" in notes_of(report)


@pytest.mark.parametrize("old", [False, True])
def test_deepspeeds_timers_of_all_ranks_name_the_slow_one(old: bool, answer: Answer) -> None:
    report = answer(deepspeed(Job(iterations=60, slow={2: 1.3}), range(8), old=old))
    assert named(report) == ("straggler", [2], "compute")
    assert report["job"]["steps"] == 60


def test_a_slow_optimizer_is_told_from_the_all_gather_behind_it(answer: Answer) -> None:
    report = answer(deepspeed(Job(iterations=60), range(8), slow_optimizer={3: 1.5}))
    (finding,) = report["findings"]
    assert (finding["kind"], finding["ranks"], finding["phase"]) == ("straggler", [3], "optimizer")


def test_a_file_per_rank_is_one_job(answer: Answer) -> None:
    job = Job(iterations=60, slow={2: 1.3})
    report = answer(*(deepspeed(job, [rank]) for rank in range(8)))
    assert named(report)[1] == [2]


def test_deepspeeds_timers_in_a_pipeline_compare_nobody(answer: Answer) -> None:
    shape = (
        "using world size: 8, data-parallel-size: 4, tensor-model-parallel size: 1, "
        "pipeline-model-parallel size: 2 "
    )
    report = answer([shape, *deepspeed(Job(iterations=60, slow={2: 1.3}), range(8))])
    assert report["verdict"] == "insufficient_evidence"
    assert "which rank is in which" in notes_of(report)


# The least and the largest


def test_how_far_ranks_are_apart_is_told_and_that_nobody_can_be_named(answer: Answer) -> None:
    report = answer(megatron(Job(slow={5: 1.3}), "minmax"))
    assert report["verdict"] == "insufficient_evidence"
    assert report["findings"] == []
    spread = report["data"]["timings"]["spreads"][0]
    assert spread["timer"] == "backward-compute"
    assert spread["most_ms"] / spread["least_ms"] == pytest.approx(1.3, abs=0.03)
    assert "some rank's backward-compute takes 520" in notes_of(report)
    assert "--timing-log-option all" in report["data"]["timings"]["remedy"]
    assert "no times of each rank" in headline(report)


def test_a_slowdown_of_even_the_fastest_rank_is_one_of_all(answer: Answer) -> None:
    report = answer(megatron(Job(all_slow=1.15, from_iteration=300), "minmax"))
    assert named(report) == ("uniform_slowdown", [], "compute")
    (finding,) = report["findings"]
    assert (finding["first_step"], finding["last_step"]) == (301, 600)
    assert finding["phase"] == "backward"
    assert finding["slowdown"] == pytest.approx(1.143, abs=0.01)
    # 30 reports of 10 iterations; 8 ranks lose 90 ms each time.
    assert finding["wasted_gpu_s"] == pytest.approx(300 * 0.0903 * 8, rel=0.02)


def test_a_slowdown_of_the_slowest_rank_alone_is_not(answer: Answer) -> None:
    report = answer(megatron(Job(slow={5: 1.2}, from_iteration=300), "minmax"))
    assert report["verdict"] == "insufficient_evidence"
    (change,) = report["data"]["timings"]["changes"]
    assert change["iteration"] == 301
    assert "some ranks became slower" in notes_of(report)


def test_a_slower_network_is_not_the_ranks_own_work(answer: Answer) -> None:
    report = answer(megatron(Job(network=4, from_iteration=300), "minmax"))
    assert report["findings"] == []
    assert "all-grads-sync went from 40.0 ms to 160.0 ms, and no rank's own work" in notes_of(
        report
    )


@pytest.mark.parametrize("form", ["minmax", "all"])
@pytest.mark.parametrize("what", ["global batch size", "actual seqlen"])
def test_more_work_per_iteration_is_no_slowdown(form: str, what: str, answer: Answer) -> None:
    lines = []
    for line in megatron(Job(all_slow=1.5, from_iteration=450, iterations=900), form):
        number = line.partition("/")[0].rpartition(" ")[2]
        if "global batch size:    64 |" in line:
            work = 96 if int(number) > 450 else 64
            line = line.replace("global batch size:    64 |", f"{what}: {work:5d} |")
        lines.append(line)
    report = answer(lines)
    assert report["findings"] == []
    assert "from 64 to 96 there" in notes_of(report)


# One rank, or none


@pytest.mark.parametrize("every", [1, 10])
def test_iterations_that_became_longer_are_told_with_where(every: int, answer: Answer) -> None:
    job = Job(all_slow=1.2, from_iteration=300, every=every)
    report = answer(megatron(job, "none", stamp=True))
    assert report["verdict"] == "insufficient_evidence"
    timings = report["data"]["timings"]
    (change,) = timings["changes"]
    assert abs(change["iteration"] - 301) <= 2
    assert timings["iterations_per_report"] == every
    about = "from about iteration 301 on" if every > 1 else "on iterations take"
    assert about in notes_of(report)
    assert report["job"]["steps"] == 0  # averages are no steps


@pytest.mark.parametrize(
    "form",
    ["megatron 1.0", "nemo 2", "bridge", "deepspeed pipeline", "deepspeed throughput"],
)
def test_every_framework_that_prints_one_number_tells_since_when(form: str, answer: Answer) -> None:
    report = answer(iterations_of(form, 120, change=80))
    assert report["verdict"] == "insufficient_evidence"
    (change,) = report["data"]["timings"]["changes"]
    assert change["iteration"] == 81
    assert change["after_ms"] / change["before_ms"] == pytest.approx(1.2)
    assert "does not say how many ranks" in notes_of(report)


def test_the_time_of_day_of_progress_lines_tells_how_long_steps_take(answer: Answer) -> None:
    timings = answer(stamped(900, change=600))["data"]["timings"]
    assert (timings["form"], timings["iterations_per_report"]) == ("stamps", 10)
    (change,) = timings["changes"]
    assert (change["iteration"], timings["skipped_iterations"]) == (601, 3)
    assert change["after_ms"] == pytest.approx(600, abs=1)


def test_a_wait_of_the_one_rank_with_timers_is_told_as_a_wait(answer: Answer) -> None:
    report = answer(deepspeed(Job(iterations=100, slow={2: 1.3}, from_iteration=50), [0]))
    assert report["verdict"] == "insufficient_evidence"
    assert "on rank 0, bwd_allreduce went from" in notes_of(report)
    assert "for another rank or for the network" in notes_of(report)


def test_progress_bars_are_read_once_however_often_they_are_drawn(answer: Answer) -> None:
    report = answer(nemo(Job(every=1, iterations=120, all_slow=1.2, from_iteration=60)))
    timings = report["data"]["timings"]
    assert (timings["form"], timings["reports"]) == ("nemo", 120)
    assert timings["changes"][0]["iteration"] == 60  # NeMo counts from 0


def test_evaluations_checkpoints_and_skipped_iterations_are_told_as_such(answer: Answer) -> None:
    lines = []
    for line in megatron(Job(every=1, iterations=100), "none"):
        slow = "iteration       50/" in line or "iteration       70/" in line
        if slow:
            before, _, after = line.partition("(ms): ")
            line = f"{before}(ms): 9{after}"
        if "iteration       50/" in line:
            lines.append("saving checkpoint at iteration      49 to /checkpoints")
        lines.append(line)
    report = answer(lines)
    outliers = report["data"]["timings"]["outliers"]
    assert [(one["iteration"], one["after"]) for one in outliers] == [
        (50, "checkpoint"),
        (70, None),
    ]
    assert report["data"]["timings"]["changes"] == []
    skipped = answer(megatron(Job(every=1, iterations=60), "none", skipped=(20, 21)))
    assert skipped["data"]["timings"]["skipped_iterations"] == 2


def test_the_summary_of_communication_says_how_long_its_rank_waited(answer: Answer) -> None:
    report = answer(timing_texts.COMMUNICATION_SUMMARY)
    assert report["verdict"] == "insufficient_evidence"
    assert "waited 4,110.0 ms for others beside 4,420.0 ms of transfers" in notes_of(report)
    rows = report["data"]["timings"]["communication"]
    assert [row["operation"] for row in rows[:3]] == [
        "all_reduce", "all_reduce", "reduce_scatter_tensor",
    ]  # fmt: skip
    assert rows[0]["busbw_gbps"] == 168.86


# Megatron's straggler detector


def test_the_rank_that_the_detector_names_again_and_again_is_named(answer: Answer) -> None:
    report = answer(detector(Job(slow={5: 1.2}, iterations=400), clock=5))
    assert named(report) == ("straggler", [5], "gpu_throttle")
    (finding,) = report["findings"]
    assert finding["phase"] == "forward"
    assert "slowest in 40 of 40 reports" in finding["evidence"][0]


def test_a_stage_may_be_what_the_detector_names(answer: Answer) -> None:
    job = Job(ranks=8, stages=8, heavy={7: 1.3}, iterations=400)
    report = answer(detector(job))
    assert report["verdict"] == "insufficient_evidence"
    assert report["data"]["timings"]["slowest"]["rank"] == 7
    assert "its pipeline stage holds more" in notes_of(report)


def test_the_next_slowest_rank_tells_a_rank_from_its_stage(answer: Answer) -> None:
    job = Job(ranks=16, stages=4, heavy={3: 1.3}, slow={13: 1.1}, iterations=400, arguments=False)
    assert named(answer(detector(job, count=4)))[1] == [13]


def test_nobody_is_named_where_the_slowest_rank_changes(answer: Answer) -> None:
    report = answer(detector(Job(iterations=800)))
    assert report["verdict"] == "insufficient_evidence"
    assert "another rank was slowest most of the time" in notes_of(report)


def test_lists_that_name_every_rank_are_times_of_every_rank(answer: Answer) -> None:
    report = answer(detector(Job(ranks=8, slow={5: 1.2}, iterations=400), count=4))
    assert named(report)[1] == [5]
    assert report["job"]["ranks_observed"] == 8


# Recorded
