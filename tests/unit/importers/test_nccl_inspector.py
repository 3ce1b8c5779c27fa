from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import InputError
from paceline_service.importers.nccl_inspector.recognize import begins_inspector
from paceline_service.importers.nccl_inspector.steps import find_period
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.inspector_files import InspectorJob, write_inspector

Report = dict[str, Any]


def report_of(folder: Path, job: InspectorJob) -> Report:
    write_inspector(folder, job)
    return analyze_paths([folder]).report


def edited(path: Path, change: Callable[[Report], Report | None]) -> None:
    """Change each record of a file in place; None leaves it out."""
    records = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))


HYBRID = InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, steps=50)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(InspectorJob(slow=2, extra_ms=1.5, steps=50), id="one communicator"),
        pytest.param(HYBRID, id="tensor and data parallel"),
        pytest.param(InspectorJob(data=8, slow=3, extra_ms=2, since=50, steps=100), id="later"),
        pytest.param(
            InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, dump_ms=60), id="dumps of 6 steps"
        ),
        pytest.param(
            InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, verbose=True), id="verbose"
        ),
        pytest.param(
            InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, lost=0.02), id="records lost"
        ),
        pytest.param(
            InspectorJob(data=16, slow=11, extra_ms=1, clock_skew_ms=500, source="kernel_cpu"),
            id="two hosts, polled",
        ),
    ],
)
def test_the_slow_rank_is_named_and_how_slow_it_is(tmp_path: Path, job: InspectorJob) -> None:
    report = report_of(tmp_path, job)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["ranks"]) == ("straggler", [job.slow])
    assert finding["cause"] == "unknown"
    assert finding["slowdown"] == pytest.approx(1 + job.extra_ms / job.work_ms, abs=0.03)
    pid = 4000 + 7 * (job.slow % job.per_host)
    assert f"rank {job.slow} is pid {pid} on worker-{job.slow // 8}" in finding["evidence"]
    assert report["job"]["steps"] == job.steps


HEALTHY: list[dict[str, Any]] = [
    {"tensor": 2, "data": 4, "jitter": 0.04},
    {"data": 8, "verbose": True},
    {"data": 4, "lost": 0.02, "dump_ms": 40.0},
    {"data": 8, "at_end": True},
    {"data": 4, "stages": 2},
]


@pytest.mark.parametrize("job", HEALTHY)
def test_in_a_healthy_job_nobody_is_named(tmp_path: Path, job: dict[str, Any]) -> None:
    report = report_of(tmp_path, InspectorJob(seed=1, steps=50, **job))
    assert report["verdict"] == "healthy"
    assert report["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize("job", HEALTHY)
def test_in_many_healthy_jobs_nobody_is_named(tmp_path: Path, job: dict[str, Any]) -> None:
    for seed in range(2, 42):
        report = report_of(tmp_path / str(seed), InspectorJob(seed=seed, steps=60, **job))
        assert report["findings"] == [], seed


@pytest.mark.slow
def test_in_many_jobs_only_the_slow_rank_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for seed in range(40):
        tensor, data = int(rng.choice([1, 2, 4])), int(rng.choice([4, 8]))
        job = InspectorJob(
            tensor=tensor, data=data, slow=int(rng.integers(tensor * data)), steps=80, seed=seed,
            extra_ms=float(rng.uniform(0.6, 3)), lost=float(rng.choice([0, 0.01])),
            dump_ms=float(rng.choice([1, 30])), verbose=bool(rng.random() < 0.3),
            at_end=bool(rng.random() < 0.2), layers=int(rng.integers(1, 5)),
            buckets=((8 << 20,) * 4, (25 << 20, 3 << 20), (16 << 20,))[int(rng.integers(3))],
        )  # fmt: skip
        report = report_of(tmp_path / str(seed), job)
        assert [finding["ranks"] for finding in report["findings"]] == [[job.slow]], job


def test_a_slow_link_is_communication_and_nobodys_fault(tmp_path: Path) -> None:
    job = InspectorJob(data=8, per_host=4, link_ms=3, link_since=50, steps=100)
    report = report_of(tmp_path, job)
    assert report["verdict"] == "communication"
    assert {finding["kind"] for finding in report["findings"]} == {"communication"}


def test_files_written_at_the_end_tell_who_waited_but_no_ratios(tmp_path: Path) -> None:
    report = report_of(tmp_path, InspectorJob(data=8, slow=2, extra_ms=1, at_end=True))
    (finding,) = report["findings"]
    assert (finding["kind"], finding["ranks"]) == ("straggler", [2])
    # 1 ms in each of the 55 judged steps of seven ranks.
    assert finding["wasted_gpu_s"] == pytest.approx(0.385, rel=0.05)
    assert finding["slowdown"] is None
    assert (report["slowdown"], report["gamma"]) == (None, None)
    assert any("no ratio to the time of a step" in note for note in report["data"]["notes"])


PIPELINE: list[dict[str, Any]] = [{}, {"verbose": True}, {"at_end": True}]


@pytest.mark.parametrize("how", PIPELINE)
def test_who_waits_for_a_slow_neighbour_in_the_pipeline_is_not_named(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    job = InspectorJob(stages=2, data=4, slow=2, extra_ms=2, steps=50, seed=1, **how)
    report = report_of(tmp_path, job)
    assert [finding["ranks"] for finding in report["findings"]] == [[2]]  # and not rank 6 behind it
    assert report["job"]["steps"] == 50
    assert any("sends and receives count as communication" in note for note in _notes(report))


def test_who_waits_for_a_slow_one_in_another_communicator_is_not_named(tmp_path: Path) -> None:
    # Nothing tells the steps: four equal buckets and four layers, in dumps of several steps.
    job = InspectorJob(
        tensor=2, data=8, slow=12, extra_ms=1.6, steps=80, seed=17, layers=4, lost=0.01,
        buckets=(8 << 20,) * 4, world_every_step=False, dump_ms=30,
    )  # fmt: skip
    report = report_of(tmp_path, job)
    assert {rank for finding in report["findings"] for rank in finding["ranks"]} <= {12}


def test_what_is_missing_on_one_member_is_counted_and_shifts_nothing(tmp_path: Path) -> None:
    job = InspectorJob(data=4, slow=1, extra_ms=2, steps=50)
    paths = write_inspector(tmp_path, job)
    edited(paths[2], lambda r: None if 20 <= r["coll_perf"]["coll_sn"] < 30 else r)
    report = analyze_paths([tmp_path]).report
    assert report["data"]["dropped"] == {"unpaired": 30}  # ten on each of the three others
    assert report["findings"][0]["ranks"] == [1]
    assert report["job"]["collectives"] == 150 - 10


def test_global_ranks_come_from_the_communicator_of_all(tmp_path: Path) -> None:
    # The world numbers the processes the other way round than hosts and pids do.
    paths = write_inspector(tmp_path, HYBRID)

    def reversed_world(record: Report) -> Report:
        if record["header"]["comm_name"] == "world":
            record["header"]["rank"] = 7 - record["header"]["rank"]
        return record

    for path in paths:
        edited(path, reversed_world)
    assert analyze_paths([tmp_path]).report["findings"][0]["ranks"] == [2]


def test_without_such_a_communicator_ranks_go_by_host_and_pid_and_it_is_said(
    tmp_path: Path,
) -> None:
    job = InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, world_every_step=False, per_host=2)
    report = report_of(tmp_path, job)
    assert report["findings"][0]["ranks"] == [5]
    assert report["findings"][0]["nodes"] == ["worker-2"]
    assert any("go by host and pid" in note for note in report["data"]["notes"])


def test_two_orders_of_all_processes_are_refused(tmp_path: Path) -> None:
    def other_order(record: Report) -> Report:
        record["header"] |= {"id": "0xother", "rank": 3 - record["header"]["rank"]}
        return record

    for path in write_inspector(tmp_path, InspectorJob(steps=5)):
        more = path.with_suffix(".more")
        shutil.copy(path, more)
        edited(more, other_order)
    with pytest.raises(InputError, match="number them differently"):
        analyze_paths([tmp_path])


def test_two_jobs_at_a_time_are_refused_and_of_attempts_the_last_is_read(tmp_path: Path) -> None:
    def an_hour_later(record: Report) -> Report:
        record["metadata"]["dump_timestamp_us"] += 3_600_000_000
        record["metadata"]["pid"] += 1000
        return record

    write_inspector(tmp_path / "a", InspectorJob(steps=30, seed=1))
    for path in write_inspector(tmp_path / "b", InspectorJob(steps=50, seed=2)):
        edited(path, lambda r: r | {"metadata": r["metadata"] | {"hostname": "other"}})
    with pytest.raises(InputError, match="share no communicator"):
        analyze_paths([*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()])
    for path in (tmp_path / "b").iterdir():
        edited(path, an_hour_later)
    report = analyze_paths([*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()]).report
    assert report["job"]["steps"] == 50
    assert any("of an earlier attempt" in note for note in report["data"]["notes"])


def test_one_file_of_all_processes_and_duplicates_give_the_same_answer(tmp_path: Path) -> None:
    paths = write_inspector(tmp_path / "all", InspectorJob(slow=2, extra_ms=1.5))
    one = tmp_path / "one.jsonl"
    one.write_text("".join(path.read_text() for path in paths) + paths[0].read_text())
    report = analyze_paths([one]).report
    assert report["findings"] == analyze_paths([tmp_path / "all"]).report["findings"]
    assert report["data"]["dropped"] == {"duplicate": 180}


def test_records_that_are_none_are_told_with_their_line(tmp_path: Path) -> None:
    (path, *_) = write_inspector(tmp_path, InspectorJob(slow=2, extra_ms=1.5))
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace('"coll_exec_time_us":', '"coll_exec_time_us":-')
    lines[4] = lines[4].replace('"n_ranks":4', '"n_ranks":0')
    lines[5] = lines[5].replace('"coll_sn"', '"sn"')
    path.write_text("\n".join(lines) + '\n{"header":{"id"')
    report = analyze_paths([tmp_path]).report
    assert report["data"]["dropped"] == {"invalid": 3, "torn_line": 1, "unpaired": 9}
    assert any(f"{path}:6: no usable record: 'coll_sn' is missing" in n for n in _notes(report))
    assert report["findings"][0]["ranks"] == [2]


def test_single_records_that_contradict_the_others_are_left_out(tmp_path: Path) -> None:
    def wrong(record: Report) -> Report:
        number = record["coll_perf"]["coll_sn"]
        if number == 7:
            record["header"]["rank"] = 3
        elif number == 8:
            record["metadata"]["pid"] = 1
        elif number == 9:
            record["header"]["id"] = "0xdamaged"
        return record

    paths = write_inspector(tmp_path, InspectorJob(slow=2, extra_ms=1.5))
    edited(paths[0], wrong)
    report = analyze_paths([tmp_path]).report
    assert report["data"]["dropped"] == {"contradiction": 3, "unpaired": 9}
    assert report["findings"][0]["ranks"] == [2]


def _notes(report: Report) -> list[str]:
    notes: list[str] = report["data"]["notes"]
    return notes


PROMETHEUS = (
    'nccl_collective_exec_time_microseconds{version="v5.1",slurm_job_id="unknown",node="n",'
    'gpu="GPU0",comm_name="DP",n_nodes="1",nranks="4",collective="AllReduce"} 9498.47\n'
)


def test_its_text_for_prometheus_is_known_and_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "nccl_inspector_gpu0.prom").write_text("# HELP x\n" + PROMETHEUS)
    with pytest.raises(InputError, match="NCCL_INSPECTOR_PROM_DUMP=1"):
        analyze_paths([tmp_path])


def test_only_what_the_plugin_writes_is_taken_for_its_file() -> None:
    assert begins_inspector(b'{"header":{"id":"0x1"},"metadata":{},"coll_perf":{}}\n')
    assert begins_inspector(b'{"header":{},"metadata":{},"p2p_perf":{"p2p":"Send"}}\n')
    assert not begins_inspector(b'{"schema":"paceline.events/1","world_size":2}\n')
    assert not begins_inspector(b'{"traceEvents":[{"name":"coll_perf"}]}\n')
    assert not begins_inspector(b"")


def test_a_period_is_taken_only_where_it_holds_for_all_that_is_known() -> None:
    numbers = np.arange(60, dtype=np.int64)
    sizes = np.array([8, 8, 4] * 20, dtype=np.int64)
    assert find_period(numbers, sizes) == 3
    some = numbers % 7 != 3  # a few lost on every rank
    assert find_period(numbers[some], sizes[some]) == 3
    warm_up = np.append(np.array([1, 2, 9], dtype=np.int64), sizes)[:60]
    assert find_period(numbers, warm_up) == 3
    broken = sizes.copy()
    broken[40] = 5
    assert find_period(numbers, broken) == 1
    assert find_period(numbers, np.full(60, 8, dtype=np.int64)) == 1
    too_small = numbers % 4 != 0  # one in four is below the size that is recorded
    assert find_period(numbers[too_small], np.full(45, 8, dtype=np.int64)) == 4
