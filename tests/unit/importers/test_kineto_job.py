"""Traces of a job through the analysis: the culprit, its cause, and what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers.progress import Progress
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.traces import (
    GATHER,
    REDUCE,
    Json,
    TraceJob,
    kernels_of,
    traces,
    without,
    write_traces,
)


def report(directory: Path, documents: list[Json], *, packed: bool = False) -> dict[str, Any]:
    write_traces(directory, documents, packed=packed)
    return analyze_paths([directory]).report


def notes(answer: dict[str, Any]) -> str:
    return "\n".join(answer["data"]["notes"])


@pytest.mark.parametrize(("host_late", "cause"), [(False, "compute"), (True, "host")])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_slow_rank_is_named_with_its_cause(
    tmp_path: Path, host_late: bool, cause: str, labelled: bool
) -> None:
    job = TraceJob(slow=2, host_late=host_late, labelled=labelled)
    answer = report(tmp_path, traces(job), packed=labelled)
    assert answer["verdict"] == "straggler"
    assert [(f["ranks"], f["cause"]) for f in answer["findings"]] == [([2], cause)]
    assert answer["ranks"][2]["cause"] == cause
    assert ("py-spy" in answer["findings"][0]["action"]) is host_late
    assert answer["data"]["complete"]
    first = answer["data"]["trace"]["last_arrivers"][0]
    assert (first["rank"], first["cause"], first["collectives"]) == (2, cause, 80)


def test_a_healthy_job_is_healthy_and_nobody_is_accused(tmp_path: Path) -> None:
    answer = report(tmp_path, traces(TraceJob()))
    assert answer["verdict"] == "healthy"
    assert "arriving last" not in notes(answer)


def test_clocks_that_are_far_apart_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "own").mkdir()
    one = report(tmp_path / "one", traces(TraceJob(slow=2)))
    own = report(tmp_path / "own", traces(TraceJob(slow=2, clock_us=(0, 3e6, -2e6, 7.5e5))))
    assert own["findings"] == one["findings"]
    assert own["ranks"] == one["ranks"]


def test_groups_that_the_traces_name_are_matched_each_for_itself(tmp_path: Path) -> None:
    job = TraceJob(slow=2, labelled=True, groups=((0, 1), (2, 3)))
    answer = report(tmp_path, traces(job))
    assert answer["verdict"] == "straggler"
    assert answer["findings"][0]["ranks"] == [2]
    assert answer["job"]["collectives"] == 160
    assert answer["ranks"][0]["wait_ns"] < answer["ranks"][3]["wait_ns"] / 10


def test_groups_that_no_trace_names_are_not_taken_for_one(tmp_path: Path) -> None:
    answer = report(tmp_path, traces(TraceJob(slow=2, groups=((0, 1), (2, 3)))))
    assert answer["verdict"] == "insufficient_evidence"
    assert "the order agrees but the times cannot" in notes(answer)
    assert answer["data"]["dropped"]["unpaired"] == 4 * 80


def test_a_trace_that_begins_late_is_paired_from_where_it_begins(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1))
    documents[2] = without(documents[2], kernels_of(documents[2])[:3])
    answer = report(tmp_path, documents)
    assert answer["findings"][0]["ranks"] == [1]
    assert answer["data"]["trace"]["collectives"] == 77
    assert answer["data"]["dropped"] == {"unpaired": 9}


def test_a_lost_record_costs_its_step_and_is_told_with_rank_position_and_signatures(
    tmp_path: Path,
) -> None:
    documents = traces(TraceJob(slow=1))
    documents[2] = without(documents[2], kernels_of(documents[2])[30:31])
    answer = report(tmp_path, documents)
    assert answer["findings"][0]["ranks"] == [1]
    assert answer["data"]["trace"]["collectives"] == 78
    told = notes(answer)
    assert "paired in 39 of 40 steps, because the orders disagree" in told
    assert "on rank 2 and nccl" in told
    assert not answer["data"]["complete"]


def test_without_numbered_steps_a_lost_record_is_refused(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1, numbered=False))
    documents[2] = without(documents[2], kernels_of(documents[2])[30:32])
    answer = report(tmp_path, documents)
    assert answer["verdict"] == "insufficient_evidence"
    assert answer["data"]["trace"]["collectives"] == 0
    assert "ambiguous" in notes(answer) or "disagree" in notes(answer)


def test_calls_that_disagree_are_refused_even_where_the_kernels_agree(tmp_path: Path) -> None:
    documents = traces(TraceJob(labelled=True, kernels=(REDUCE, GATHER), steps=3))
    for kernel in kernels_of(documents[1], "AllReduce"):
        kernel["args"]["In msg nelems"] = 77
    answer = report(tmp_path, documents)
    assert answer["data"]["trace"]["collectives"] == 0
    assert "of 77 Float" in notes(answer)


def test_steps_that_ranks_number_differently_are_brought_together(tmp_path: Path) -> None:
    # An order without repetition, so that it is proved without the numbers.
    kernels = (REDUCE, GATHER)
    documents = traces(TraceJob(slow=1, steps=1, kernels=kernels))
    late = traces(TraceJob(slow=1, steps=1, kernels=kernels, first_step=99))
    documents[3] = late[3]
    answer = report(tmp_path, documents)
    assert answer["job"]["steps"] == 1
    assert answer["data"]["trace"]["collectives"] == 2
    assert answer["data"]["complete"]


def test_several_windows_of_a_job_are_one_job(tmp_path: Path) -> None:
    for number in range(3):
        directory = tmp_path / "all"
        directory.mkdir(exist_ok=True)
        job = TraceJob(slow=1, steps=12, first_step=10 + 20 * number, seed=number)
        for rank, document in enumerate(traces(job)):
            (path,) = write_traces(directory, [document])
            path.rename(directory / f"window{number}_rank{rank}.json")
    answer = analyze_paths([tmp_path / "all"]).report
    assert answer["job"]["steps"] == 36
    assert answer["findings"][0]["ranks"] == [1]
    assert answer["data"]["complete"]


def test_two_runs_that_number_their_steps_alike_are_refused_with_both_names(tmp_path: Path) -> None:
    for number in range(2):
        job = TraceJob(steps=3, seed=number, clock_us=[number * 1e6] * 4)
        for rank, path in enumerate(write_traces(tmp_path, traces(job))):
            path.rename(tmp_path / f"run{number}_rank{rank}.json")
    with pytest.raises(
        InputError, match=r"run0_rank0\.json and .*run1_rank0\.json are both of rank 0"
    ):
        analyze_paths([tmp_path])


def test_the_same_trace_twice_counts_once(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(slow=1)))
    (tmp_path / "rank1_copy.json").write_bytes(paths[1].read_bytes())
    answer = analyze_paths([tmp_path]).report
    assert answer["findings"][0]["ranks"] == [1]
    assert "the same trace as rank1.json" in notes(answer)


def test_one_rank_alone_is_insufficient_and_what_was_measured_is_told(tmp_path: Path) -> None:
    answer = report(tmp_path, traces(TraceJob(slow=1))[:1])
    assert answer["verdict"] == "insufficient_evidence"
    assert "rank 0 alone" in notes(answer)
    assert answer["data"]["trace"]["ranks"][0]["compute_ns"] > 0


def test_a_missing_rank_is_told_and_nobody_is_last_without_it(tmp_path: Path) -> None:
    answer = report(tmp_path, traces(TraceJob(slow=3))[:3])
    assert answer["job"]["ranks_observed"] == 3
    assert not answer["data"]["complete"]
    assert answer["data"]["trace"]["last_arrivers"] == []


def test_a_file_of_another_job_is_left_out_by_name(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1))
    documents[3]["distributedInfo"]["world_size"] = 16
    answer = report(tmp_path, documents)
    assert "rank3.json: left out: of a job of 16 ranks" in notes(answer)
    assert answer["data"]["dropped"]["other_job"] == 1


def test_files_of_two_jobs_in_equal_number_are_refused_by_name(tmp_path: Path) -> None:
    documents = traces(TraceJob(world_size=2))
    documents[1]["distributedInfo"]["world_size"] = 16
    with pytest.raises(InputError, match=r"rank\d.json is of a job of \d+ ranks and .*rank\d.json"):
        report(tmp_path, documents)


def test_a_trace_of_another_hour_is_left_out_by_name(tmp_path: Path) -> None:
    answer = report(tmp_path, traces(TraceJob(slow=1, clock_us=(0, 0, 0, 7.2e9))))
    assert "rank3.json: left out: recorded 7,200 s apart" in notes(answer)


def test_a_trace_whose_rank_nobody_knows_is_left_out_by_name(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(slow=1)))
    text = paths[3].read_text().replace('"distributedInfo"', '"other"')
    paths[3].unlink()
    (tmp_path / "lost.json").write_text(text)
    answer = analyze_paths([tmp_path]).report
    assert "lost.json: left out: neither its distributedInfo nor its name" in notes(answer)


def test_traces_among_other_files_are_read_and_the_others_told(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("notes")
    (tmp_path / "expected.json").write_text('{"a": 1}')
    answer = report(tmp_path, traces(TraceJob(slow=1)))
    assert answer["findings"][0]["ranks"] == [1]
    assert answer["data"]["complete"]
    assert "of no known format: README, expected.json" in notes(answer)


def test_a_folder_of_unknown_files_is_answered_with_the_formats_that_are_known(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(InputError, match="known formats: event log, PyTorch profiler trace"):
        analyze_paths([tmp_path])


@pytest.mark.parametrize("text", ['{"schemaVersion":1,"traceEvents":[]}', '{"traceEvents": 3}'])
def test_a_trace_without_events_is_bad_input_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank0.json").write_text(text)
    with pytest.raises(InputError, match=r"rank0\.json: no trace is usable"):
        analyze_paths([tmp_path / "rank0.json"])


def test_a_half_written_trace_is_told_and_the_rest_analysed(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(slow=1)))
    raw = paths[0].read_bytes()
    paths[0].write_bytes(raw[: len(raw) * 3 // 4])
    answer = analyze_paths([tmp_path]).report
    assert answer["findings"][0]["ranks"] == [1]
    assert "rank0.json: the file ends within its events" in notes(answer)
    assert not answer["data"]["complete"]


def test_events_with_impossible_times_are_counted_and_left_out(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1))
    documents[0]["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": ts, "dur": dur}
        for ts, dur in ((-5, 1), (5, -1), (float("nan"), 1), ("x", 1), (1e300, 1), (None, 1))
    ]
    answer = report(tmp_path, documents)
    assert answer["findings"][0]["ranks"] == [1]
    assert "left out: 6 events without a usable time" in notes(answer)


def test_identical_traces_of_all_ranks_are_healthy(tmp_path: Path) -> None:
    one = traces(TraceJob())[0]
    same = [{**one, "distributedInfo": {"rank": rank, "world_size": 4}} for rank in range(4)]
    assert report(tmp_path, same)["verdict"] == "healthy"


def test_each_file_is_told_before_it_is_read(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(steps=1)))
    told = Told()
    analyze_paths([tmp_path], told)
    assert told.paths == paths
    assert told.packed_bytes >= sum(path.stat().st_size for path in paths)


class Told(Progress):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.packed_bytes = 0

    def reading(self, path: Path) -> None:
        self.paths.append(path)

    def advanced(self, packed_bytes: int) -> None:
        self.packed_bytes += packed_bytes


def test_a_file_that_does_not_exist_is_bad_input_by_name(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(steps=1)))
    with pytest.raises(InputError, match=r"rank9\.json does not exist"):
        analyze_paths([*paths, tmp_path / "rank9.json"])


def transfer(kernel: Json, rank: int, peer: int) -> None:
    """Make a kernel one side of a transfer between two ranks."""
    kernel["name"] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    side = "Dst Rank" if rank < peer else "Src Rank"
    kernel["args"]["Collective name"] = "send" if rank < peer else "recv"
    kernel["args"][side] = peer


def test_a_send_is_paired_with_its_receive_where_both_sides_are_named(tmp_path: Path) -> None:
    documents = traces(TraceJob(labelled=True, groups=((0, 1), (2, 3)), steps=4))
    for rank, peer in ((0, 1), (1, 0)):
        for kernel in kernels_of(documents[rank], "AllGather"):
            transfer(kernel, rank, peer=peer)
    answer = report(tmp_path, documents)
    assert answer["data"]["complete"], notes(answer)
    assert answer["job"]["collectives"] == 4 * 4


def test_a_send_to_nobody_known_is_not_paired(tmp_path: Path) -> None:
    documents = traces(TraceJob(labelled=True, world_size=2, steps=4))
    for rank, document in enumerate(documents):
        for kernel in kernels_of(document, "AllGather"):
            transfer(kernel, rank, peer=1 - rank)
            kernel["args"].pop("Dst Rank", None)
            kernel["args"].pop("Src Rank", None)
    answer = report(tmp_path, documents)
    assert answer["data"]["dropped"] == {"unpaired": 8}
    assert "whose other side the trace does not name" in notes(answer)


def test_a_number_that_the_group_gave_pairs_what_repeats_itself(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1, labelled=True, numbered=False, kernels=(REDUCE,)))
    for document in documents:
        for number, kernel in enumerate(kernels_of(document)):
            kernel["args"]["Seq"] = 500 + number
    documents[2] = without(documents[2], kernels_of(documents[2])[:7])
    answer = report(tmp_path, documents)
    assert answer["data"]["trace"]["collectives"] == 33
    assert answer["data"]["trace"]["last_arrivers"][0]["rank"] == 1


def test_a_group_whose_members_no_trace_names_is_not_taken_for_all_ranks(tmp_path: Path) -> None:
    documents = traces(TraceJob(labelled=True, groups=((0, 1), (2, 3)), steps=3))
    for document in documents:
        for kernel in kernels_of(document):
            kernel["args"]["Process Group Ranks"] = "[0, 1, ...]"
            kernel["args"]["Process Group Name"] = "one name for all"
    answer = report(tmp_path, documents)
    assert answer["job"]["collectives"] == 0
    assert "a process group whose members no trace names" in notes(answer)


def test_parts_of_an_all_gather_may_be_unequal_but_what_comes_out_may_not(tmp_path: Path) -> None:
    documents = traces(TraceJob(labelled=True, steps=3))
    for rank, document in enumerate(documents):
        for kernel in kernels_of(document, "AllGather"):
            kernel["args"] |= {"In msg nelems": 100 + rank, "Out msg nelems": 406}
    (tmp_path / "equal").mkdir()
    assert report(tmp_path / "equal", documents)["data"]["trace"]["collectives"] == 6
    for kernel in kernels_of(documents[2], "AllGather"):
        kernel["args"]["Out msg nelems"] = 407
    (tmp_path / "other").mkdir()
    assert report(tmp_path / "other", documents)["data"]["trace"]["collectives"] == 0


@pytest.mark.parametrize(("world_size", "steps"), [(2, 30), (4, 20), (4, 30), (8, 12)])
def test_too_few_steps_to_name_a_slow_rank_are_not_called_healthy(
    tmp_path: Path, world_size: int, steps: int
) -> None:
    answer = report(tmp_path, traces(TraceJob(slow=1, world_size=world_size, steps=steps)))
    assert answer["verdict"] in ("insufficient_evidence", "straggler")
    assert answer["data"]["trace"]["last_arrivers"][0]["rank"] == 1
