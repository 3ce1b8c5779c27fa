from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.importers.sources import analyze_paths
from paceline_service.importers.timing_logs.primus_order import schedule
from tests.unit.importers.primus_dumps import (
    interleaved_times,
    pipeline_times,
    write_dump,
)


def report_of(directory: Path) -> dict[str, Any]:
    return analyze_paths([directory]).report


def test_the_heavy_stage_of_a_dump_is_named_by_the_code_that_judges_live_jobs(
    tmp_path: Path,
) -> None:
    write_dump(tmp_path, pipeline_times(), world_size=4, pp_size=4, vp_size=1, num_mbs=8)
    report = report_of(tmp_path)
    assert report["verdict"] == "stage_imbalance"
    (finding,) = report["findings"]
    assert finding["ranks"] == [3]
    assert finding["slowdown"] == pytest.approx(1.2, abs=0.01)
    assert (finding["first_step"], finding["last_step"]) == (2, 14)
    assert abs(report["what_if"]["replay_error"]) < 0.02
    assert report["data"]["dropped"] == {}


def test_a_balanced_pipeline_has_no_finding(tmp_path: Path) -> None:
    report = report_of(write_dump(tmp_path, pipeline_times(weight=(1, 1, 1, 1)), pp_size=4))
    assert report["findings"] == []


def test_ranks_whose_schedules_begin_at_other_times_are_brought_onto_one_axis(
    tmp_path: Path,
) -> None:
    apart = report_of(write_dump(tmp_path / "apart", pipeline_times(clock_ms=5.0)))
    together = report_of(write_dump(tmp_path / "together", pipeline_times()))
    assert apart["verdict"] == together["verdict"] == "stage_imbalance"
    early, late = ([row["wait_ns"] for row in one["ranks"]] for one in (together, apart))
    # A schedule that begins later waits that much less for its first micro-batch.
    begun = [12 * 5_000_000 * stage for stage in range(4)]
    assert [a - b for a, b in zip(early, late, strict=True)] == pytest.approx(begun, abs=20)
    assert apart["data"]["timings"]["alignment_margin_ms"] < 1


def test_a_first_iteration_that_compiles_is_told_and_not_judged(tmp_path: Path) -> None:
    timings = report_of(write_dump(tmp_path, pipeline_times(warm_up=4)))["data"]["timings"]
    assert timings["warm_up"] == [1]
    assert timings["iterations"] == [2, 14]
    assert (
        report_of(write_dump(tmp_path, pipeline_times(warm_up=1)))["data"]["timings"]["warm_up"]
        == []
    )


def test_a_dump_of_one_replica_of_many_says_that_ranks_are_pipeline_ranks(tmp_path: Path) -> None:
    directory = write_dump(tmp_path, pipeline_times(), world_size=64, pp_size=4, num_mbs=8)
    report = report_of(directory)
    assert report["job"]["world_size"] == 4
    assert any("of 64 ranks in the job" in note for note in report["data"]["notes"])


def test_without_a_rank_of_the_pipeline_nobody_is_said_to_wait(tmp_path: Path) -> None:
    directory = write_dump(tmp_path, pipeline_times(), pp_size=4, num_mbs=8)
    (directory / "pp_rank_1.json").unlink()
    report = report_of(directory)
    assert report["verdict"] == "insufficient_evidence"
    assert report["job"] == {
        "world_size": 4, "ranks_observed": 3, "steps": 14, "collectives": 0,
    }  # fmt: skip


def test_passes_in_an_order_that_no_known_schedule_has_are_not_paired(tmp_path: Path) -> None:
    dumps = pipeline_times()
    for own in dumps[2].values():
        for name in ("fwd_start", "fwd_end"):
            # The first two micro-batches come long before the stage before has done them.
            own[name] = [t + (10 if k < 2 else 400) for k, t in enumerate(own[name])]
        own["total"] += 400
    report = report_of(write_dump(tmp_path, dumps, pp_size=4))
    assert report["data"]["dropped"]["unpaired"] == 13
    assert report["findings"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fwd_end": [1.0]}, "invalid"),
        ({"total": -1.0}, "invalid"),
        ({"fwd_start": "soon"}, "invalid"),
        ({"fwd_start": [], "fwd_end": []}, "invalid"),
    ],
)
def test_an_iteration_that_contradicts_itself_is_left_out_of_all_ranks(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    dumps = pipeline_times()
    dumps[1]["5"] |= change
    report = report_of(write_dump(tmp_path, dumps, pp_size=4))
    assert report["data"]["dropped"] == {reason: 1, "unpaired": 3}
    assert report["job"]["steps"] == 13
    assert report["findings"][0]["ranks"] == [3]


def test_a_file_that_breaks_off_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    directory = write_dump(tmp_path, pipeline_times(), pp_size=4)
    path = directory / "pp_rank_2.json"
    path.write_text(path.read_text()[:-500])
    report = report_of(directory)
    assert report["data"]["dropped"] == {"unusable_file": 1}
    assert any("pp_rank_2.json" in note for note in report["data"]["notes"])


def test_two_dumps_of_a_rank_are_refused(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", pipeline_times(iterations=2))
    write_dump(tmp_path / "b", pipeline_times(iterations=2))
    with pytest.raises(InputError, match="both of pipeline rank 0"):
        analyze_paths([tmp_path])


def test_a_file_without_its_rank_in_its_name_is_told(tmp_path: Path) -> None:
    directory = write_dump(tmp_path, pipeline_times(), pp_size=4)
    (directory / "pp_rank_0.json").rename(directory / "first.json")
    report = report_of(directory)
    assert any("the name pp_rank_N.json alone" in note for note in report["data"]["notes"])


def test_passes_of_several_chunks_are_paired_by_their_order(tmp_path: Path) -> None:
    report = report_of(write_dump(tmp_path, interleaved_times(), pp_size=4, vp_size=2, num_mbs=8))
    assert report["data"]["dropped"] == {}
    # Each way 7 of 8 places hand on, 8 micro-batches; a side of each in 12 iterations.
    assert report["job"]["collectives"] == 2 * 7 * 8 * 12
    (finding,) = report["findings"]
    assert (finding["kind"], finding["ranks"]) == ("stage_imbalance", [3])
    assert finding["slowdown"] == pytest.approx(1.2, abs=0.01)


def test_interleaved_chunks_go_in_groups_of_as_many_micro_batches_as_there_are_stages() -> None:
    order = schedule(8, 2, 2, backward=False)
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]
    assert schedule(4, 2, 2, backward=True) == [(0, 1), (1, 1), (0, 0), (1, 0)]
