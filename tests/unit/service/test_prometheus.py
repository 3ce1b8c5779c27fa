from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from paceline import metrics
from paceline_service.export.histogram import Histogram
from paceline_service.export.prometheus import JobSample, Sample, render

ORDER = ("job", "rank", "kind", "cause", "le", "stage", "reason")


def sample(ranks: int) -> Sample:
    rows = [
        {"rank": rank, "self_ns": 10**9, "wait_ns": rank, "caused_wait_ns": 5 * 10**8,
         "blamed_wait_ns": rank * 10**9, "last_arriver": rank}
        for rank in range(ranks)
    ]  # fmt: skip
    report = {"slowdown": 1.25, "idle_ratio": 0.1, "gamma": None, "ranks": rows}
    finding = {"ranks": [3], "kind": "straggler", "cause": "compute"}
    job = JobSample(
        job="train", state="running", report=report, ranks_seen=ranks, last_step=9,
        open_findings=(finding,), step_bounds_s=(0.1, 1.0), step_buckets=(4, 5, 1), step_sum_s=3.5,
    )  # fmt: skip
    return Sample(
        jobs=(job,),
        values={metrics.INGEST_FRAMES: 7},
        labelled={metrics.DROPPED: {("ingest", "corrupt"): 2.0}},
    )


def parsed(ranks: int, rank_series: int) -> dict[str, dict[tuple[str, ...], float]]:
    text = render(lambda: sample(ranks), rank_series).decode()
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for item in family.samples:
            values.setdefault(item.name, {})[
                tuple(item.labels[k] for k in ORDER if k in item.labels)
            ] = item.value
    return values


def test_jobs_and_ranks_are_told_in_base_units() -> None:
    told = parsed(4, 512)
    assert told["paceline_rank_self_seconds_total"]["train", "2"] == 1.0
    assert told["paceline_rank_wasted_gpu_seconds_total"]["train", "3"] == 3.0
    assert told["paceline_rank_lateness_ratio"]["train", "3"] == 0.5
    assert told["paceline_rank_flagged"] == {("train", "3", "straggler", "compute"): 1.0}
    assert told["paceline_job_slowdown_ratio"][("train",)] == 1.25
    assert "paceline_job_gamma_ratio" not in told
    assert told["paceline_ingest_frames_total"][()] == 7.0
    assert told["paceline_dropped_total"]["ingest", "corrupt"] == 2.0


def test_the_step_histogram_is_cumulative() -> None:
    told = parsed(4, 512)
    buckets = told["paceline_step_seconds_bucket"]
    assert buckets == {("train", "0.1"): 4.0, ("train", "1.0"): 9.0, ("train", "+Inf"): 10.0}
    assert told["paceline_step_seconds_count"][("train",)] == 10.0


def test_beyond_the_cap_the_costliest_ranks_have_series() -> None:
    told = parsed(100, 5)
    ranks = {labels[1] for labels in told["paceline_rank_wait_seconds_total"]}
    assert ranks == {"95", "96", "97", "98", "99"}


def test_durations_are_told_as_a_histogram() -> None:
    durations = Histogram((0.1, 1.0))
    for duration_s in (0.05, 0.1, 0.5, 7.0):
        durations.add(duration_s)
    shown = Sample(histograms={metrics.VERDICT_LAG_SECONDS: durations.sample()})
    text = render(lambda: shown, 1).decode()
    assert 'paceline_verdict_lag_seconds_bucket{le="0.1"} 2.0' in text
    assert 'paceline_verdict_lag_seconds_bucket{le="1.0"} 3.0' in text
    assert 'paceline_verdict_lag_seconds_bucket{le="+Inf"} 4.0' in text
    assert "paceline_verdict_lag_seconds_sum 7.65" in text
    assert "paceline_ingest_commit_duration_seconds_bucket" not in text
