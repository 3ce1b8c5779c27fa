from __future__ import annotations

from paceline import telemetry as names
from paceline.sidecar.telemetry.buffer import MAX_SAMPLES, MAX_VALUES, TelemetryBuffer
from paceline.telemetry import REFRESH_NS

S = 1_000_000_000


def test_gauges_travel_always_counters_and_facts_when_they_change_or_after_a_minute() -> None:
    buffer = TelemetryBuffer()
    values = {names.POWER: 5.0, names.ECC_CORRECTED: 1, names.GPU_NAME: "x"}
    buffer.add(0, values)
    buffer.add(S, values)
    buffer.add(2 * S, {**values, names.ECC_CORRECTED: 2})
    buffer.add(REFRESH_NS, values)
    first, second, third, fourth = (sample.values for sample in buffer.give())
    assert first == fourth == values
    assert second == {names.POWER: 5.0}
    assert third == {names.POWER: 5.0, names.ECC_CORRECTED: 2}


def test_a_sample_without_news_is_none() -> None:
    buffer = TelemetryBuffer()
    for second in range(10):
        buffer.add(second * S, {names.NIC_UP + "/eth0": 1})
    assert len(buffer.give()) == 1


def test_two_equal_events_are_two() -> None:
    buffer = TelemetryBuffer()
    buffer.add(0, {names.XID: 79})
    buffer.add(S, {names.XID: 79})
    assert len(buffer.give()) == 2


def test_what_was_given_goes_when_it_is_stored_and_what_came_later_stays() -> None:
    buffer = TelemetryBuffer()
    buffer.add(0, {names.POWER: 1.0})
    assert len(buffer.give()) == len(buffer.give()) == 1
    buffer.add(S, {names.POWER: 2.0})
    buffer.taken()
    assert [sample.time_ns for sample in buffer.give()] == [S]


def test_what_has_no_room_is_counted_and_what_was_lost_with_it_is_said_again() -> None:
    buffer = TelemetryBuffer()
    for number in range(MAX_SAMPLES + 10):
        buffer.add(number, {names.POWER: 1.0, names.GPU_NAME: "x"})
    assert len(buffer.give()) == MAX_SAMPLES
    assert buffer.dropped == 10
    assert any(names.GPU_NAME in sample.values for sample in buffer.give())


def test_large_samples_are_bounded_too() -> None:
    buffer = TelemetryBuffer()
    for number in range(100):
        buffer.add(number, {f"{names.NIC_RX_BYTES}/card{n}": number for n in range(1000)})
    assert sum(len(sample.values) for sample in buffer.give()) <= MAX_VALUES
    assert buffer.dropped == 80
