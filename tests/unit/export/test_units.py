from __future__ import annotations

import pytest

from paceline_service.export.units import (
    format_confidence,
    format_gpu_s,
    format_ns,
    format_ratio,
    format_times,
)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (12_340_000, "12.3 ms"),
        (7_199_000_000_000, "7,199 s"), (7_200_000_000_000, "2.0 h"),
    ],
)  # fmt: skip
def test_a_duration_gets_the_unit_that_fits(time_ns: int, text: str) -> None:
    assert format_ns(time_ns) == text


@pytest.mark.parametrize(
    ("gpu_s", "text"), [(0.012, "0.012 GPU-s"), (96.3, "96.3 GPU-s"), (9000.0, "2.5 GPU-h")]
)
def test_gpu_seconds_become_hours_when_there_are_many(gpu_s: float, text: str) -> None:
    assert format_gpu_s(gpu_s) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.0, "0.0 %"), (0.0002, "0.02 %"), (0.123, "12 %")])
def test_a_small_share_keeps_its_digits(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


def test_a_confidence_is_never_rounded_up_to_certainty() -> None:
    assert format_confidence(0.99999999) == "over 99.99 %"
    assert format_confidence(0.9987) == "99.87 %"


def test_a_factor_close_to_one_keeps_its_digits() -> None:
    assert (format_times(1.004), format_times(1.416), format_times(12.3)) == (
        "1.004x", "1.42x", "12x",
    )  # fmt: skip
