"""What compressed gradients would change, beside ``paceline plan gamma``."""

from __future__ import annotations

import math

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.alpha_beta import Link, Machine
from paceline_service.analysis.costs.compression import Compression, least_ratio, least_speed
from paceline_service.analysis.costs.gamma import Model
from paceline_service.analysis.costs.scaling import Point
from paceline_service.analysis.costs.words import bandwidth_of, digits, times_column
from paceline_service.commands.answer import Table
from paceline_service.export.units import format_times

_SAME = 5e-4
"""A step that changes by less is told as the same."""


def compression_of(ratio: float | None, speed: str | None, *, gathers: bool) -> Compression | None:
    """Return what is asked for, None where nothing is.

    Raises:
        ConfigError: the ratio is not above 1, or its companions come without it.
    """
    if ratio is None:
        if speed is not None or gathers:
            given = "--compress-gathers" if speed is None else "--compress-speed"
            raise ConfigError(
                f"{given} is given without --compress-by: give how many times fewer bytes, as 4"
            )
        return None
    if not ratio > 1 or math.isinf(ratio):
        raise ConfigError(
            f"--compress-by is {ratio:g}: give how many times fewer bytes are sent, above 1"
        )
    cost = 0.0 if speed is None else 1 / units.parse_bandwidth(speed, "--compress-speed")
    return Compression(ratio=ratio, s_per_byte=cost, summable=not gathers)


def compression_table(
    model: Model, compression: Compression, points: list[Point]
) -> tuple[Table, dict[str, object], list[str]]:
    """Return the table, what JSON has of it, and what it means."""
    link = Link(alpha_s=model.alpha_s, bytes_per_s=model.bytes_per_s)
    grouped = [row for row in points if row.ranks > 1]
    machines = [Machine(ranks=row.ranks, link=link) for row in grouped]
    took = [compression.cost(machine).seconds(model.gradient_bytes) for machine in machines]
    name, plain = times_column([row.all_reduce_s for row in grouped])
    other, packed = times_column(took)
    gain = [
        row.step_s / (row.compute_s + packed_s) for row, packed_s in zip(grouped, took, strict=True)
    ]
    rows = [
        [f"{row.ranks:,}", plain[place], packed[place], f"{took[place] / row.compute_s:,.3f}",
         format_times(gain[place])]
        for place, row in enumerate(grouped)
    ]  # fmt: skip
    least = [
        least_ratio(
            machine, compression.s_per_byte, model.gradient_bytes, summable=compression.summable
        )
        for machine in machines
    ]
    table = Table(
        title=f"Gradients compressed {digits(compression.ratio)} times",
        heads=["ranks", f"all-reduce {name}", f"compressed {other}", "gamma", "step faster"],
        rows=rows,
        marked=frozenset(place for place, value in enumerate(gain) if value < 1),
    )
    values = {
        "ratio": compression.ratio,
        "encode_s_per_byte": compression.s_per_byte,
        "summable": compression.summable,
        "rows": [
            {"ranks": row.ranks, "all_reduce_s": row.all_reduce_s, "compressed_s": packed_s,
             "step_speedup": speedup, "least_ratio": None if math.isinf(ratio) else ratio}
            for row, packed_s, speedup, ratio in zip(grouped, took, gain, least, strict=True)
        ],
    }  # fmt: skip
    return table, values, [_meaning(compression, machines[-1], gain[-1], least[-1])]


def _meaning(compression: Compression, machine: Machine, gain: float, least: float) -> str:
    if abs(gain - 1) < _SAME:
        told = f"Compression hardly changes a step at {machine.ranks:,} ranks. "
    elif gain > 1:
        told = f"Compression makes a step at {machine.ranks:,} ranks {format_times(gain)} as fast. "
    else:
        told = f"Compression makes a step at {machine.ranks:,} ranks slower: {format_times(gain)}. "
    if math.isinf(least):
        pays = "Encoding takes longer than sending: no ratio pays here."
    elif compression.summable:
        speed = bandwidth_of(least_speed(machine, compression.ratio))
        pays = (
            f"It pays from a ratio of {digits(least)} on, and if at least {speed} of gradients "
            "are encoded and decoded."
            if compression.s_per_byte
            else "Encoding is taken to cost nothing (--compress-speed): it pays if at least "
            f"{speed} of gradients are encoded and decoded."
        )
    else:
        pays = (
            f"It pays from a ratio of {digits(least)} on: what cannot be summed is gathered, so "
            "every rank receives the parts of all."
        )
    return told + pays
