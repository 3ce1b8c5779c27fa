"""What the lab refuses, and what it makes of what it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline_service.lab.options import LabOptions, lab_options, swept_buckets


def asked(tmp_path: Path, **changed: Any) -> LabOptions:
    usual = {
        "size": "small", "ranks": 2, "steps": None, "strategy": "ddp", "bucket": None, "sweep": "",
        "fault": "none", "slow_rank": None, "fault_ms": 40.0, "log": tmp_path / "log.jsonl",
    }  # fmt: skip
    return lab_options(**{**usual, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ranks": 1}, "a rank alone sends nothing"),
        ({"ranks": 0}, "--ranks"),
        ({"ranks": 1000}, "2 to 64"),
        ({"steps": 0}, "--steps is 0"),
        ({"steps": 4}, "at least 5"),
        ({"bucket": "0"}, "--bucket is 0"),
        ({"bucket": "12"}, "1024 or more"),
        ({"bucket": "8Mb"}, "is bits"),
        ({"bucket": "-1MiB"}, "--bucket"),
        ({"bucket": "1MiB", "sweep": "bucket"}, "--bucket is for DDP alone"),
        ({"bucket": "1MiB", "strategy": "zero3"}, "--bucket is for DDP alone"),
        ({"slow_rank": 2}, "ranks are 0 to 1"),
        ({"slow_rank": 1}, "--slow-rank is for --fault alone"),
        ({"sweep": "bucket", "strategy": "zero3"}, "--strategy zero3 is not for --sweep bucket"),
        ({"html": Path("/nowhere/at/all.html")}, "--html .* cannot be written"),
        ({"png": Path("/")}, "--png / cannot be written"),
        ({"fault_ms": 0.0}, "--fault-ms is 0"),
        ({"fault_ms": float("inf")}, "--fault-ms"),
        ({"log": Path("/nowhere/at/all.jsonl")}, "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused_with_its_argument_named(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(tmp_path, **changed)


def test_a_run_is_one_stretch_and_its_last_rank_would_be_slow(tmp_path: Path) -> None:
    options = asked(tmp_path, ranks=3)
    assert [one.name for one in options.trained] == ["ddp-1MiB"]
    assert (options.steps, options.slow_rank, options.warm_up_steps) == (50, 2, 3)


def test_with_a_fault_the_steps_before_it_do_not_count(tmp_path: Path) -> None:
    options = asked(tmp_path, fault="backward", steps=90)
    assert options.warm_up_steps == 30


def test_a_sweep_of_buckets_goes_up_to_one_that_holds_all_gradients(tmp_path: Path) -> None:
    options = asked(tmp_path, sweep="bucket")
    assert [one.name.removeprefix("ddp-") for one in options.trained] == [
        "64KiB", "256KiB", "1MiB", "4MiB", "16MiB",
    ]  # fmt: skip
    assert options.steps == 20
    gradients = 4 * 2_217_028
    assert swept_buckets(gradients)[-1] >= gradients > swept_buckets(gradients)[-2]


def test_a_sweep_of_sharding_trains_each_strategy(tmp_path: Path) -> None:
    options = asked(tmp_path, sweep="sharding")
    assert [one.strategy for one in options.trained] == ["ddp", "zero2", "zero3"]
