from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import InputError
from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.records import Records, concatenate
from paceline_service.importers.events import read_event_log
from paceline_service.importers.sources import answer_paths
from tests.simulator.job import Scenario, simulate
from tests.unit.importers.logs import (
    MS,
    all_reduce,
    header,
    phase,
    small_job,
    text,
    write,
    write_simulated,
)


def by_rank(paths: list[Path]) -> dict[int, Records]:
    parts: dict[int, list[Records]] = {}
    with read_event_log(paths) as log:
        for records in log.rounds():
            for part in records:
                parts.setdefault(part.rank, []).append(part)
    return {rank: concatenate(batches) for rank, batches in sorted(parts.items())}


def of_kind(records: Records, kind: RecordKind) -> Records:
    return records.take(records.kind == kind)


def test_collectives_and_phases_come_with_all_their_columns(tmp_path: Path) -> None:
    records = by_rank([write(tmp_path / "a.ndjson", small_job())])
    collectives = of_kind(records[1], RecordKind.COLLECTIVE)
    assert collectives.seq.tolist() == [0, 1, 2]
    assert collectives.payload_bytes.tolist() == [4096] * 3
    assert (collectives.end_ns - collectives.start_ns).tolist() == [10 * MS] * 3
    assert len(of_kind(records[0], RecordKind.PHASE)) == 3


def test_gzip_is_recognised_by_content_and_not_by_name(tmp_path: Path) -> None:
    packed = write(tmp_path / "a.ndjson.gz", small_job())
    misnamed = packed.rename(tmp_path / "plain.txt")
    assert len(by_rank([misnamed])) == 2


def test_a_directory_of_files_per_rank_equals_one_file_of_all(tmp_path: Path) -> None:
    lines = small_job(4)
    for rank in range(4):
        mine = [line for line in lines[1:] if line["rank"] == rank]
        write(tmp_path / f"rank {rank} of 'job'.ndjson", [lines[0], *mine])
    one = by_rank([write(tmp_path.parent / f"{tmp_path.name}.ndjson", lines)])
    many = by_rank(sorted(tmp_path.iterdir()))
    assert one.keys() == many.keys() == {0, 1, 2, 3}
    for rank, records in one.items():
        assert np.array_equal(records.start_ns, many[rank].start_ns)


def test_the_order_of_files_and_ranks_does_not_let_one_rank_run_ahead(tmp_path: Path) -> None:
    paths = write_simulated(tmp_path, simulate(Scenario(steps=400)), per_rank=True)
    reached = dict.fromkeys(range(4), 0)
    with read_event_log(paths) as log:
        for records in log.rounds():
            for part in records:
                reached[part.rank] = max(reached[part.rank], int(part.step.max()))
            assert max(reached.values()) - min(reached.values()) <= 1


def test_a_round_holds_no_more_steps_than_are_asked_for(tmp_path: Path) -> None:
    paths = write_simulated(tmp_path, simulate(Scenario(steps=50)))
    with read_event_log(paths) as log:
        for records in log.rounds(max_steps=1):
            assert len({step for part in records for step in part.step.tolist()}) == 1


def test_a_written_log_is_read_back_as_it_was(tmp_path: Path) -> None:
    job = simulate(Scenario(data_parallel=2, tensor_parallel=2, steps=20))
    records = by_rank(write_simulated(tmp_path, job))
    for rank, rows in enumerate(job.rows):
        got = list(zip(*(getattr(records[rank], n).tolist() for n in _NAMES), strict=True))
        # A log tells when something was issued of collectives only.
        told = [
            (*row[:10], row[10] if row[0] == RecordKind.COLLECTIVE else 0, row[11]) for row in rows
        ]
        assert got == [tuple(int(value) for value in row) for row in told]


_NAMES = (
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
    "start_ns", "end_ns", "join_ns", "issue_ns", "flags",
)  # fmt: skip


def test_a_foreign_log_is_taken_to_have_blocked_from_the_start_of_a_collective(
    tmp_path: Path,
) -> None:
    collectives = of_kind(by_rank([write(tmp_path / "a", small_job())])[0], RecordKind.COLLECTIVE)
    assert np.array_equal(collectives.join_ns, collectives.start_ns)


def test_flags_of_a_foreign_log_say_that_it_did_not_block(tmp_path: Path) -> None:
    lines = [header(), all_reduce(0, 0, flags=int(Flag.ASYNC | Flag.RELEASE_POLLED))]
    collectives = of_kind(by_rank([write(tmp_path / "a", lines)])[0], RecordKind.COLLECTIVE)
    assert collectives.join_ns.tolist() == [0]


def test_a_join_that_is_told_is_kept(tmp_path: Path) -> None:
    lines = [header(), all_reduce(0, 0, start_ns=5, join_ns=7, end_ns=9)]
    collectives = of_kind(by_rank([write(tmp_path / "a", lines)])[0], RecordKind.COLLECTIVE)
    assert (collectives.join_ns - collectives.start_ns).tolist() == [2]


def test_a_foreign_clock_that_begins_at_zero_is_not_taken_for_unknown(tmp_path: Path) -> None:
    lines = [header(), all_reduce(0, 0, start_ns=0, end_ns=5)]
    collectives = of_kind(by_rank([write(tmp_path / "a", lines)])[0], RecordKind.COLLECTIVE)
    assert collectives.start_ns.tolist() == [1]
    assert collectives.end_ns.tolist() == [6]


def test_a_pending_collective_has_no_end(tmp_path: Path) -> None:
    lines = [*small_job(), all_reduce(0, 3, end_ns=None)]
    assert by_rank([write(tmp_path / "a", lines)])[0].end_ns.min() == 0


def test_a_job_without_phases_and_a_rank_without_records_are_fine(tmp_path: Path) -> None:
    lines = [header(3), all_reduce(0, 0), all_reduce(2, 0)]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert (log.world_size, log.ranks) == (3, [0, 2])
        assert not log.faults.counts


def test_a_rank_that_joins_late_is_given_from_its_first_step_on(tmp_path: Path) -> None:
    lines = small_job(2, steps=6)
    late = [line for line in lines if line.get("rank") != 1 or line["step"] >= 4]
    assert by_rank([write(tmp_path / "a", late)])[1].step.min() == 4


def test_unknown_keys_are_ignored_and_unknown_lines_are_told(tmp_path: Path) -> None:
    lines = [*small_job(), {"rank": 0, "weather": "fine"}]
    lines[1] |= {"colour": "blue"}
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert log.faults.counts == {"unknown_line": 1}
        assert not log.faults.lossy


def test_telemetry_and_how_ranks_ended_are_kept_aside(tmp_path: Path) -> None:
    lines = [
        *small_job(),
        {"rank": 0, "time_ns": 5, "telemetry": {"sm_clock_hz": 1}},
        {"rank": 1, "ended": "killed", "dropped": {"overrun": 4}},
    ]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert [sample.rank for sample in log.telemetry] == [0]
        assert log.ended == {1: "killed"}
        assert log.dropped == {1: {"overrun": 4}}


def test_a_shared_clock_is_one_domain_for_all(tmp_path: Path) -> None:
    lines = [header(clock="shared"), all_reduce(0, 0)]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert set(log.clock_domains.values()) == {"shared"}


def test_groups_of_one_name_in_two_files_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        lines = [header(groups={"tp": [rank]}), all_reduce(rank, 0, group="tp")]
        write(tmp_path / f"{rank}.ndjson", lines)
    with read_event_log(sorted(tmp_path.iterdir())) as log:
        assert [group.ranks for group in log.groups] == [(0,), (1,)]


def test_the_same_file_given_twice_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", small_job())
    with answer_paths([path, tmp_path, path]) as answer:
        assert answer.log is not None
        assert not answer.faults.counts
        assert sum(len(part) for records in answer.log.rounds() for part in records) == 2 * 9


def test_a_header_may_come_again_with_more_groups(tmp_path: Path) -> None:
    lines = [*small_job(), header(groups={"new": [0, 1]}), all_reduce(0, 3, group="new")]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert [group.name for group in log.groups] == ["dp0", "new"]
        assert not log.faults.counts


def test_memory_stays_bounded_however_long_the_log_is(tmp_path: Path) -> None:
    path = tmp_path / "long.ndjson"
    with path.open("wb") as file:
        file.write(text([header()]))
        for first in range(0, 20_000, 500):
            file.write(text(phase(0, step) for step in range(first, first + 500)))
    with read_event_log([path]) as log:
        assert max(len(part) for records in log.rounds() for part in records) < 2_500


def test_of_a_directory_with_all_attempts_of_a_run_the_latest_is_read(tmp_path: Path) -> None:
    for attempt in (0, 1):
        lines = [header(run_id="r", attempt=attempt), all_reduce(0, attempt)]
        write(tmp_path / f"{attempt}.ndjson", lines)
    with read_event_log(sorted(tmp_path.iterdir())) as log:
        assert log.attempt == 1
        assert log.faults.counts == {"skipped_file": 1}
        assert not log.faults.lossy


def test_files_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "0.ndjson", [header(run_id="r"), all_reduce(0, 0)])
    write(tmp_path / "1.ndjson", [header(run_id="q"), all_reduce(0, 0)])
    with pytest.raises(InputError, match=r"1\.ndjson:1: run_id is 'q', but 'r' in .*0\.ndjson:1"):
        read_event_log(sorted(tmp_path.iterdir()))


def test_a_stray_log_of_another_job_is_left_out_and_told(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path / f"{rank}.ndjson", [header(4, job="llama"), all_reduce(rank, 0)])
    write(tmp_path / "9.ndjson", [header(4, job="mistral"), all_reduce(0, 0)])
    write(tmp_path / "8.ndjson", [header(2, job="llama"), all_reduce(0, 0)])
    with read_event_log(sorted(tmp_path.iterdir())) as log:
        assert log.ranks == [0, 1, 2, 3]
        assert log.faults.counts == {"other_job": 2}
        assert log.faults.lossy
        first, second = log.faults.notes()
        assert "9.ndjson:1: left out: of another job: job is 'mistral', of the other" in first
        assert "8.ndjson:1: left out: of another job: world_size is 2, of the other" in second


def test_losses_are_cumulative_in_a_file_and_summed_over_the_files_of_a_rank(
    tmp_path: Path,
) -> None:
    for name, counts in (("a", (1, 5)), ("b", (7,))):
        ends = [{"rank": 0, "ended": None, "dropped": {"overrun": count}} for count in counts]
        write(tmp_path / f"{name}.ndjson", [header(), *ends])
    with read_event_log(sorted(tmp_path.iterdir())) as log:
        assert log.dropped == {0: {"overrun": 12}}
