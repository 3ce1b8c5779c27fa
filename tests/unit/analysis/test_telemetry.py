from __future__ import annotations

import numpy as np

from paceline import telemetry as names
from paceline.event_log import LogTelemetry
from paceline_service.analysis.causes.series import MAX_GAUGE_AGE_NS, TelemetryTable

S = 1_000_000_000


def table() -> TelemetryTable:
    return TelemetryTable(
        [
            LogTelemetry(rank=0, time_ns=30 * S, values={names.POWER: 300.0}),
            LogTelemetry(rank=0, time_ns=10 * S, values={names.POWER: 100.0, names.XID: 79,
                                                         names.ECC_CORRECTED: 5}),
            LogTelemetry(rank=1, time_ns=20 * S, values={names.THROTTLE: ["hw_slowdown"]}),
        ]
    )  # fmt: skip


def test_samples_become_arrays_by_rank_and_name_in_the_order_of_time() -> None:
    series = table().series(0, names.POWER)
    assert series is not None
    assert series.times_ns.tolist() == [10 * S, 30 * S]
    assert series.values.tolist() == [100.0, 300.0]
    assert table().series(1, names.POWER) is None
    assert table().names == sorted([(0, names.POWER), (0, names.XID), (0, names.ECC_CORRECTED)])
    assert table().texts == {(1, names.THROTTLE): [(20 * S, ["hw_slowdown"])]}


def test_the_value_of_a_moment_is_the_newest_before_it_unless_it_is_old() -> None:
    times_ns = np.array([9 * S, 10 * S, 20 * S, 29 * S, 40 * S, 30 * S + MAX_GAUGE_AGE_NS + 1])
    power = table().at(0, names.POWER, times_ns)
    np.testing.assert_array_equal(power, [np.nan, 100, 100, np.nan, 300, np.nan])
    errors = table().at(0, names.ECC_CORRECTED, np.array([11 * S, 100 * S, 131 * S]))
    np.testing.assert_array_equal(errors, [5, 5, np.nan])
    assert np.isnan(table().at(7, names.POWER, times_ns)).all()
