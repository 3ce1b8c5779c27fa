from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs.gamma import (
    Load,
    Model,
    break_even_local_batch,
    break_even_ranks,
    gamma,
    latency_parameters,
)
from paceline_service.analysis.costs.scaling import fastest_ranks, point, speedup_limit

SEVEN_BILLION = Model(
    parameters=7e9, bytes_per_parameter=2, bytes_per_s=600e9, flops_per_s=312e12
)  # fmt: skip
SLOW_LINK = Model(parameters=2e8, bytes_per_parameter=4, bytes_per_s=10e9)


@pytest.mark.parametrize(
    ("ranks", "compute_ms", "all_reduce_ms", "ratio"),
    [
        (1, 275.69, 0, 0),
        (4, 68.92, 35.00, 0.508),
        (16, 17.23, 43.75, 2.539),
        (64, 4.31, 45.94, 10.664),
        (256, 1.08, 46.48, 43.164),
        (1024, 0.27, 46.62, 173.164),
    ],
)
def test_seven_billion_parameters_at_a_global_batch_of_2048(
    ranks: int, compute_ms: float, all_reduce_ms: float, ratio: float
) -> None:
    step = point(SEVEN_BILLION, Load("global", 2048), ranks)
    assert round(step.compute_s * 1e3, 2) == compute_ms
    assert round(step.all_reduce_s * 1e3, 2) == all_reduce_ms
    assert round(step.gamma, 3) == ratio


@pytest.mark.parametrize("parameters", [1e8, 1e9, 7e9, 1.3e10, 7e10])
def test_gamma_does_not_depend_on_the_size_of_the_model(parameters: float) -> None:
    model = Model(
        parameters=parameters, bytes_per_parameter=2, bytes_per_s=600e9, flops_per_s=312e12
    )
    assert round(gamma(model, Load("local", 32), 64), 2) == 10.66


@pytest.mark.parametrize(("ranks", "step_ms", "share"), [(8, 220, 64), (64, 237.5, 66)])
def test_two_hundred_million_parameters_over_ten_gigabytes_a_second(
    ranks: int, step_ms: float, share: float
) -> None:
    step = point(SLOW_LINK, Load("time", 0.080), ranks)
    assert step.step_s * 1e3 == pytest.approx(step_ms, rel=1e-12)
    assert round(step.communication_ratio * 100) == share


def test_communication_first_exceeds_80_ms_of_compute_at_three_ranks() -> None:
    load = Load("time", 0.080)
    assert break_even_ranks(SLOW_LINK, load) == 3
    assert gamma(SLOW_LINK, load, 2) == pytest.approx(1, rel=1e-12)  # even, not over


def test_break_even_of_a_fixed_global_batch_is_where_gamma_passes_one() -> None:
    load = Load("global", 2048)
    found = break_even_ranks(SEVEN_BILLION, load)
    assert found == 7  # 1 + 3 * 2048 * 600e9 / (2 * 312e12) = 6.9
    assert gamma(SEVEN_BILLION, load, 6) < 1 < gamma(SEVEN_BILLION, load, 7)


def test_no_number_of_ranks_is_communication_bound_where_the_local_batch_is_large_enough() -> None:
    even = break_even_local_batch(SEVEN_BILLION, 64)
    assert gamma(SEVEN_BILLION, Load("local", even), 64) == pytest.approx(1)
    assert break_even_ranks(SEVEN_BILLION, Load("local", 2 * even)) is None


def test_a_fixed_batch_never_runs_faster_than_its_all_reduce() -> None:
    load = Load("global", 2048)
    assert fastest_ranks(SEVEN_BILLION, load) is None  # without latency more is a little better
    limit = speedup_limit(SEVEN_BILLION, load)
    assert limit == pytest.approx(275.6923 / 46.6667, rel=1e-5)
    assert 0.999 * limit < point(SEVEN_BILLION, load, 2**20).speedup < limit


def test_with_latency_there_is_a_fastest_number_of_ranks() -> None:
    model = Model(
        parameters=7e9, bytes_per_parameter=2, bytes_per_s=600e9, flops_per_s=312e12, alpha_s=2e-5
    )
    load = Load("global", 2048)
    best = fastest_ranks(model, load)
    assert best is not None
    steps = {ranks: point(model, load, ranks).step_s for ranks in range(1, 400)}
    assert best == min(steps, key=lambda ranks: steps[ranks])


def test_no_more_ranks_are_told_than_the_batch_has_samples() -> None:
    model = Model(
        parameters=7e9, bytes_per_parameter=2, bytes_per_s=600e9, flops_per_s=312e12, alpha_s=1e-9
    )
    assert fastest_ranks(model, Load("global", 2048)) == 2048
    best = fastest_ranks(model, Load("shared", 2048 * 1.346e-4))
    assert best is not None
    assert best > 2048


def test_a_batch_that_one_rank_computes_sooner_than_it_is_sent_wants_one_rank() -> None:
    assert fastest_ranks(SEVEN_BILLION, Load("global", 256)) == 1


def test_below_some_size_the_all_reduce_is_mostly_latency() -> None:
    model = Model(parameters=1e9, bytes_per_parameter=2, bytes_per_s=25e9, alpha_s=5e-6)
    even = latency_parameters(model, 64)
    assert even == pytest.approx(64 * 5e-6 * 25e9 / 2)
    at = Model(parameters=even, bytes_per_parameter=2, bytes_per_s=25e9, alpha_s=5e-6)
    assert at.all_reduce_s(64) == pytest.approx(2 * 2 * 63 * 5e-6)


def test_hiding_behind_the_backward_pass_stops_where_it_is_shorter_than_the_transfer() -> None:
    few, many = (point(SEVEN_BILLION, Load("global", 2048), ranks) for ranks in (4, 64))
    assert few.hidden_step_s == few.compute_s
    assert many.hidden_step_s == pytest.approx(many.all_reduce_s + many.compute_s / 3)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_values_that_cannot_be_are_refused_by_name(value: float) -> None:
    with pytest.raises(ConfigError, match=r"bytes_per_s is .* bytes per second"):
        Model(parameters=7e9, bytes_per_parameter=2, bytes_per_s=value)
    with pytest.raises(ConfigError, match=r"parameters is .*"):
        Model(parameters=value, bytes_per_parameter=2, bytes_per_s=1e9)
    with pytest.raises(ConfigError, match=r"global load is .* samples"):
        Load("global", value)
