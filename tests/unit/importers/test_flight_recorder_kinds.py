"""What dumps show beside lags: mismatches, Gloo, old versions, and what they cannot carry."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder import reading, safe_pickle
from paceline_service.importers.flight_recorder.answer import judge_dumps, read_dumps
from paceline_service.importers.flight_recorder.dump import read_dump
from paceline_service.importers.flight_recorder.reading import read_all
from paceline_service.importers.flight_recorder.safe_pickle import load_plain
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.flight_dumps import dumps_of, entry, group, status, write

RECORDED = Path(__file__).parents[2] / "fixtures" / "flight_recorder"
SECOND = 10**9
DAY = 1_700_000_000 * SECOND


def all_in(number: int, size: int = 4) -> list[dict[str, Any]]:
    """Return dumps of ranks that all wait in one number."""
    dumps = dumps_of(size)
    for dump in dumps:
        dump["pg_status"]["0"], dump["entries"] = status(number, number - 1), [entry(number)]
    return dumps


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"profiling_name": "nccl:broadcast"}, "different operations .*broadcast on rank 2"),
        ({"input_sizes": [[5]], "output_sizes": [[5]]}, "different sizes .*5 elements on rank 2"),
        ({"input_dtypes": ["Half"]}, "different data types .*Half on rank 2, Float on ranks 0-1,3"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_the_rank_that_brought_something_else_is_named_with_what_it_brought(
    tmp_path: Path, changed: dict[str, Any], says: str, finished: bool
) -> None:
    dumps = all_in(8)
    dumps[2]["entries"] = [entry(8, **changed)]
    if finished:
        for dump in dumps:
            dump["pg_status"]["0"] = status(8, 8)
            dump["entries"][0] |= {"state": "completed", "retired": True}
    report = read_dumps(write(tmp_path, dumps), Faults())
    (finding,) = report.findings
    assert (report.verdict, finding.kind, finding.ranks) == ("desync", "desync", [2])
    assert finding.collective is not None
    assert (finding.collective["group"], finding.collective["seq"]) == ("default_pg", 8)
    assert re.search(says, finding.evidence[0])
    assert ("not to be trusted" in finding.evidence[1]) == finished


def test_where_nobody_is_in_the_majority_all_are_named(tmp_path: Path) -> None:
    dumps = all_in(8)
    for rank in (0, 1):
        dumps[rank]["entries"] = [entry(8, input_dtypes=["Half"], output_dtypes=["Half"])]
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert finding.ranks == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changed",
    [
        {"profiling_name": "nccl:all_to_all"}, {"profiling_name": "nccl:all_gather"},
        {"profiling_name": "nccl:scatter"}, {"profiling_name": "nccl:coalesced"},
    ],
)  # fmt: skip
def test_sizes_that_may_be_uneven_on_purpose_accuse_nobody(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    dumps = all_in(8)
    for rank, dump in enumerate(dumps):
        dump["entries"] = [entry(8, **changed, input_sizes=[[rank + 1]])]
    assert read_dumps(write(tmp_path, dumps), Faults()).findings == []


def test_only_the_first_mismatch_of_a_group_is_told(tmp_path: Path) -> None:
    dumps = all_in(9)
    for dump in dumps:
        dump["entries"] = [entry(8, state="completed"), entry(9)]
    dumps[3]["entries"] = [
        entry(8, state="completed", profiling_name="nccl:reduce"), entry(9, input_sizes=[[77]])
    ]  # fmt: skip
    (finding,) = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert finding.collective is not None
    assert finding.collective["seq"] == 8


def test_the_two_sides_of_a_transfer_that_differ_are_both_named(tmp_path: Path) -> None:
    dumps = all_in(8)
    for rank, name, size in ((1, "nccl:send 1->2", 100), (2, "nccl:recv 2<-1", 64)):
        dumps[rank]["pg_config"]["7"] = group("7", "PIPE", [0, 1, 2, 3])
        dumps[rank]["pg_status"]["7"] = status(0, 0)
        dumps[rank]["entries"] = [
            entry(0, pg=7, name="7", desc="PIPE", profiling_name=name, is_p2p=True, p2p_seq_id=3,
                  input_sizes=[[size]], output_sizes=[[size]])
        ]  # fmt: skip
    findings = read_dumps(write(tmp_path, dumps), Faults()).findings
    assert [1, 2] in [finding.ranks for finding in findings if finding.kind == "desync"]


@pytest.mark.parametrize(
    ("kind", "verdict", "ranks"),
    [("hang", "hang", [[2]]), ("desync", "desync", [[1]]), ("healthy", "insufficient_evidence", []),
     ("hang_json", "hang", [[2]])],
)  # fmt: skip
def test_dumps_of_real_jobs_on_gloo_are_understood(
    tmp_path: Path, kind: str, verdict: str, ranks: list[list[int]]
) -> None:
    # A copy is as young as this test, and the dumps are not.
    shutil.copytree(RECORDED / f"gloo_{kind}", tmp_path / "dumps")
    report = analyze_paths([tmp_path / "dumps"]).report
    assert (report["verdict"], [f["ranks"] for f in report["findings"]]) == (verdict, ranks)
    facts = report["data"]["flight_recorder"]
    assert (facts["dumps"], facts["versions"], facts["backends"]) == (4, ["2.10"], ["gloo"])


def test_a_rank_of_gloo_without_a_dump_may_be_the_one(tmp_path: Path) -> None:
    for path in (RECORDED / "gloo_hang").iterdir():
        if path.name != "_dump_2.gz":
            shutil.copy(path, tmp_path)
    report = analyze_paths([tmp_path]).report
    assert [finding["ranks"] for finding in report["findings"]] == [[2]]
    assert any("no dump of rank 2" in note for note in report["data"]["notes"])


def test_what_is_pending_for_seconds_only_is_no_hang(tmp_path: Path) -> None:
    dumps = dumps_of()
    for dump in dumps:
        for one in dump["entries"]:
            one["time_created_ns"] = DAY
    paths = write(tmp_path, dumps)
    for path in paths:
        os.utime(path, ns=(DAY, DAY + 2 * SECOND))
    answer = judge_dumps(paths, Faults()).report
    assert (answer["verdict"], answer["findings"]) == ("insufficient_evidence", [])
    assert any("rank 3 had not issued" in note for note in answer["data"]["notes"])
    assert "moment" in answer["data"]["flight_recorder"]["remedy"]
    for path in paths:
        os.utime(path, ns=(DAY, DAY + 300 * SECOND))
    assert read_dumps(paths, Faults()).findings[0].ranks == [3]


def done(seq: int, at_ns: int) -> Any:
    return entry(seq, state="completed", retired=True, time_created_ns=at_ns)


@pytest.mark.parametrize(("behind_s", "step_s", "named"), [(600, 1, []), (600, 180, [[3]]),
                                                         (20, 1, [[3]])])  # fmt: skip
def test_a_dump_taken_long_before_the_others_accuses_nobody(
    tmp_path: Path, behind_s: int, step_s: int, named: list[list[int]]
) -> None:
    dumps = dumps_of()
    begun = DAY - 8 * step_s * SECOND
    for rank, dump in enumerate(dumps):
        late = 0 if rank < 3 else behind_s * SECOND
        dump["entries"] = [done(n, begun + n * step_s * SECOND - late) for n in range(1, 8)] + [
            {**one, "time_created_ns": DAY} for one in dump["entries"]
        ]
    report = read_dumps(write(tmp_path, dumps), Faults())
    assert [finding.ranks for finding in report.findings] == named
    assert any("s older than what" in note for note in report.notes) == (not named)


def test_one_dump_alone_tells_what_it_waits_in_and_names_nobody(tmp_path: Path) -> None:
    paths = write(tmp_path, dumps_of(8))
    report = read_dumps(paths[:1], Faults())
    assert (report.verdict, report.findings) == ("insufficient_evidence", [])
    assert any("rank 0 waits in all_reduce number 8 of group default_pg" in n for n in report.notes)


def test_a_ring_that_went_round_is_told_and_judged_by_its_counters(tmp_path: Path) -> None:
    dumps = dumps_of()
    for dump in dumps:
        dump["entries"] = [{**one, "record_id": 12_000} for one in dump["entries"]]
    report = read_dumps(write(tmp_path, dumps), Faults())
    assert report.findings[0].ranks == [3]
    assert any("12,000 before are not in its dump" in note for note in report.notes)


def first_version(dump: dict[str, Any]) -> dict[str, Any]:
    """Return a dump as the first versions wrote it: one number, no counters, bare groups."""
    entries = []
    for one in dump["entries"]:
        kept = {k: one[k] for k in ("pg_id", "profiling_name", "input_sizes", "state", "frames",
                                    "time_created_ns") if k in one}  # fmt: skip
        entries.append({**kept, "seq_id": one["collective_seq_id"]})
    return {"version": "2.0", "entries": entries, "pg_config": {"0": [0, 1, 2, 3]}}


def test_dumps_of_the_first_versions_are_compared_by_their_entries(tmp_path: Path) -> None:
    dumps = all_in(8)
    for dump in dumps:
        dump["entries"].insert(0, entry(7, state="completed"))
    dumps[1]["entries"].pop()
    report = read_dumps(write(tmp_path, [first_version(dump) for dump in dumps]), Faults())
    assert [finding.ranks for finding in report.findings] == [[1]]


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_{}", "{}.pickle", "dump-{}.json.gz", "trace_rank_{}_1758580155793"]
)
def test_the_rank_is_read_from_the_names_that_torch_and_people_give(
    tmp_path: Path, name: str
) -> None:
    for rank, path in enumerate(write(tmp_path, dumps_of())):
        path.rename(tmp_path / name.format(rank))
    assert [r["ranks"] for r in analyze_paths([tmp_path]).report["findings"]] == [[3]]


def test_a_folder_a_rank_tells_the_rank_where_the_name_does_not(tmp_path: Path) -> None:
    for rank, path in enumerate(write(tmp_path, dumps_of())):
        (tmp_path / f"rank_{rank}").mkdir()
        path.rename(tmp_path / f"rank_{rank}" / "trace.pickle")
    assert [r["ranks"] for r in analyze_paths([tmp_path]).report["findings"]] == [[3]]


def nested(depth: int, fan: int) -> Any:
    """Return lists within lists; with a fan every one of them is referred to several times."""
    value: Any = []
    for _ in range(depth):
        value = [value] * fan
    return value


def says_or_names(path: Path) -> bool:
    """Whether the dump is read, or refused with its name."""
    try:
        read_dumps([path], Faults())
    except InputError as error:
        return str(path) in str(error)
    return True


HOSTILE: dict[str, Any] = {
    "deep": nested(50, 1), "shared": nested(40, 10), "number": 1 << 40_000, "mapping": {"a": 1},
    "none": None, "text": "\x1b[31m\x00" * 1000, "float": 1e308, "tuple": ((),) * 3,
}  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_any_value_in_any_place_is_borne(tmp_path: Path, value: Any) -> None:
    whole = dumps_of()[0]
    for key in entry(8):
        dump = {**whole, "entries": [entry(8), {**entry(9), key: value}]}
        (path,) = write(tmp_path, [dump])
        read_dump(path)
    for key in whole:
        (path,) = write(tmp_path, [{**whole, key: value}])
        assert says_or_names(path)


def test_a_pickle_that_makes_more_objects_than_a_dump_can_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_OBJECTS", 1000)
    path = tmp_path / "_dump_0"
    path.write_bytes(b"\x80\x02](" + b"]" * 2000 + b"e.")
    with pytest.raises(InputError, match=r"_dump_0.*objects"):
        read_dump(path)
    path.write_bytes(pickle.dumps(dumps_of()[0], protocol=2))
    assert read_dump(path).rank == 0


def test_measured_durations_tell_who_arrived_last_and_are_no_verdict(tmp_path: Path) -> None:
    dumps = dumps_of()
    for rank, dump in enumerate(dumps):
        dump["pg_status"]["0"] = status(6, 6)
        dump["entries"] = [
            {**done(seq, DAY + seq), "duration_ms": 2.0 if rank != 1 else 0.5}
            for seq in range(1, 7)
        ]
    report = judge_dumps(write(tmp_path, dumps), Faults()).report
    assert (report["verdict"], report["findings"]) == ("insufficient_evidence", [])
    assert report["data"]["flight_recorder"]["last_arrivers"] == [
        {"rank": 1, "collectives": 6, "caused_wait_ns": 6 * 3 * 1_500_000}
    ]
    assert any("rank 1 27.0 ms (last at 6)" in note for note in report["data"]["notes"])


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    value = {
        "numbers": [0, 1, 255, 256, 65_536, -1, 1 << 31, -(1 << 70), 1 << 3000, 1.5, True, False],
        "texts": ["", "a", "\xe4\u4e2d\U0001f600", "x" * 300, "x" * 70_000],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, [4])], "none": None,
        7: {"a": {}, "b": []}, "many": [{"k": i} for i in range(1200)],
    }  # fmt: skip
    value["again"] = value["texts"]
    assert load_plain(pickle.dumps(value, protocol=protocol)) == value


def test_keys_that_would_take_the_stack_to_hash_are_refused() -> None:
    with pytest.raises(InputError, match="key"):
        load_plain(b"\x80\x02})" + b"\x85" * 500_000 + b"Ns.")


def test_processes_read_the_same_as_this_one_does(tmp_path: Path) -> None:
    paths = write(tmp_path, dumps_of(4))
    paths[1].write_bytes(b"\x80\x02pg_status")
    own, others = (
        [(p, str(r) if isinstance(r, InputError) else r) for p, r in read_all(paths, Faults(), n)]
        for n in (0, 2)
    )
    assert own == others
    assert "_dump_1" in str(own[1][1])


def test_a_dump_that_ends_the_process_that_reads_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, dumps_of(4))
    monkeypatch.setattr(reading, "_START", "import os; os._exit(1)")
    read = [one for _, one in read_all(paths, Faults(), 2)]
    assert [isinstance(one, InputError) for one in read] == [True, True, False, False]
