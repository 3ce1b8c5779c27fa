from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline.vocabulary import RecordKind
from paceline_service.importers.faults import Faults
from paceline_service.importers.nsys import database
from paceline_service.importers.nsys.job import read_exports
from paceline_service.importers.nsys.ranges import step_of
from paceline_service.importers.nsys.recognize import begins_nsys, how_to_export
from paceline_service.importers.offline import answer_log
from tests.unit.importers.nsys_exports import (
    G2021,
    G2023,
    G2026,
    GENERATIONS,
    UTC_NS,
    Generation,
    write_export,
)
from tests.unit.importers.traces import Json, TraceJob, traces


def report_of(paths: Sequence[Path], faults: Faults | None = None) -> dict[str, Any]:
    with read_exports(paths, faults or Faults()) as log:
        return answer_log(log).report


def named(report: dict[str, Any]) -> list[list[int]]:
    return [finding["ranks"] for finding in report["findings"]]


@pytest.fixture(scope="module")
def slow() -> list[Json]:
    return traces(TraceJob(world_size=4, steps=40, slow=2, labelled=True))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda g: g.name)
def test_the_slow_rank_of_a_node_is_named_from_exports_of_every_generation(
    tmp_path: Path, generation: Generation, slow: list[Json]
) -> None:
    report = report_of([write_export(tmp_path / "a.sqlite", slow, range(4), generation)])
    assert (report["verdict"], named(report)) == ("straggler", [[2]])
    assert report["findings"][0]["cause"] == "compute"
    assert report["data"]["complete"]


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda g: g.name)
def test_a_healthy_job_is_healthy(tmp_path: Path, generation: Generation) -> None:
    documents = traces(TraceJob(world_size=4, steps=40, labelled=True, seed=11))
    report = report_of([write_export(tmp_path / "a.sqlite", documents, range(4), generation)])
    assert (report["verdict"], named(report)) == ("healthy", [])


def test_a_rank_whose_host_launches_late_has_the_cause_host(tmp_path: Path) -> None:
    documents = traces(TraceJob(steps=40, slow=1, host_late=True, labelled=True))
    report = report_of([write_export(tmp_path / "a.sqlite", documents, range(4))])
    assert (named(report), report["findings"][0]["cause"]) == ([[1]], "host")


def test_exports_of_two_nodes_are_one_job_with_nodes_and_clocks_of_their_own(
    tmp_path: Path,
) -> None:
    documents = traces(TraceJob(world_size=8, steps=40, slow=5, labelled=True,
                                clock_us=[0] * 4 + [3_000.0] * 4))  # fmt: skip
    paths = [
        write_export(tmp_path / f"{host}.sqlite", documents, ranks, host=host)
        for host, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    with read_exports(paths, Faults()) as log:
        report = answer_log(log).report
        assert log.nodes == {r: "node-a" if r < 4 else "node-b" for r in range(8)}
        assert len({log.clock_domains[r] for r in range(4)}) == 1
        assert len(set(log.clock_domains.values())) == 2
        assert log.world_size == 8
    assert named(report) == [[5]]
    assert report["findings"][0]["nodes"] == ["node-b"]


def test_communicators_of_some_ranks_are_groups_of_their_global_ranks(tmp_path: Path) -> None:
    job = TraceJob(world_size=4, steps=40, slow=3, labelled=True, groups=((0, 2), (1, 3)))
    path = write_export(tmp_path / "a.sqlite", traces(job), range(4))
    with read_exports([path], Faults()) as log:
        assert sorted(group.ranks for group in log.groups) == [(0, 2), (1, 3)]
        assert named(answer_log(log).report) == [[3]]


def test_sends_and_receives_of_a_pipeline_are_paired_by_their_peers(tmp_path: Path) -> None:
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    documents = traces(TraceJob(world_size=2, steps=40, labelled=True, kernels=(kernel,)))
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            if event["name"] == kernel:
                event["args"]["Collective name"] = "recv" if rank else "send"
                event["args"]["Peer rank"] = 1 - rank
    faults = Faults()
    with read_exports(
        [write_export(tmp_path / "a.sqlite", documents, range(2), G2023)], faults
    ) as log:
        (group,) = log.groups
        assert (group.ranks, faults.notes()) == ((0, 1), [])
        rows = [part for records in log.rounds() for part in records]
        assert {int(peer) for part in rows for peer in part.peer if peer >= 0} == {0, 1}
        assert sum(int((part.kind == RecordKind.COLLECTIVE).sum()) for part in rows) == 80


@pytest.mark.parametrize(
    ("envs", "names"),
    [
        ([f"HOME=/x\nRANK={r}\nWORLD_SIZE=4\nLOCAL_RANK=0" for r in (2, 0, 3, 1)], "report{}"),
        ([f"SLURM_PROCID={r};SLURM_NTASKS=4" for r in (2, 0, 3, 1)], "report{}"),
        ([f'{{"OMPI_COMM_WORLD_RANK": "{r}"}}' for r in (2, 0, 3, 1)], "report{}"),
        ([""] * 4, "job 'x' rank{}"),
    ],
    ids=["torchrun", "slurm", "mpi", "name"],
)
def test_ranks_of_exports_of_one_process_come_from_environment_or_name(
    tmp_path: Path, envs: list[str], names: str, slow: list[Json]
) -> None:
    order = (2, 0, 3, 1)
    paths = []
    for i, rank in enumerate(order):
        path = tmp_path / (names.format(rank if "rank" in names else i) + ".sqlite")
        paths.append(write_export(path, slow, [rank], G2021, env=envs[i]))
    report = report_of(paths)
    assert (report["job"]["world_size"], named(report)) == (4, [[2]])


def test_exports_that_do_not_tell_their_ranks_are_refused_with_what_to_do(
    tmp_path: Path, slow: list[Json]
) -> None:
    paths = [
        write_export(tmp_path / f"{i}.sqlite", slow, (2 * i, 2 * i + 1), G2021) for i in range(2)
    ]
    with pytest.raises(InputError, match=r"0\.sqlite.*which of its 2 processes.*--trace=cuda,nvtx"):
        report_of(paths)


def test_a_rank_that_no_job_has_is_refused(tmp_path: Path, slow: list[Json]) -> None:
    path = write_export(tmp_path / "a.sqlite", slow, [0], G2021, env="RANK=9999999")
    with pytest.raises(InputError, match=r"a\.sqlite: a job of 10,000,000 ranks"):
        report_of([path])


def test_an_export_among_others_that_does_not_tell_its_rank_is_left_out_and_told(
    tmp_path: Path, slow: list[Json]
) -> None:
    paths = [write_export(tmp_path / f"rank{r}.sqlite", slow, [r], G2021) for r in range(3)]
    paths.append(write_export(tmp_path / "other.sqlite", slow, [3], G2021))
    faults = Faults()
    report = report_of(paths, faults)
    assert any("other.sqlite" in note and "which ranks" in note for note in faults.notes())
    assert named(report) == [[2]]
    assert not report["data"]["complete"]


@pytest.mark.parametrize("generation", [G2021, G2026], ids=lambda g: g.name)
def test_one_process_with_several_gpus_is_a_rank_for_each(
    tmp_path: Path, generation: Generation, slow: list[Json]
) -> None:
    path = write_export(tmp_path / "a.sqlite", slow, range(4), generation, together=True)
    report = report_of([path])
    assert (report["job"]["world_size"], named(report)) == (4, [[2]])


def test_of_a_node_alone_the_gpus_number_the_ranks_and_that_is_told(
    tmp_path: Path, slow: list[Json]
) -> None:
    report = report_of([write_export(tmp_path / "x.sqlite", slow, range(4), G2023, init=False)])
    assert named(report) == [[2]]
    assert any("from the numbers of the GPUs" in note for note in report["data"]["notes"])


def test_members_of_a_communicator_made_before_the_window_are_those_that_use_it(
    tmp_path: Path,
) -> None:
    job = TraceJob(world_size=4, steps=40, slow=1, labelled=True, groups=((0, 1), (2, 3)))
    path = write_export(tmp_path / "a.sqlite", traces(job), range(4), init=False)
    with read_exports([path], Faults()) as log:
        assert sorted(group.ranks for group in log.groups) == [(0, 1), (2, 3)]
        assert named(answer_log(log).report) == [[1]]


def test_times_are_those_of_the_day_where_the_session_tells_its_start(
    tmp_path: Path, slow: list[Json]
) -> None:
    with read_exports([write_export(tmp_path / "a.sqlite", slow, range(4))], Faults()) as log:
        assert all(first > UTC_NS for first, _ in log.extents.values())
    with read_exports(
        [write_export(tmp_path / "b.sqlite", slow, range(4), G2021)], Faults()
    ) as log:
        assert all(0 < first < UTC_NS for first, _ in log.extents.values())


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ProfilerStep#12", 12), ("step_12", 12), ("Step 12", 12), ("iteration 12", 12),
        ("iter: 12", 12), ("train_step 0012", 12), ("[step=12]", 12), ("step", -1),
        ("train_step", -1), ("optimizer_step", None), ("step_12_forward", None),
        ("aten::add", None), ("", None),
    ],
)  # fmt: skip
def test_the_numbers_of_steps_are_read_from_the_names_people_give_them(
    name: str, number: int | None
) -> None:
    assert step_of(name) == number


def test_steps_without_numbers_are_counted_where_all_ranks_have_equally_many(
    tmp_path: Path, slow: list[Json]
) -> None:
    report = report_of([write_export(tmp_path / "a.sqlite", slow, range(4), steps="train_step")])
    assert (named(report), report["job"]["steps"]) == ([[2]], 40)


def test_kernels_that_name_no_process_belong_to_the_only_one(
    tmp_path: Path, slow: list[Json]
) -> None:
    paths = [
        write_export(tmp_path / f"rank_{r}.sqlite", slow, [r], processes=False) for r in range(4)
    ]
    assert named(report_of(paths)) == [[2]]


def export(path: Path, slow: list[Json]) -> sqlite3.Connection:
    return sqlite3.connect(write_export(path, slow, range(4)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scrawl(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9000:200_000] = b"\xff" * 191_000
    path.write_bytes(bytes(data))


def misspell(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE NVTX", b"CREATE TABL\xff NVTX"))


def pack(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def empty(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")


def view(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        db.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 1 UNION "
            'ALL SELECT start + 1 FROM n) SELECT start, start AS "end", 1 AS globalPid FROM n'
        )


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (cut, "damaged or cut short"), (scrawl, "damaged or cut short"),
        (misspell, "schema is malformed"), (pack, "gunzip"),
        (empty, "no CUDA kernels"), (view, "no CUDA kernels"),
    ],
)  # fmt: skip
def test_a_damaged_export_is_told_by_name_and_the_others_are_judged(
    tmp_path: Path, slow: list[Json], damage: Callable[[Path], None], says: str
) -> None:
    paths = [write_export(tmp_path / f"rank{r}.sqlite", slow, [r]) for r in range(4)]
    damage(paths[0])
    faults = Faults()
    report = report_of(paths, faults)
    assert named(report) == [[2]]
    assert any("rank0.sqlite" in note and says in note for note in faults.notes())
    with pytest.raises(InputError, match=says):
        report_of(paths[:1])


def test_more_work_than_the_size_of_a_file_explains_is_refused(
    tmp_path: Path, slow: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_STEPS_BETWEEN_CHECKS", 100)
    monkeypatch.setattr(database, "_STEPS_BASE", 1000)
    monkeypatch.setattr(database, "_STEPS_PER_BYTE", 0)
    with pytest.raises(InputError, match=r"a\.sqlite.*more work than its size"):
        report_of([write_export(tmp_path / "a.sqlite", slow, range(4))])


def test_columns_that_are_computed_and_values_of_other_types_are_not_trusted(
    tmp_path: Path, slow: list[Json]
) -> None:
    path = tmp_path / "a.sqlite"
    with export(path, slow) as db:
        db.execute("INSERT INTO NVTX_EVENTS (start, \"end\", eventType, text, globalTid) "
                   "VALUES ('x', 1e300, X'00', 17, 'tid')")  # fmt: skip
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'seven' WHERE rowid = 1")
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'then' WHERE rowid = 3")
        db.execute("INSERT INTO StringIds VALUES (99999, X'FFFE00')")
        db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN more TEXT AS (hex(zeroblob(500000000)))")
        db.execute("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END")
    db.close()
    before = path.read_bytes()
    assert named(report_of([path])) == [[2]]
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite"]


def test_an_export_is_known_by_its_tables_and_a_report_by_its_name(
    tmp_path: Path, slow: list[Json]
) -> None:
    head = write_export(tmp_path / "a.sqlite", slow, range(4), G2026).read_bytes()[: 64 << 10]
    assert begins_nsys(head)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE users (id INTEGER)")
    db.close()
    assert not begins_nsys(other.read_bytes())
    assert "nsys export --type sqlite" in how_to_export(Path("a b.nsys-rep"))
    assert "nsys export" in how_to_export(Path("old.qdrep"))
    assert how_to_export(Path("a.json")) == ""
