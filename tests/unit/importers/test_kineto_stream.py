"""Reading a trace piece by piece gives what reading it whole would give."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import stream
from paceline_service.importers.kineto.stream import TraceFile

TRICKY = [
    {"ph": "X", "cat": "kernel", "name": 'a}, {"ph":"X"', "ts": 1, "dur": 2},
    {"ph": "X", "name": "quote \" and \\", "ts": 1.5, "args": {"deep": [{"a": 1}, {"b": 2}]}},
    {"ph": "f", "name": "[]{}", "ts": 3},
    {"ph": "X", "name": "naïve ✓", "ts": 4, "args": {"Collective name": "allreduce", "grid": [2]}},
] * 30  # fmt: skip


def read(path: Path) -> tuple[list[Any], TraceFile, Faults]:
    faults = Faults()
    file = TraceFile(path, faults)
    return [event for batch in file.batches() for event in batch], file, faults


def document(**more: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 1, "deviceProperties": [{"id": 0}, {"id": 1}],
        "distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": TRICKY,
        "other": [{"x": "]}"}, {"y": 1}], "traceName": "t", **more,
    }  # fmt: skip


@pytest.mark.parametrize("piece_bytes", [7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_all_events_are_there_wherever_the_pieces_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    piece_bytes: int,
    indent: int | None,
    packed: bool,
) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", piece_bytes)
    text = json.dumps(document(), indent=indent, ensure_ascii=False).encode()
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text) if packed else text)
    events, file, faults = read(path)
    assert [event.name for event in events] == [event["name"] for event in TRICKY]
    assert [event.ts for event in events] == [event["ts"] for event in TRICKY]
    assert events[3].args.collective == "allreduce"
    assert file.metadata["distributedInfo"] == {"rank": 3, "world_size": 8}
    assert file.metadata["traceName"] == "t"
    assert file.whole
    assert not faults.counts


def test_a_plain_list_of_events_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("\ufeff" + json.dumps(TRICKY))
    events, _, faults = read(tmp_path / "t")
    assert len(events) == len(TRICKY)
    assert not faults.counts


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("packed", [False, True])
def test_of_a_file_that_breaks_off_the_events_before_count(
    tmp_path: Path, share: float, packed: bool
) -> None:
    events = [{"ph": "X", "name": str(n * 7919), "ts": n} for n in range(5000)]
    raw = json.dumps({"traceEvents": events}).encode()
    raw = gzip.compress(raw) if packed else raw
    (tmp_path / "t").write_bytes(raw[: int(len(raw) * share)])
    found, file, faults = read(tmp_path / "t")
    assert 0 < len(found) < 5000
    assert [event.ts for event in found] == list(range(len(found)))
    assert not file.whole
    assert faults.counts["truncated_file"] == 1


def test_figures_that_are_no_json_and_bytes_that_are_no_utf8_cost_nothing(tmp_path: Path) -> None:
    text = (
        b'{"traceEvents": [{"ph":"X","name":"a","ts":1,"args":{"occupancy": -nan, "x": inf}},'
        b'{"ph":"X","name":"b\xff","ts":2,"args":"none"}, {"ph":"X","name":"c","ts":3,"args":{}}]}'
    )
    (tmp_path / "t").write_bytes(text)
    events, _, faults = read(tmp_path / "t")
    assert [event.ts for event in events] == [1, 2, 3]
    assert not faults.counts


def test_what_is_no_event_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(
        '{"traceEvents": [7, {"ph":"X","ts":1}, "x", [1], {"ph":"X","ts":2}]}'
    )
    events, _, faults = read(tmp_path / "t")
    assert [event.ts for event in events] == [1, 2]
    assert faults.counts["no_json"] == 3


def test_utf16_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(json.dumps(document()).encode("utf-16"))
    events, _, faults = read(tmp_path / "t")
    assert not events
    assert "UTF-16" in faults.notes()[0]


def test_a_small_file_that_unpacks_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ALWAYS_UNPACKED_BYTES", 1 << 20)
    bomb = gzip.compress(b'{"traceEvents": [{"ph":"X","ts":1},' + b" " * (16 << 20) + b"]}")
    (tmp_path / "t").write_bytes(bomb)
    _, file, faults = read(tmp_path / "t")
    assert not file.whole
    assert "200 times its size" in faults.notes()[0]


def test_a_value_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(stream, "MAX_VALUE_BYTES", 1 << 14)
    (tmp_path / "t").write_text('{"traceEvents": [{"ph":"X","ts":1}, {"name":"' + "a" * (1 << 17))
    events, file, faults = read(tmp_path / "t")
    assert [event.ts for event in events] == [1]
    assert not file.whole
    assert faults.counts["too_long"] == 1


@pytest.mark.parametrize(
    "text", ["", "   ", "hello", "{", '{"traceEvents"', '{"traceEvents": 5}', "[", "]}"]
)
def test_what_is_no_trace_has_no_events(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_text(text)
    assert read(tmp_path / "t")[0] == []
