"""Broken input: what is wrong is told with file and line, the rest is used where that is honest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers import events as events_module
from paceline_service.importers import lines as lines_module
from paceline_service.importers.events import read_event_log
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.logs import all_reduce, header, phase, small_job, text, write

GOOD = small_job(2, steps=20)


def faults_of(path: Path) -> tuple[dict[str, int], list[str]]:
    with read_event_log([path]) as log:
        assert log.ranks == [0, 1]
        return dict(log.faults.counts), log.faults.notes()


def test_a_truncated_gzip_file_is_used_up_to_its_break(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(text([line]) for line in GOOD), 1)
    path = tmp_path / "a b'c\".ndjson.gz"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    counts, notes = faults_of(path)
    assert counts["truncated_file"] == 1
    assert notes[0].startswith(f"{path}:")
    assert "truncated" in notes[0]


def test_a_corrupt_gzip_file_is_used_up_to_its_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(text(GOOD)))
    packed[-6] ^= 0xFF
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    assert faults_of(path)[0] == {"truncated_file": 1}


def test_half_a_line_at_the_end_is_told_as_torn(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(text(GOOD) + b'{"rank":0,"step":20,"gro')
    assert faults_of(path)[0] == {"torn_line": 1}


def test_a_line_that_is_no_json_is_told_with_its_number(tmp_path: Path) -> None:
    raw = text(GOOD).splitlines(keepends=True)
    raw.insert(7, b"{not json\n")
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"".join(raw))
    counts, notes = faults_of(path)
    assert counts == {"no_json": 1}
    assert notes[0].startswith(f"{path}:8: no JSON")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (all_reduce(0, 20, end_ns=5), "invalid"),
        (all_reduce(0, 20, start_ns=-5), "invalid"),
        (all_reduce(0, 20) | {"step": -1}, "invalid"),
        (all_reduce(0, 20) | {"step": 1 << 40}, "invalid"),
        (all_reduce(0, 20, join_ns=-1), "invalid"),
        (all_reduce(0, 20, end_ns=(1 << 63) - 1), "invalid"),
        (all_reduce(0, 20, bytes=1 << 62), "invalid"),
        (all_reduce(0, 20, start_ns=1.5), "invalid"),
        (all_reduce(0, 20, start_ns=10**30), "invalid"),
        (all_reduce(0, 20, op="all_guess"), "invalid"),
        (all_reduce(0, 20, op="send"), "invalid"),
        (all_reduce(0, 20, op="send", peer=7), "invalid"),
        (all_reduce(-1, 20), "invalid"),
        (all_reduce(0, 20, group="nobody"), "unknown_group"),
        (phase(0, 20, "lunch"), "invalid"),
        ([1, 2, 3], "invalid"),
        ("text", "invalid"),
    ],
)
def test_an_impossible_record_is_left_out_and_counted(
    tmp_path: Path, line: Any, reason: str
) -> None:
    path = write(tmp_path / "a.ndjson", [*GOOD, line])
    counts, notes = faults_of(path)
    assert counts == {reason: 1}
    assert notes[0].startswith(f"{path}:{len(GOOD) + 1}: ")


def test_a_record_of_a_rank_outside_its_group_is_left_out(tmp_path: Path) -> None:
    lines = [header(groups={"dp0": [0, 1], "one": [1]}), *GOOD[1:], all_reduce(0, 0, group="one")]
    assert faults_of(write(tmp_path / "a", lines))[0] == {"not_a_member": 1}


def test_the_same_record_twice_counts_once_and_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", [*GOOD, GOOD[2]])
    counts, notes = faults_of(path)
    assert counts == {"duplicate": 1}
    assert notes == [f"{path}:{len(GOOD) + 1}: the same record is on line 3; it counts once"]


def test_a_copy_of_a_whole_file_changes_nothing_but_the_count(tmp_path: Path) -> None:
    write(tmp_path / "rank0.ndjson", GOOD)
    write(tmp_path / "rank0 (copy).ndjson.gz", GOOD)
    with read_event_log(sorted(tmp_path.iterdir())) as log:
        assert log.faults.counts == {"duplicate": len(GOOD) - 1}
        kept = sum(len(part) for records in log.rounds() for part in records)
    assert kept == len(GOOD) - 1 + 2 * 20


def test_a_record_that_contradicts_another_is_told_so(tmp_path: Path) -> None:
    lines = [*GOOD, GOOD[2] | {"start_ns": GOOD[2]["start_ns"] + 1}]
    counts, notes = faults_of(write(tmp_path / "a", lines))
    assert counts == {"contradiction": 1}
    assert "contradicts line 3" in notes[0]


def test_what_the_device_did_in_a_step_does_not_contradict_what_the_host_did(
    tmp_path: Path,
) -> None:
    host = {"rank": 0, "step": 0, "step_start_ns": 1000, "step_end_ns": 9000}
    device = host | {"step_start_ns": 2000, "flags": 4}
    backward = phase(0, 0, "backward"), phase(0, 0, "backward", flags=4)
    counts, _ = faults_of(write(tmp_path / "a", [*GOOD, *backward, host, device]))
    assert counts == {}


def test_a_finished_record_goes_before_the_same_one_pending(tmp_path: Path) -> None:
    pending = GOOD[2] | {"end_ns": None}
    with read_event_log([write(tmp_path / "a", [GOOD[0], pending, *GOOD[1:]])]) as log:
        assert not log.faults.counts
        assert all((part.end_ns > 0).all() for records in log.rounds() for part in records)


def test_utf16_is_told_as_an_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(text(GOOD).decode().encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        read_event_log([path])


def test_bytes_that_are_no_utf8_cost_only_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(text(GOOD) + b'{"rank":0,"phase":"\xff\xfe","step":1}\n')
    assert sum(faults_of(path)[0].values()) == 1


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"\xef\xbb\xbf" + text(GOOD).replace(b"\n", b"\r\n"))
    assert faults_of(path)[0] == {}


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (header() | {"schema": "paceline.events/2"}, r":1: schema 'paceline\.events/2'"),
        (header() | {"schema": "paceline.report/1"}, "is no event log"),
        ({"schema": "paceline.events/1", "groups": {}}, ":1: world_size"),
        (header(world_size=0, groups={}), ":1: world_size 0"),
        (header() | {"world_size": "2"}, ":1: world_size"),
        (header(groups={"dp0": [0, 9]}), ":1: group 'dp0'"),
        (header(groups={"dp0": [0, 0]}), ":1: group 'dp0' repeats a rank"),
        (all_reduce(0, 0), "no event log"),
        ([], "no event log"),
    ],
)
def test_an_unusable_header_is_refused_with_its_place(
    tmp_path: Path, first: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_event_log([write(tmp_path / "a.ndjson", [first, *GOOD[1:]])])


def test_a_world_size_that_its_records_contradict_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", [*GOOD, phase(2, 0)])
    with pytest.raises(InputError, match=rf":{len(GOOD) + 1}: rank 2, but world_size 2 allows 0"):
        read_event_log([path])


def test_files_that_disagree_about_the_world_size_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "0.ndjson", [header(2), all_reduce(0, 0)])
    write(tmp_path / "1.ndjson", [header(4), all_reduce(1, 0)])
    with pytest.raises(InputError, match=r"1\.ndjson:1: world_size is 4, but 2"):
        read_event_log(sorted(tmp_path.iterdir()))


def test_a_missing_path_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_event_log([tmp_path / "nowhere"])
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is empty"):
        read_event_log([tmp_path / "empty"])


def test_a_directory_with_other_files_uses_its_logs_and_tells_the_rest(tmp_path: Path) -> None:
    write(tmp_path / "job.ndjson", GOOD)
    write(tmp_path / "rank1.ndjson", [["no header"]])
    (tmp_path / "report.json").write_text(json.dumps({"schema": "paceline.report/1"}))
    (tmp_path / "train.log").write_text("step 1\n")
    answer = analyze_paths([tmp_path])
    assert answer.faults.counts == {"unusable_file": 1, "skipped_file": 2}
    assert answer.faults.lossy
    assert any("rank1.ndjson:1: no event log" in note for note in answer.faults.notes())


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no regular file"):
        read_event_log([tmp_path / "pipe"])


def test_a_gzip_bomb_of_one_line_is_stopped_at_the_limit_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(text(GOOD) + b'{"rank":"')
        for _ in range(64):
            file.write(b"A" * (1 << 20))
    counts, notes = faults_of(path)
    assert counts == {"line_too_long": 1}
    assert notes[0].startswith(f"{path}:{len(GOOD) + 1}: longer than ")


def test_a_gzip_bomb_of_blank_lines_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MAX_BLANK_BYTES", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(text(GOOD) + b"\n" * 5000))
    assert faults_of(path)[0] == {"line_too_long": 1}


def test_a_gzip_bomb_of_lines_that_are_sound_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_ALWAYS_UNPACKED_BYTES", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(text(GOOD) + b'{"of":"a later version"}\n' * 200_000))
    counts, notes = faults_of(path)
    assert counts["too_long"] == 1
    assert "more than 100 times its size" in " ".join(notes)


def test_a_flood_of_records_out_of_order_is_refused_before_it_is_sorted_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "MAX_MENDED_ROWS", 30)
    path = write(tmp_path / "a.ndjson", [GOOD[0], *reversed(GOOD[1:])])
    with pytest.raises(InputError, match=r"rank 0: its 40 records are not in order; over 30"):
        read_event_log([path])
    assert faults_of(write(tmp_path / "b.ndjson", GOOD))[0] == {}


def test_deeply_nested_json_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep.ndjson"
    path.write_bytes(text(GOOD) + b"[" * 100_000 + b"\n")
    assert faults_of(path)[0] == {"no_json": 1}


def test_a_log_that_is_mostly_unusable_gets_no_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", [*GOOD, *[["junk"]] * 20])
    with pytest.raises(InputError, match=r"20 of 100 records are unusable.*a\.ndjson:82"):
        read_event_log([path])


def test_a_flood_of_faults_is_counted_and_only_its_first_are_told(tmp_path: Path) -> None:
    lines = [*small_job(2, steps=400), *[["junk"]] * 50]
    counts, notes = faults_of(write(tmp_path / "a.ndjson", lines))
    assert counts == {"invalid": 50}
    assert len(notes) == 4
    assert notes[-1] == "47 more of the reason invalid."
