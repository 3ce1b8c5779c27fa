from __future__ import annotations

import math
import re
from pathlib import Path

from paceline import telemetry as names
from paceline.telemetry import CATALOGUE, Kind, clean, instance, kind_of

UNITS = (
    "_total", "_hz", "_c", "_w", "_ratio", "_bytes", "_s", "_tasks", "_cores", "_lanes", "_pages",
)  # fmt: skip


def test_every_name_is_documented_with_its_kind_and_source(repository: Path) -> None:
    page = (repository / "docs/telemetry.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*)$", page, re.MULTILINE))
    assert set(rows) == set(CATALOGUE)
    for name, known in CATALOGUE.items():
        kind, source, *_ = rows[name].split(" | ")
        assert (kind, source.strip("`")) == (known.kind.value, known.source), name


def test_names_of_gauges_and_counters_end_in_their_unit() -> None:
    exceptions = {names.THROTTLE, names.GPU_LOST, names.PCIE_GEN}
    for name, known in CATALOGUE.items():
        if known.kind in (Kind.GAUGE, Kind.COUNTER) and name not in exceptions:
            assert name.endswith(UNITS), name
        assert name.endswith("_total") == (known.kind is Kind.COUNTER), name


def test_an_instance_and_a_name_of_another_version_have_a_kind() -> None:
    assert kind_of(instance(names.NIC_RX_BYTES, "eth0")) is Kind.COUNTER
    assert kind_of("of_tomorrow_total/x") is Kind.COUNTER
    assert kind_of("of_tomorrow_w") is Kind.GAUGE


def test_what_no_frame_can_hold_is_taken_out() -> None:
    dirty = {
        "a": 1, "b": 1.5, "c": "x" * 1000, "d": ["y"], "n" * 200: 1, "": 1, "e": math.nan,
        "f": None, "g": True, "h": {"x": 1}, "i": [1], "j": 1 << 64, "k": math.inf,
    }  # fmt: skip
    assert clean(dirty) == {"a": 1, "b": 1.5, "c": "x" * 512, "d": ["y"]}
