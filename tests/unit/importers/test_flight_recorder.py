from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.answer import read_dumps
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.flight_dumps import dumps_of, entry, group, status, write


@pytest.mark.parametrize("form", ["pickle", "json", "gzip"])
def test_the_rank_that_never_issued_what_its_peers_wait_in_is_named(
    tmp_path: Path, form: str
) -> None:
    write(tmp_path, dumps_of(), form)
    report = analyze_paths([tmp_path]).report
    assert report["verdict"] == "hang"
    (finding,) = report["findings"]
    assert (finding["ranks"], finding["cause"]) == ([3], "host")
    assert finding["collective"] == {
        "group": "default_pg", "op": "all_reduce", "seq": 8, "age_s": None,
    }  # fmt: skip
    assert "never issued all_reduce number 8" in finding["evidence"][0]


def test_a_rank_whose_device_did_not_finish_what_its_peers_left_is_told_apart(
    tmp_path: Path,
) -> None:
    dumps = dumps_of()
    for rank in range(3):
        dumps[rank]["pg_status"]["0"] = status(9, 8)
        dumps[rank]["entries"] = [entry(9)]
    dumps[3]["pg_status"]["0"] = status(8, 6)
    dumps[3]["entries"] = [entry(7), entry(8)]
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert (finding.kind, finding.ranks, finding.cause) == ("hang", [3], "gpu_fault")
    assert "issued all_reduce number 7" in finding.evidence[0]
    assert "completion lag" in finding.evidence[0]


def test_a_rank_that_waits_for_the_culprit_in_another_group_is_not_named(tmp_path: Path) -> None:
    dumps = dumps_of(4)
    for rank, pair in ((0, [0, 1]), (1, [0, 1]), (2, [2, 3]), (3, [2, 3])):
        name = f"{1 + rank // 2}"
        dumps[rank]["pg_config"][name] = group(name, "TENSOR", pair)
        dumps[rank]["pg_status"]["5"] = status(4, 4)
    # Rank 2 waits for rank 3 within the pair, so it never came to what ranks 0 and 1 wait in.
    dumps[2]["pg_status"] = {"0": status(7, 7), "5": status(5, 4)}
    dumps[2]["entries"] = [entry(5, pg=5, name="2", desc="TENSOR")]
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert (finding.kind, finding.ranks) == ("hang", [3])


def test_counters_of_pipeline_groups_accuse_nobody(tmp_path: Path) -> None:
    dumps = dumps_of()
    for rank, dump in enumerate(dumps):
        dump["pg_config"]["1"] = group("1", "PIPELINE_MODEL_PARALLEL_GROUP", [0, 1, 2, 3])
        dump["pg_status"]["1"] = status(100 - 10 * rank, 100 - 10 * rank)
        dump["entries"].append(
            entry(
                100 - 10 * rank, pg=1, name="1", desc="PIPELINE_MODEL_PARALLEL_GROUP",
                profiling_name="nccl:recv 1<-0", is_p2p=True, state="completed", retired=True,
            )
        )  # fmt: skip
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert finding.ranks == [3]
    assert finding.collective is not None
    assert finding.collective["group"] == "default_pg"


def test_ranks_that_issued_different_operations_are_a_desync(tmp_path: Path) -> None:
    dumps = dumps_of()
    dumps[3]["pg_status"]["0"] = status(8, 7)
    dumps[3]["entries"] = [entry(8, profiling_name="nccl:_all_gather_base")]
    report = read_dumps(write(tmp_path, dumps), Faults())
    assert (report.verdict, report.findings[0].ranks) == ("desync", [3])


def test_a_rank_without_a_dump_is_suspected_where_nobody_else_is_missing(tmp_path: Path) -> None:
    paths = write(tmp_path, dumps_of())
    report = read_dumps(paths[:3], Faults())
    (finding,) = report.findings
    assert finding.ranks == [3]
    assert "rank 3 left no dump" in finding.evidence
    assert not report.complete


def test_dumps_in_which_nothing_is_pending_prove_nothing(tmp_path: Path) -> None:
    dumps = dumps_of()
    for dump in dumps:
        dump["pg_status"]["0"], dump["entries"] = status(7, 7), []
    report = read_dumps(write(tmp_path, dumps), Faults())
    assert (report.verdict, report.findings) == ("insufficient_evidence", [])


def test_two_dumps_of_one_rank_are_refused_and_both_named(tmp_path: Path) -> None:
    write(tmp_path, dumps_of())
    other = tmp_path / "again_dump_3"
    other.write_bytes((tmp_path / "_dump_3").read_bytes())
    assert analyze_paths([tmp_path]).report["findings"][0]["ranks"] == [3]  # the same one twice
    other.write_bytes(pickle.dumps({**dumps_of()[3], "pg_status": {"0": status(6, 6)}}))
    with pytest.raises(InputError, match=r"_dump_3.*_dump_3 are both of rank 3"):
        analyze_paths([tmp_path])


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def damaged(tmp_path: Path) -> dict[str, tuple[bytes, str]]:
    whole = dumps_of()[0]
    good = pickle.dumps(whole, protocol=2)
    evil = copy.copy(whole)
    evil["entries"] = [Hostile(tmp_path / "ran")]
    huge_memo = good[:-1] + b"r" + struct.pack("<I", 0xFFFFFFF0) + b"."
    return {
        "truncated": (good[:-40], "truncated"),
        "hostile": (pickle.dumps(evil, protocol=2), r"global posix\.mkdir"),
        "hostile_4": (pickle.dumps(evil, protocol=4), r"global posix\.mkdir"),
        "corrupt": (good[:200] + b"\xff" * 40 + good[240:], "corrupt|truncated|instruction"),
        "no_dump": (pickle.dumps(["pg_status", 1], protocol=2), "no Flight Recorder dump"),
        "json": (json.dumps(whole).encode()[:-30], "truncated or corrupt"),
        "length": (
            b"\x80\x02}X\x09\x00\x00\x00pg_statusX\xff\xff\xff\x7fab.", "truncated|corrupt",
        ),
        "memo": (huge_memo, ""),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["truncated", "hostile", "hostile_4", "corrupt", "no_dump", "json", "length"],
)
def test_what_is_damaged_or_hostile_is_refused_with_the_name_of_its_file(
    tmp_path: Path, name: str
) -> None:
    content, says = damaged(tmp_path)[name]
    path = tmp_path / f"{name}_dump_0"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path}.*({says})"):
        analyze_paths([path])
    assert not (tmp_path / "ran").exists()


def test_a_pickle_that_names_a_far_memo_slot_reserves_no_memory_for_it(tmp_path: Path) -> None:
    content, _ = damaged(tmp_path)["memo"]
    path = tmp_path / "_dump_0"
    path.write_bytes(content)
    assert read_dumps([path], Faults()).world_size == 4


def test_a_file_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline_service.importers.flight_recorder.dump.MAX_DUMP_BYTES", 1 << 20)
    path = tmp_path / "_dump_0"
    head = pickle.dumps({"pg_status": {}}, protocol=2)
    path.write_bytes(gzip.compress(head + bytes(8 << 20)))
    with pytest.raises(InputError, match=f"{path}.*over 1 MiB"):
        analyze_paths([path])


def test_one_unreadable_dump_among_others_is_told_and_left_out(tmp_path: Path) -> None:
    paths = write(tmp_path, dumps_of())
    paths[1].write_bytes(paths[1].read_bytes()[:-30])
    answer = analyze_paths([tmp_path])
    assert answer.report["findings"][0]["ranks"] == [3]
    assert not answer.report["data"]["complete"]
    assert any("_dump_1" in note and "truncated" in note for note in answer.faults.notes())


def test_dumps_of_two_jobs_are_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, [*dumps_of(4)[:3], *dumps_of(8)[3:]])
    with pytest.raises(
        InputError, match=r"_dump_3 is of a job of 8 ranks and .*_dump_0 of one of 4"
    ):
        read_dumps(paths, Faults())


def test_ranks_that_number_their_groups_differently_are_understood_by_their_own_entries(
    tmp_path: Path,
) -> None:
    dumps = dumps_of(4)
    for rank, dump in enumerate(dumps):
        mine = [("1", "LEFT"), ("2", "RIGHT")]
        for number, (name, desc) in zip((5, 6), mine if rank % 2 else mine[::-1], strict=True):
            dump["pg_config"][name] = group(name, desc, [0, 1, 2, 3])
            dump["pg_status"][str(number)] = status(10 * int(name), 10 * int(name))
            done = entry(10 * int(name), pg=number, name=name, desc=desc, retired=True)
            dump["entries"].append(done)
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert (finding.kind, finding.ranks) == ("hang", [3])
