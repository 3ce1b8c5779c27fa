from __future__ import annotations

import contextlib
import math
import random

import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units, words

PARSERS = (
    units.parse_bandwidth,
    units.parse_bytes,
    units.parse_count,
    units.parse_duration_s,
    units.parse_flops,
)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("400 Gbit/s", 50e9),
        ("50GB/s", 50e9),
        ("50GBps", 50e9),
        ("50GiB/s", 50 * 2**30),
        ("1,000 MB/s", 1e9),
        ("600e9B/s", 600e9),
    ],
)
def test_bits_and_bytes_are_both_understood(text: str, bytes_per_s: float) -> None:
    assert units.parse_bandwidth(text, "--bandwidth") == bytes_per_s


@pytest.mark.parametrize("text", ["400", "600e9", "400gb/s", "25GB", "fast", "-3GB/s", "0GB/s"])
def test_a_bandwidth_that_may_be_bits_or_bytes_or_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--bandwidth .*(GB/s|bytes per second)"):
        units.parse_bandwidth(text, "--bandwidth")


@pytest.mark.parametrize("text", ["inf", "infinity", "nan", "1e400GB/s"])
def test_an_infinite_bandwidth_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--bandwidth is .*not finite: give a bandwidth"):
        units.parse_bandwidth(text, "--bandwidth")


def test_a_bare_bandwidth_is_taken_only_where_it_can_be_nothing_but_bytes() -> None:
    assert units.parse_bandwidth("600e9", "--b", bare="bytes/s") == 600e9
    with pytest.raises(ConfigError, match="bits or bytes"):
        units.parse_bandwidth("400", "--b", bare="bytes/s")


def test_a_number_with_a_monstrous_exponent_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        units.parse_bytes("1e-999999999", "--bytes")


def test_sizes_are_bytes_and_bits_are_told_apart() -> None:
    assert units.parse_bytes("25MB", "--bytes") == 25_000_000
    assert units.parse_bytes("25MiB", "--bytes") == 26_214_400
    assert units.parse_bytes("4096", "--bytes") == 4096
    with pytest.raises(ConfigError, match="--bytes is '25Mb', which is bits"):
        units.parse_bytes("25Mb", "--bytes")
    with pytest.raises(ConfigError, match="--bytes is 0: give a whole number of bytes"):
        units.parse_bytes("0", "--bytes")


def test_counts_are_said_as_people_say_them() -> None:
    assert units.parse_count("7B", "--parameters") == units.parse_count("7e9", "--parameters")
    assert units.parse_count("6.7B", "--parameters") == 6_700_000_000
    with pytest.raises(ConfigError, match=r"--ranks is 2\.5: give a whole number of ranks"):
        units.parse_count("2.5", "--ranks", unit="ranks")


def test_times_need_a_unit() -> None:
    assert units.parse_duration_s("80ms", "--compute") == 0.08
    assert units.parse_duration_s("0", "--latency", zero=True) == 0
    with pytest.raises(ConfigError, match="--latency is '5': it has no unit"):
        units.parse_duration_s("5", "--latency")


def test_a_speed_without_its_prefix_is_refused() -> None:
    assert units.parse_flops("312TFLOP/s", "--flops") == units.parse_flops("312e12", "--flops")
    with pytest.raises(ConfigError, match=r"--flops is '312'.*312T"):
        units.parse_flops("312", "--flops")


def test_a_rank_alone_is_no_group() -> None:
    with pytest.raises(ConfigError, match="--ranks is 1: a rank alone sends nothing"):
        units.group_of(1)
    with pytest.raises(ConfigError, match="--ranks is 0: give a whole number of ranks, at least 2"):
        units.group_of(0)


def test_a_bandwidth_is_shown_back_in_bits_and_bytes() -> None:
    assert words.bandwidth_of(50e9) == "50 GB/s (400 Gb/s)"
    assert [words.duration_of(t) for t in (0, 5e-6, 0.04375, 0.27569)] == [
        "0 s",
        "5 us",
        "43.75 ms",
        "275.7 ms",
    ]
    assert [words.count_of(n) for n in (7e9, 66e6, 2048)] == ["7B", "66M", "2048"]


def test_any_text_is_a_finite_positive_number_or_is_refused() -> None:
    draw = random.Random(7)
    for _ in range(4000):
        text = "".join(
            draw.choice("0123459.e+-_,kKMGTiBbps/ unmx") for _ in range(draw.randint(0, 9))
        )
        for read in PARSERS:
            with contextlib.suppress(ConfigError):
                assert 0 < read(text, "--argument") < math.inf, text
