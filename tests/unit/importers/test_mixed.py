"""Folders that hold several formats: one answer, if they are of one job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline.vocabulary import Phase
from paceline_service.importers.sources import analyze_paths, answer_paths
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.flight_dumps import dumps_of
from tests.unit.importers.flight_dumps import write as write_dumps
from tests.unit.importers.logs import header, small_job, write, write_simulated
from tests.unit.importers.traces import TraceJob, traces, write_traces

SLOW = Scenario(steps=100, faults=(Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=50),))
HEALTHY = Scenario(steps=100, seed=4)


def folder(path: Path, *names: str) -> list[Path]:
    for name in names:
        (path / name).mkdir(parents=True)
    return [path / name for name in names]


def told(report: dict[str, Any]) -> str:
    return "\n".join(report["data"]["notes"])


@pytest.fixture(scope="module")
def slow_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traces")
    write_traces(directory, traces(TraceJob(slow=2)), packed=True)
    return directory


def test_a_hang_that_only_dumps_tell_joins_the_straggler_that_traces_tell(
    tmp_path: Path, slow_traces: Path
) -> None:
    write_dumps(tmp_path, dumps_of())
    answer = analyze_paths([slow_traces, tmp_path])
    report = answer.report
    assert report["verdict"] == "hang"
    assert {(one["kind"], *one["ranks"]) for one in report["findings"]} == {
        ("straggler", 2), ("hang", 3),
    }  # fmt: skip
    hang = next(one for one in report["findings"] if one["kind"] == "hang")
    assert "_dump_0 and 3 more (Flight Recorder dump)" in hang["evidence"][0]
    assert "hang of rank 3; PyTorch profiler trace alone does not tell it" in told(report)
    assert report["slowdown"] is not None
    assert len(report["ranks"]) == 4
    assert [one["format"] for one in report["data"]["sources"]] == [
        "PyTorch profiler trace", "Flight Recorder dump",
    ]  # fmt: skip
    assert [one["verdict"] for one in report["data"]["sources"]] == ["straggler", "hang"]
    assert [len(one["files"]) for one in report["data"]["sources"]] == [4, 4]
    assert [part["verdict"] for part in answer.parts] == ["straggler", "hang"]


def test_formats_that_agree_make_one_finding_with_the_evidence_of_both(
    tmp_path: Path, slow_traces: Path
) -> None:
    write_simulated(tmp_path, simulate(SLOW), per_rank=True)
    alone = analyze_paths([tmp_path]).report["findings"][0]
    (finding,) = analyze_paths([slow_traces, tmp_path]).report["findings"]
    assert finding["ranks"] == [2]
    assert finding["evidence"][:-1] == alone["evidence"]
    assert "PyTorch profiler trace tells the same of rank 2" in finding["evidence"][-1]
    assert finding["wasted_gpu_s"] == alone["wasted_gpu_s"]
    assert finding["confidence"] >= alone["confidence"]


def test_formats_that_contradict_each_other_are_both_told(
    tmp_path: Path, slow_traces: Path
) -> None:
    write_simulated(tmp_path, simulate(HEALTHY))
    report = analyze_paths([slow_traces, tmp_path]).report
    assert report["verdict"] == "straggler"
    assert "straggler of rank 2; event log alone does not tell it" in told(report)
    (finding,) = report["findings"]
    assert report["wasted_gpu_s_by_cause"] == {finding["cause"]: finding["wasted_gpu_s"]}


def test_the_format_that_has_an_answer_leads_one_that_has_not(
    tmp_path: Path, slow_traces: Path
) -> None:
    write(tmp_path / "short.ndjson", small_job(4, steps=3))
    report = analyze_paths([slow_traces, tmp_path]).report
    assert report["verdict"] == "straggler"
    assert report["job"]["steps"] == 40
    assert report["data"]["sources"][0]["format"] == "PyTorch profiler trace"
    assert "event log: not enough evidence for an answer of its own" in told(report)


def test_dumps_in_which_nothing_is_pending_leave_the_answer_of_the_traces(
    tmp_path: Path, slow_traces: Path
) -> None:
    quiet = [{**dump, "entries": []} for dump in dumps_of()]
    for dump in quiet:
        dump["pg_status"]["0"] = {"last_enqueued_collective": 7, "last_completed_collective": 7}
    write_dumps(tmp_path, quiet)
    report = analyze_paths([slow_traces, tmp_path]).report
    assert report["verdict"] == "straggler"
    assert [one["kind"] for one in report["findings"]] == ["straggler"]


def test_the_timed_records_of_the_format_that_leads_are_there_as_long_as_the_answer(
    tmp_path: Path, slow_traces: Path
) -> None:
    write_simulated(tmp_path, simulate(SLOW))
    seen: list[int] = []
    with answer_paths([slow_traces, tmp_path], see=lambda job, rows: seen.append(len(rows))) as one:
        assert one.log is not None
        assert one.log.format == "event log"
        assert one.log.ranks == [0, 1, 2, 3]
    assert sum(seen) == 100, "the steps of one format, and of the one that leads"


def test_a_small_part_of_another_job_is_left_out_and_told(tmp_path: Path) -> None:
    mine, other = folder(tmp_path, "a", "b")
    write_traces(mine, traces(TraceJob(slow=5, world_size=8)))
    write(other / "other.ndjson", small_job(2, steps=30))
    report = analyze_paths([tmp_path]).report
    assert report["findings"][0]["ranks"] == [5]
    assert report["data"]["dropped"] == {"other_job": 1}
    assert not report["data"]["complete"]
    assert "other.ndjson: left out with all of the format event log" in told(report)
    assert "of a job of 2 ranks, the others are of a job of 8 ranks" in told(report)


def test_two_jobs_of_like_size_are_refused_with_a_file_of_each(tmp_path: Path) -> None:
    mine, other = folder(tmp_path, "a", "b")
    write_traces(mine, traces(TraceJob(steps=3)))
    write(other / "log.ndjson", small_job(6, steps=3))
    with pytest.raises(InputError, match=r"several jobs: .*log\.ndjson.*6 ranks; .*rank0\.json"):
        analyze_paths([tmp_path])


def test_jobs_of_different_names_are_not_blended(tmp_path: Path, slow_traces: Path) -> None:
    lines = small_job(4, steps=3)
    write(tmp_path / "a.ndjson", [header(4, job="llama"), *lines[1:]])
    report = analyze_paths([tmp_path, slow_traces]).report
    assert report["job"]["name"] == "llama", "traces have no name, so nothing speaks against it"
    document = json.loads(gzip.decompress((slow_traces / "rank0.json.gz").read_bytes()))
    assert "name" not in document


def test_a_format_without_a_usable_file_is_told_and_the_others_are_read(
    tmp_path: Path, slow_traces: Path
) -> None:
    (tmp_path / "_dump_0").write_bytes(b'{"pg_status": {"0": ')
    report = analyze_paths([slow_traces, tmp_path]).report
    assert report["findings"][0]["ranks"] == [2]
    assert report["data"]["dropped"] == {"unusable_file": 1}
    assert "_dump_0: its JSON is truncated" in told(report)


def test_one_format_has_its_entry_in_sources_too(slow_traces: Path) -> None:
    (source,) = analyze_paths([slow_traces]).report["data"]["sources"]
    assert source["format"] == "PyTorch profiler trace"
    assert [Path(path).name for path in source["files"]] == [f"rank{r}.json.gz" for r in range(4)]


def test_traces_that_do_not_tell_how_many_ranks_there_are_may_be_some_of_them(
    tmp_path: Path,
) -> None:
    mine, other = folder(tmp_path, "traces", "log")
    documents = traces(TraceJob(slow=2))
    for rank, document in enumerate(documents):
        del document["distributedInfo"]
        (mine / f"rank{rank}.json").write_text(json.dumps(document))
    write_simulated(other, simulate(Scenario(steps=3, data_parallel=8)))
    report = analyze_paths([tmp_path]).report
    assert report["findings"][0]["ranks"] == [2]
    assert (report["job"]["ranks_observed"], report["job"]["world_size"]) == (4, 8)
    assert not report["data"]["complete"]


def test_dumps_of_a_smaller_job_are_not_taken_for_a_part_of_this_one(tmp_path: Path) -> None:
    mine, other = folder(tmp_path, "traces", "dumps")
    write_traces(mine, traces(TraceJob(slow=5, world_size=12)))
    write_dumps(other, dumps_of(4))
    report = analyze_paths([tmp_path]).report
    assert [one["kind"] for one in report["findings"]] == ["straggler"]
    assert report["data"]["dropped"] == {"other_job": 4}


def test_a_training_log_adds_since_when_and_takes_nothing_away(
    tmp_path: Path, slow_traces: Path
) -> None:
    lines = [
        f" iteration {i:8d}/ 1000 | consumed samples: {i * 64:12d} | elapsed time per iteration "
        f"(ms): {(250 if i < 120 else 320) + i % 7 / 2:.1f} | learning rate: 1.0E-04 |"
        for i in range(1, 201)
    ]
    (tmp_path / "train.log").write_text("\n".join(lines))
    report = analyze_paths([slow_traces, tmp_path]).report
    assert report["findings"][0]["ranks"] == [2]
    assert report["data"]["complete"]
    assert "training log with timings: from iteration 120 on iterations take 2" in told(report)
