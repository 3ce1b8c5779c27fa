from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs.overlap import (
    Overlap,
    bucket_sizes,
    sized_buckets,
    timeline,
)

EXAMPLE = Overlap(backward_s=0.200, latency_s=0.0, transfer_s=0.060)
"""200 ms of backward and a 60 ms all-reduce."""


def test_naive_waits_for_the_whole_all_reduce_after_the_backward_pass() -> None:
    assert EXAMPLE.naive_s == pytest.approx(0.260)
    assert EXAMPLE.bucketed_s(1) == pytest.approx(0.260)


@pytest.mark.parametrize(("buckets", "ms"), [(2, 230), (4, 215), (10, 206), (60, 201)])
def test_without_latency_only_the_last_bucket_cannot_be_hidden(buckets: int, ms: float) -> None:
    assert EXAMPLE.bucketed_s(buckets) == pytest.approx(ms / 1e3)
    assert EXAMPLE.exposed_s(buckets) == pytest.approx(EXAMPLE.residual_s(buckets))


def test_nothing_is_faster_than_the_longer_of_backward_and_transfer() -> None:
    assert EXAMPLE.bound_s == 0.200
    assert EXAMPLE.bucketed_s(EXAMPLE.best_buckets()) == pytest.approx(0.200, rel=1e-6)
    assert Overlap(backward_s=0.05, latency_s=0.0, transfer_s=0.06).bound_s == 0.06


@pytest.mark.parametrize("backward_s", [0.200, 0.062, 0.060, 0.030])
@pytest.mark.parametrize("latency_s", [0.0001, 0.001, 0.004, 0.5])
def test_the_best_number_of_buckets_is_found_without_trying_all(
    backward_s: float, latency_s: float
) -> None:
    overlap = Overlap(backward_s=backward_s, latency_s=latency_s, transfer_s=0.060)
    tried = min(range(1, 3000), key=overlap.bucketed_s)
    best = overlap.best_buckets()
    assert overlap.bucketed_s(best) == pytest.approx(overlap.bucketed_s(tried), rel=1e-12)


def test_with_latency_the_least_exposed_time_is_that_of_the_closed_form() -> None:
    overlap = Overlap(backward_s=0.200, latency_s=0.001, transfer_s=0.060)
    assert overlap.best_buckets() == 140
    assert overlap.exposed_s(140) == pytest.approx(0.001 * 0.200 / 0.140)


@pytest.mark.parametrize("buckets", [1, 3, 37, 140, 400])
@pytest.mark.parametrize("backward_s", [0.200, 0.050])
def test_the_timeline_of_equal_buckets_ends_when_the_closed_form_says(
    buckets: int, backward_s: float
) -> None:
    overlap = Overlap(backward_s=backward_s, latency_s=0.001, transfer_s=0.060)
    assert sized_buckets(overlap, [1] * buckets)[-1].end_s == pytest.approx(
        overlap.bucketed_s(buckets)
    )


def test_a_bucket_waits_for_its_gradients_and_for_the_bucket_before_it() -> None:
    first, second = timeline([1.0, 2.0], [3.0, 1.0])
    assert (first.begin_s, first.end_s) == (1.0, 4.0)
    assert (second.begin_s, second.end_s) == (4.0, 5.0)


def test_what_is_left_over_is_the_last_and_smallest_bucket() -> None:
    assert bucket_sizes(100, 30) == [30, 30, 30, 10]
    assert bucket_sizes(100, 30, first_bytes=5) == [5, 30, 30, 30, 5]
    assert bucket_sizes(100, 1000) == [100]
    small_last = sized_buckets(EXAMPLE, bucket_sizes(100, 30))
    assert small_last[-1].end_s == pytest.approx(0.200 + 0.060 * 0.1)


def test_the_hidden_share_is_what_a_trace_would_show() -> None:
    assert EXAMPLE.hidden_ratio(1) == 0
    assert EXAMPLE.hidden_ratio(10) == pytest.approx(0.9)


def test_times_and_buckets_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--backward is 0"):
        Overlap(backward_s=0, latency_s=0, transfer_s=1)
    with pytest.raises(ConfigError, match="--buckets is 0"):
        EXAMPLE.bucketed_s(0)
    with pytest.raises(ConfigError, match=r"makes .* buckets"):
        bucket_sizes(10**12, 1)
