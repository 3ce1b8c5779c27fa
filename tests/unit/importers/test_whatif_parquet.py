from __future__ import annotations

import builtins
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.sources import Answer, analyze_paths
from paceline_service.importers.whatif_columns import read_columns
from paceline_service.importers.whatif_pairs import pair_transfers
from paceline_service.importers.whatif_parquet import _grid
from tests.unit.importers.what_if_traces import pipeline_ops, write_trace


def answer_of(directory: Path, ops: list[dict[str, Any]]) -> Answer:
    write_trace(directory / "trace-T.parquet", ops)
    return analyze_paths([directory])


def test_a_heavy_stage_of_a_trace_is_named_by_the_code_that_judges_live_jobs(
    tmp_path: Path,
) -> None:
    (tmp_path / "meta-T.yaml").write_text("trial_name: T\nworld_size: 8\npp_size: 4\n")
    report = answer_of(tmp_path, pipeline_ops()).report
    assert report["verdict"] == "stage_imbalance"
    (finding,) = report["findings"]
    assert finding["ranks"] == [6, 7]
    assert finding["slowdown"] == pytest.approx(1.6, abs=0.02)
    assert report["job"]["name"] == "T"
    assert (report["job"]["world_size"], report["job"]["steps"]) == (8, 12)
    assert report["what_if"]["m_s"] > 0.9
    assert report["data"]["dropped"] == {}


def test_a_trace_without_its_meta_file_gives_the_same_figures(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "meta-T.yaml").write_text("trial_name: T\nworld_size: 8\n")
    ops = pipeline_ops()
    with_meta = answer_of(tmp_path / "with", ops).report
    (tmp_path / "without").mkdir()
    without = answer_of(tmp_path / "without", ops).report
    assert without["what_if"] == with_meta["what_if"]
    assert without["findings"] == with_meta["findings"]


def test_an_even_trace_has_no_stage_imbalance(tmp_path: Path) -> None:
    report = answer_of(tmp_path, pipeline_ops(weight=(1, 1, 1, 1))).report
    assert report["findings"] == []


def test_transfers_of_a_link_are_paired_with_those_of_the_next_stage(tmp_path: Path) -> None:
    report = answer_of(tmp_path, pipeline_ops(steps=3, microbatches=4)).report
    # 3 links a replica, both ways, 4 microbatches; 4 all-gathers, 4 reduce-scatters, 1 clip,
    # 8 layer norms of a single rank each.
    per_step = 2 * 3 * 2 * 4 + 4 + 4 + 1 + 8
    assert report["job"]["collectives"] == 3 * per_step


def test_a_lost_transfer_unpairs_its_link_and_step_and_nothing_else(tmp_path: Path) -> None:
    ops = pipeline_ops()
    lost = next(
        op for op in ops if op["optype"] == "forward-recv" and (op["rank"], op["step"]) == (2, 105)
    )
    answer = answer_of(tmp_path, [op for op in ops if op is not lost])
    assert answer.faults.counts["unpaired"] == 4 + 3
    assert answer.report["verdict"] == "stage_imbalance"
    assert not answer.report["data"]["complete"]


def test_several_chunks_on_a_rank_pair_by_the_computation_they_belong_to(tmp_path: Path) -> None:
    """Two ranks, two chunks each: what goes from the last rank to the first goes round the end."""
    ops = chunked_ops()
    trace = read_columns(write_trace(tmp_path / "trace-V.parquet", ops), Faults())
    tensor_rank, rank_of = _grid(trace, tmp_path)
    pairs = pair_transfers(trace, rank_of, tensor_rank)
    assert pairs.unpaired == 0
    links = sorted(
        {(int(d), int(a), int(b)) for d, a, b in zip(pairs.direction, pairs.source,
                                                    pairs.destination, strict=True)}
    )  # fmt: skip
    assert links == [(0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 0)]
    # Chunks 0 to 3 are joined by three transfers each way, each seen from both sides.
    assert len(pairs.row) == 2 * 3 * 2


def chunked_ops() -> list[dict[str, Any]]:
    """One microbatch through chunks 0, 2 on rank 0 and 1, 3 on rank 1, no-ops included."""
    ops: list[dict[str, Any]] = []

    def add(rank: int, name: str, start: float, length: float, chunk: int, number: int) -> None:
        ops.append(
            {"dp_rank": 0, "stage": rank, "rank": rank, "step": 1, "optype": name,
             "start_ts": start, "duration": length, "seq_id": number, "mc": max(chunk, 0) // 2,
             "mb_id": 0, "gmc": chunk if "compute" in name else -1}
        )  # fmt: skip

    for index, chunk in enumerate((0, 1, 2, 3)):
        start = 0.1 * (index + 1)
        number = chunk // 2
        add(chunk % 2, "forward-recv", start - 0.02, 0.02, chunk, number)
        add(chunk % 2, "forward-compute", start, 0.05, chunk, number)
        add(chunk % 2, "forward-send", start + 0.05, 0.03, chunk, number)
    for index, chunk in enumerate((3, 2, 1, 0)):
        start = 0.1 * (index + 5)
        number = 1 - chunk // 2
        add(chunk % 2, "backward-recv", start - 0.02, 0.02, chunk, number)
        add(chunk % 2, "backward-compute", start, 0.05, chunk, number)
        add(chunk % 2, "backward-send", start + 0.05, 0.03, chunk, number)
    return ops


def test_a_collective_beside_a_computation_is_waited_for_only_after_it(tmp_path: Path) -> None:
    ops = pipeline_ops(steps=10, weight=(1, 1, 1, 1))
    for op in list(ops):
        if op["optype"] == "params-all-gather":
            op["duration"] = 0.015  # to the middle of the first forward of stage 0
    report = answer_of(tmp_path, ops).report
    settled_steps, work_s = 5, 4 * 0.03 + 0.003
    assert report["ranks"][0]["self_ns"] >= settled_steps * work_s * 1e9


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "copy it again"),
        (lambda raw: raw[:4], "copy it again"),
        (lambda raw: raw[:-8] + b"\xff" * 8, "copy it again"),
    ],
)
def test_a_file_that_is_cut_off_or_damaged_is_told(
    tmp_path: Path, spoil: Any, message: str
) -> None:
    path = write_trace(tmp_path / "trace-T.parquet", pipeline_ops(steps=1))
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        analyze_paths([tmp_path])


@pytest.mark.parametrize("column", ["rank", "optype", "start_ts"])
def test_a_parquet_file_without_the_columns_is_told_which(tmp_path: Path, column: str) -> None:
    write_trace(tmp_path / "x.parquet", pipeline_ops(steps=1), leave_out=(column,))
    with pytest.raises(InputError, match=rf"without the columns {column}"):
        analyze_paths([tmp_path / "x.parquet"])


def changed(ops: list[dict[str, Any]], every: int, **values: Any) -> list[dict[str, Any]]:
    return [{**op, **values} if i % every == 0 else op for i, op in enumerate(ops)]


@pytest.mark.parametrize(
    "values",
    [
        {"start_ts": float("nan")}, {"duration": -1.0}, {"duration": float("inf")},
        {"start_ts": None}, {"rank": -3}, {"step": -1}, {"duration": 1e9},
    ],
)  # fmt: skip
def test_unusable_rows_are_counted_and_many_of_them_refused(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    ops = pipeline_ops()
    some = answer_of(tmp_path, changed(ops, 400, **values))
    assert some.report["data"]["dropped"]["invalid"] == len(range(0, len(ops), 400))
    assert "NaN" not in json.dumps(some.report)
    with pytest.raises(InputError, match="unusable"):
        answer_of(tmp_path, changed(ops, 5, **values))


def test_a_column_of_words_where_numbers_belong_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="numbers"):
        answer_of(tmp_path, changed(pipeline_ops(steps=1), 1, start_ts="soon"))


def test_operations_of_unknown_types_are_left_out_and_a_trace_of_nothing_else_refused(
    tmp_path: Path,
) -> None:
    ops = pipeline_ops()
    answer = answer_of(tmp_path, [*ops, {**ops[0], "optype": "moe-dispatch"}])
    assert answer.report["verdict"] == "stage_imbalance"
    assert any("moe-dispatch" in note for note in answer.report["data"]["notes"])
    with pytest.raises(InputError, match="no forward-compute"):
        answer_of(tmp_path, changed(ops, 1, optype="gc"))


def test_a_rank_in_two_places_is_refused(tmp_path: Path) -> None:
    ops = pipeline_ops(steps=1)
    with pytest.raises(InputError, match="a rank has one place"):
        answer_of(tmp_path, [*ops[:-1], {**ops[-1], "stage": 0}])


def test_two_traces_are_two_jobs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trace(tmp_path / f"trace-{name}.parquet", pipeline_ops(steps=1))
    with pytest.raises(InputError, match="one at a time"):
        analyze_paths([tmp_path])


def test_without_pyarrow_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(tmp_path / "trace-T.parquet", pipeline_ops(steps=1))
    real = builtins.__import__

    def without(name: str, globals: Any = None, locals: Any = None,
                fromlist: Sequence[str] | None = (), level: int = 0) -> Any:  # fmt: skip
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, globals, locals, fromlist or (), level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=re.escape("paceline-service[parquet]")):
        analyze_paths([path])


def test_one_rank_or_one_step_gives_an_answer(tmp_path: Path) -> None:
    ops = pipeline_ops(steps=1)
    one_step = answer_of(tmp_path, ops).report
    assert one_step["verdict"] == "insufficient_evidence"
    one_rank = answer_of(tmp_path, [op for op in ops if op["rank"] == 0]).report
    assert one_rank["verdict"] == "insufficient_evidence"
