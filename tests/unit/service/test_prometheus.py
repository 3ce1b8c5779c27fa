from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from paceline import metrics
from paceline_service.export.exposition import OPENMETRICS, TEXT, content_type
from paceline_service.export.histogram import Histogram
from paceline_service.export.job_book import JobBook
from paceline_service.export.job_series import JobSample
from paceline_service.export.prometheus import PacelineCollector, Sample, render
from tests.unit.service.job_sample import job

Told = dict[str, dict[tuple[str, ...], float]]
HARD_NAMES = 'a "quoted" \\ back\nslash'


def sample(*jobs: JobSample, rank_series: int = 512) -> Sample:
    return Sample(
        jobs=JobBook(rank_series).rows((0, one) for one in jobs),
        values={metrics.INGEST_FRAMES: 7},
        labelled={metrics.DROPPED: {("ingest", "corrupt"): 2.0}},
    )


def read(shown: Sample) -> Told:
    values: Told = {}
    for family in parse_text(render(lambda: shown, TEXT).decode()):
        for item in family.samples:
            values.setdefault(item.name, {})[tuple(item.labels.values())] = item.value
    return values


def test_jobs_nodes_and_ranks_are_told_in_base_units() -> None:
    told = read(sample(job()))
    assert told["paceline_rank_self_seconds_total"]["train", "2"] == 1.0
    assert told["paceline_rank_wasted_gpu_seconds_total"]["train", "3"] == 3.0
    assert told["paceline_rank_exposed_comm_seconds_total"]["train", "0"] == 0.2
    assert told["paceline_rank_lateness_ratio"]["train", "3"] == 0.5
    assert told["paceline_rank_flagged"] == {("train", "3", "straggler", "compute"): 1.0}
    assert told["paceline_rank_info"]["train", "3", "node-1"] == 1.0
    assert told["paceline_node_wasted_gpu_seconds_total"] == {
        ("train", "node-0"): 1.0, ("train", "node-1"): 5.0,
    }  # fmt: skip
    assert told["paceline_node_flagged"] == {("train", "node-1", "straggler", "compute"): 1.0}
    assert told["paceline_node_recoverable_ratio"] == {("train", "node-1"): 0.2}
    assert told["paceline_link_flagged"] == {("train", "3", "0"): 1.0}
    assert told["paceline_job_wasted_gpu_seconds_total"][("train",)] == 6.0
    assert told["paceline_job_exposed_comm_seconds_total"][("train",)] == 0.8
    assert told["paceline_job_slowdown_ratio"][("train",)] == 1.25
    assert told["paceline_job_recoverable_ratio"][("train",)] == 0.25
    assert told["paceline_job_verdict"] == {("train", "straggler"): 1.0}
    assert told["paceline_job_finding"] == {("train", "straggler", "compute"): 1.0}
    assert told["paceline_job_finding_wasted_gpu_seconds_total"] == {
        ("train", "straggler", "compute"): 3.5
    }
    assert "paceline_job_gamma_ratio" not in told
    assert told["paceline_ingest_frames_total"][()] == 7.0
    assert told["paceline_dropped_total"]["ingest", "corrupt"] == 2.0


def test_own_time_is_told_by_the_phases_that_the_job_knows() -> None:
    phase_ns = np.zeros((4, 7), dtype=np.int64)
    phase_ns[:, 3] = 5 * 10**8
    told = read(sample(job(phase_ns=phase_ns)))["paceline_rank_phase_seconds_total"]
    assert told == {("train", str(rank), "backward"): 0.5 for rank in range(4)}


def test_the_step_histogram_is_cumulative() -> None:
    told = read(sample(job()))
    buckets = told["paceline_step_seconds_bucket"]
    assert buckets == {("train", "0.1"): 4.0, ("train", "1.0"): 9.0, ("train", "+Inf"): 10.0}
    assert told["paceline_step_seconds_count"][("train",)] == 10.0


def test_a_bucket_of_step_times_names_a_step_as_its_example_in_openmetrics() -> None:
    text = render(lambda: sample(job()), OPENMETRICS).decode()
    line = 'paceline_step_seconds_bucket{job="train",le="1.0"} 9.0 # {step="7",rank="3"} 0.5 1.5'
    assert line in text.splitlines()
    assert " # {" not in render(lambda: sample(job()), TEXT).decode()


def test_durations_are_told_as_a_histogram() -> None:
    durations = Histogram((0.1, 1.0))
    for duration_s in (0.05, 0.1, 0.5, 7.0):
        durations.add(duration_s)
    shown = Sample(histograms={metrics.VERDICT_LAG_SECONDS: durations.sample()})
    text = render(lambda: shown, TEXT).decode()
    assert 'paceline_verdict_lag_seconds_bucket{le="0.1"} 2.0' in text
    assert 'paceline_verdict_lag_seconds_bucket{le="1.0"} 3.0' in text
    assert 'paceline_verdict_lag_seconds_bucket{le="+Inf"} 4.0' in text
    assert "paceline_verdict_lag_seconds_sum 7.65" in text
    assert "paceline_ingest_commit_duration_seconds_bucket" not in text


def comparable(families: Any) -> list[str]:
    """Return what families say, whatever the order of their labels; NaN is not equal to itself."""
    told = []
    for f in families:
        told.append(f"{f.name} {f.type} {f.documentation}")
        for s in f.samples:
            one = s.exemplar
            example = (sorted(one.labels.items()), one.value, one.timestamp) if one else None
            told.append(f"{s.name} {sorted(s.labels.items())} {s.value} {example}")
    return told


@pytest.mark.parametrize("form", [TEXT, OPENMETRICS])
def test_the_text_says_what_the_library_would_write(form: str) -> None:
    shown = sample(job(), job(job=HARD_NAMES))
    shown.jobs.values[metrics.JOB_GAMMA_RATIO] = {
        ("nan",): float("nan"), ("inf",): float("inf"), ("-inf",): float("-inf"),
        ("large",): 1.5e22, ("small",): 5e-324,
    }  # fmt: skip
    registry = CollectorRegistry()
    registry.register(PacelineCollector(lambda: shown))
    mine = render(lambda: shown, form).decode()
    if form == TEXT:
        theirs = generate_latest(registry).decode()
        same = comparable(parse_text(mine)), comparable(parse_text(theirs))
    else:
        theirs = openmetrics.generate_latest(registry).decode()
        same = comparable(parse_open(mine)), comparable(parse_open(theirs))
    assert HARD_NAMES.split()[0] in mine
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
    ],
)
def test_who_asks_for_openmetrics_is_given_it(accept: str, form: str) -> None:
    assert content_type(accept) == form


def test_every_family_has_a_help_and_a_kind_also_without_samples() -> None:
    families: list[Family] = list(PacelineCollector(Sample).collect())
    assert [f.name for f in families] == [
        metric.name.removesuffix("_total") for metric in metrics.ALL
    ]
    assert all(f.documentation for f in families)
