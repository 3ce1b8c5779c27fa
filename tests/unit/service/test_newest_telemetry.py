from __future__ import annotations

import math

from paceline import telemetry as names
from paceline.wire.frames import Sample
from paceline_service.jobs.newest import MAX_NAMES, STALE_NS, NewestTelemetry, cleaned


def test_what_a_sample_leaves_out_is_kept_and_old_gauges_are_not() -> None:
    newest = NewestTelemetry()
    newest.add([Sample(0, {names.POWER: 5.0, names.GPU_NAME: "x", names.ECC_CORRECTED: 1})])
    newest.add([Sample(10, {names.POWER: 6.0})])
    before = newest.values()
    assert before == {names.POWER: 6.0, names.GPU_NAME: "x", names.ECC_CORRECTED: 1}
    newest.add([Sample(11 + STALE_NS, {names.ECC_CORRECTED: 2})])
    assert newest.values() == {names.GPU_NAME: "x", names.ECC_CORRECTED: 2}
    assert before[names.POWER] == 6.0, "what was published does not change"


def test_samples_out_of_order_do_not_bring_back_old_values() -> None:
    newest = NewestTelemetry()
    newest.add([Sample(20, {names.POWER: 2.0}), Sample(10, {names.POWER: 1.0})])
    assert (newest.time_ns, newest.values()) == (20, {names.POWER: 2.0})


def test_hostile_samples_are_bounded() -> None:
    newest = NewestTelemetry()
    newest.add([Sample(n, {f"name-{n}": 1}) for n in range(MAX_NAMES + 100)])
    assert len(newest.values()) == MAX_NAMES
    assert cleaned([Sample(-1, {"a": 1}), Sample(1, {"b": math.nan}), Sample(2, {"c": 1})]) == [
        (2, {"c": 1})
    ]
