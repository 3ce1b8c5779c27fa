"""Seeded jobs whose truth is known: what is paired is one collective, whatever is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto.groups import Unpaired, pair
from paceline_service.importers.kineto.order import Paired
from paceline_service.importers.kineto.transfers import Clocks
from paceline_service.importers.kineto.windows import Window, read_windows
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.pairing_jobs import (
    Call,
    Group,
    PairingJob,
    Recorded,
    cut,
    lose,
    record,
    swap,
)
from tests.unit.importers.traces import write_traces

WORLD = Group(name="0", ranks=(0, 1, 2, 3), stream=20)
EVENS, ODDS = (Group(name="1", ranks=(0, 2), stream=24), Group(name="2", ranks=(1, 3), stream=24))
LEFT, RIGHT = (Group(name="3", ranks=(0, 1), stream=28), Group(name="4", ranks=(2, 3), stream=28))
REDUCE = Call(what="allreduce", group=WORLD, elements=77)
TENSOR = tuple(Call(what="allreduce", group=group) for group in (LEFT, RIGHT))
GATHER = tuple(Call(what="_allgather_base", group=group) for group in (EVENS, ODDS))
HYBRID = (*TENSOR, *GATHER, *TENSOR, REDUCE)
PIPELINE = (
    *(Call(what="p2p", group=WORLD, source=s, destination=s + 1) for _ in range(2)
      for s in range(3)),
    *(Call(what="p2p", group=WORLD, source=s + 1, destination=s) for _ in range(2)
      for s in (2, 1, 0)),
    REDUCE,
)  # fmt: skip
REPEATING = (Call(what="allreduce", group=WORLD),)


def paired(directory: Path, recorded: Recorded) -> tuple[list[Paired], list[Unpaired], Window]:
    write_traces(directory, recorded.documents)
    (window,), world_size = read_windows(sorted(directory.glob("*.json")), Faults())
    return *pair(window, world_size), window


def wrong(found: list[Paired], window: Window, recorded: Recorded) -> int:
    """Return how many paired rows are of different collectives."""
    count = 0
    for one in found:
        ids = np.stack(
            [
                [recorded.truth[rank, int(start) // 1000] for start in
                 window[rank].calls.start_ns[one.rows[:, i]]]
                for i, rank in enumerate(one.members.tolist())
            ]
        )  # fmt: skip
        count += int((ids != ids[0]).any(axis=0).sum())
    return count


def count(found: list[Paired]) -> int:
    return sum(len(one.rows) for one in found)


@pytest.mark.parametrize("program", [HYBRID, PIPELINE, REPEATING])
@pytest.mark.parametrize("labels", ["full", "strided", "own_names"])
@pytest.mark.parametrize("seq", [None, 5])
def test_whole_traces_are_paired_whole_and_right(
    tmp_path: Path, program: tuple[Call, ...], labels: str, seq: int | None
) -> None:
    recorded = record(PairingJob(world_size=4, program=program, labels=labels, seq=seq, steps=6))
    found, left, window = paired(tmp_path, recorded)
    assert not left
    assert count(found) == 6 * len(program)
    assert wrong(found, window, recorded) == 0


def harmed(job: PairingJob, seed: int) -> Recorded:
    """Return what is left of a job's traces after cuts and a lost or a reordered record."""
    rng = np.random.default_rng([seed, len(job.program)])
    recorded = record(replace(job, seed=seed))
    documents = recorded.documents
    for rank in range(4):
        documents[rank] = cut(documents[rank], *rng.integers(0, 2 * len(job.program), 2).tolist())
    victim = int(rng.integers(4))
    if seed % 2:
        swap(recorded, victim, int(rng.integers(4, 9)))
    else:
        documents[victim] = lose(documents[victim], int(rng.integers(4, 9)))
    return recorded


def harmed_are_never_wrong(
    directory: Path, program: tuple[Call, ...], labels: str, numbered: bool, seeds: range
) -> int:
    total = 0
    for seq in (None, 5, (1 << 31) - 20):
        for late in (False, True)[: 1 + numbered]:
            job = PairingJob(
                world_size=4, program=program, labels=labels, numbered=numbered, seq=seq,
                late_launches=late, steps=8, batched=program is EXCHANGES,
            )  # fmt: skip
            for seed in seeds:
                here = directory / f"{seq}{late}{seed}"
                here.mkdir()
                recorded = harmed(job, seed)
                found, _, window = paired(here, recorded)
                assert wrong(found, window, recorded) == 0, (seq, late, seed)
                total += count(found)
    return total


EXCHANGES = (
    Call(what="p2p", group=WORLD, source=0, destination=1),
    *(Call(what="p2p", group=WORLD, source=s, destination=s + 1, both_ways=True)
      for _ in range(3) for s in range(3)),
    Call(what="p2p", group=WORLD, source=1, destination=0),
    REDUCE,
)  # fmt: skip
PROGRAMS = pytest.mark.parametrize("program", [HYBRID, PIPELINE, EXCHANGES, REPEATING])
LABELS = pytest.mark.parametrize("labels", ["full", "own_names", "nameless", "none"])
NUMBERED = pytest.mark.parametrize("numbered", [True, False])


@PROGRAMS
@LABELS
@NUMBERED
def test_windows_that_differ_and_lost_or_reordered_records_are_never_paired_wrong(
    tmp_path: Path, program: tuple[Call, ...], labels: str, numbered: bool
) -> None:
    harmed_are_never_wrong(tmp_path, program, labels, numbered, range(1))


@pytest.mark.slow
@PROGRAMS
@LABELS
@NUMBERED
def test_of_thirty_times_as_many_none_is_paired_wrong_and_not_all_are_refused(
    tmp_path: Path, program: tuple[Call, ...], labels: str, numbered: bool
) -> None:
    total = harmed_are_never_wrong(tmp_path, program, labels, numbered, range(30))
    if numbered and labels in ("full", "own_names"):
        assert total > 50


def test_a_lost_record_costs_itself_alone_where_the_group_numbers_its_collectives(
    tmp_path: Path,
) -> None:
    recorded = record(PairingJob(world_size=4, program=REPEATING, seq=9, numbered=False))
    recorded.documents[2] = lose(recorded.documents[2], 5)
    found, left, window = paired(tmp_path, recorded)
    assert (count(found), left) == (11, [])
    assert wrong(found, window, recorded) == 0
    assert found[0].left_out == {0: 1, 1: 1, 3: 1}


def test_numbers_that_begin_again_soon_are_never_paired_wrong(tmp_path: Path) -> None:
    job = PairingJob(world_size=4, program=REPEATING, seq=10, wrap=16, numbered=False, steps=30)
    recorded = record(job)
    recorded.documents[1] = cut(recorded.documents[1], 3, 0)
    found, _, window = paired(tmp_path, recorded)
    # The order repeats itself after 16, and more than half of it: nobody can say.
    assert wrong(found, window, recorded) == 0


def test_numbers_that_wrap_around_once_are_paired(tmp_path: Path) -> None:
    job = PairingJob(world_size=4, program=REPEATING, seq=(1 << 31) - 4, numbered=False)
    recorded = record(job)
    recorded.documents[1] = cut(recorded.documents[1], 3, 0)
    found, left, window = paired(tmp_path, recorded)
    assert (count(found), left) == (9, [])
    assert wrong(found, window, recorded) == 0


def test_numbers_that_mean_different_collectives_are_refused(tmp_path: Path) -> None:
    recorded = record(PairingJob(world_size=4, program=HYBRID, seq=9))
    for kernel in recorded.documents[3]["traceEvents"]:
        if kernel["args"].get("Process Group Name") == "0":
            kernel["args"]["In msg nelems"] = 5
    _, left, _ = paired(tmp_path, recorded)
    assert any("of the group is" in problem.reason for problem in left)


def test_ranks_of_different_step_counts_share_the_steps_that_all_have(tmp_path: Path) -> None:
    recorded = record(PairingJob(world_size=4, program=HYBRID, steps=10))
    for rank, steps in ((1, 2), (3, 4)):
        document = recorded.documents[rank]
        per_step = 4
        document = cut(document, 0, steps * per_step)
        last = {f"ProfilerStep#{30 + step}" for step in range(10 - steps, 10)}
        document["traceEvents"] = [e for e in document["traceEvents"] if e["name"] not in last]
        recorded.documents[rank] = document
    found, _, window = paired(tmp_path, recorded)
    assert wrong(found, window, recorded) == 0
    world = next(one for one in found if len(one.members) == 4)
    assert len(world.rows) == 6


def test_windows_of_equal_length_that_began_a_repetition_apart_are_refused(tmp_path: Path) -> None:
    job = PairingJob(world_size=4, program=REPEATING, numbered=False, steps=20)
    recorded = record(job)
    for rank in range(4):
        head = 3 if rank == 2 else 0
        recorded.documents[rank] = cut(recorded.documents[rank], head, 3 - head)
    found, left, _ = paired(tmp_path, recorded)
    assert not found
    assert "nobody can say which repetition is which" in left[0].reason
    assert "rank 2 recorded it" in left[0].reason


def test_peers_of_sends_are_global_ranks(tmp_path: Path) -> None:
    group = Group(name="9", ranks=(0, 2, 4, 6), stream=20)
    program = (
        Call(what="p2p", group=group, source=2, destination=4),
        Call(what="p2p", group=group, source=4, destination=6),
        Call(what="allreduce", group=group),
    )
    recorded = record(PairingJob(world_size=8, program=program, steps=4))
    found, left, window = paired(tmp_path, recorded)
    assert not left
    assert {(one.key.source, one.key.destination) for one in found} == {(2, 4), (4, 6), (-1, -1)}
    assert wrong(found, window, recorded) == 0


def test_groups_of_the_same_ranks_without_names_are_refused(tmp_path: Path) -> None:
    other = Group(name="5", ranks=WORLD.ranks, stream=99)
    program = (*REPEATING, Call(what="allreduce", group=other))
    found, left, _ = paired(
        tmp_path, record(PairingJob(world_size=4, program=program, labels="nameless"))
    )
    assert not found
    assert all("as two groups of the same ranks would" in problem.reason for problem in left)


def test_streams_that_issue_the_same_collectives_are_refused_where_nothing_names_groups(
    tmp_path: Path,
) -> None:
    other = Group(name="5", ranks=WORLD.ranks, stream=99)
    program = (*REPEATING, Call(what="allreduce", group=other))
    found, left, _ = paired(
        tmp_path, record(PairingJob(world_size=4, program=program, labels="none"))
    )
    assert not found
    assert "nothing tells which belong together" in left[0].reason


def test_calls_without_a_group_where_kernels_compute_are_of_no_group_in_particular(
    tmp_path: Path,
) -> None:
    # torch since 2.8 runs calls of any group there; coalesced ones carry no name.
    recorded = record(PairingJob(world_size=4, program=HYBRID, steps=4))
    for document in recorded.documents:
        nameless = [
            e for e in document["traceEvents"] if e["args"].get("Collective name") == "allreduce"
            and e["args"]["Process Group Name"] in "34"
        ][1::2]  # fmt: skip
        for event in nameless:
            event["args"] = {key: event["args"][key] for key in ("stream", "grid", "correlation")}
        (tmp_path / "alone").mkdir(exist_ok=True)
    found, left, _ = paired(tmp_path / "alone", recorded)
    assert (count(found), left) == (4 * len(HYBRID), [])
    for document in recorded.documents:
        compute = {"stream": LEFT.stream, "correlation": 0}
        first = document["traceEvents"][1]
        document["traceEvents"].append(first | {"name": "gemm", "dur": 1, "args": compute})
    (tmp_path / "computes").mkdir()
    found, left, _ = paired(tmp_path / "computes", recorded)
    assert {one.key.name for one in found} == {"0", "1", "2", "3", "4"}
    assert sum(problem.count for problem in left) == 4 * 4
    assert "does not say of which it is" in left[0].reason


@pytest.mark.parametrize("labels", ["full", "own_names", "nameless"])
@pytest.mark.parametrize("seq", [None, 5])
def test_batches_of_one_transfer_or_of_an_exchange_are_paired(
    tmp_path: Path, labels: str, seq: int | None
) -> None:
    # Batches move the group's numbers on, on the ranks that take part: then they say nothing.
    job = PairingJob(world_size=4, program=EXCHANGES, labels=labels, batched=True, steps=6, seq=seq)
    recorded = record(job)
    found, left, window = paired(tmp_path, recorded)
    assert not left
    assert count(found) == 6 * len(EXCHANGES)
    assert wrong(found, window, recorded) == 0
    # What two send each other at once lets neither go before the other came.
    exchanges = [one for one in found if len(one.key.ranks) == 2]
    assert {one.key.ranks for one in exchanges} == {(0, 1), (1, 2), (2, 3)}
    assert all(one.barrier_like.all() for one in exchanges)


def test_a_batch_with_several_peers_is_refused(tmp_path: Path) -> None:
    recorded = record(PairingJob(world_size=4, program=EXCHANGES, batched=True, steps=3))
    for event in recorded.documents[1]["traceEvents"]:
        if event["args"].get("Src Rank") == 2:
            event["args"]["Src Rank"] = 3
    found, left, window = paired(tmp_path, recorded)
    assert wrong(found, window, recorded) == 0
    assert any("a batch of sends and receives" in problem.reason for problem in left)


def test_transfers_of_old_traces_are_paired_by_the_names_of_their_calls(tmp_path: Path) -> None:
    job = PairingJob(world_size=4, program=PIPELINE, labels="none", titled=True, steps=6)
    recorded = record(job)
    found, left, window = paired(tmp_path, recorded)
    assert (count(found), left) == (6 * len(PIPELINE), [])
    assert wrong(found, window, recorded) == 0


def test_clocks_are_set_along_chains_of_groups(tmp_path: Path) -> None:
    middle = Group(name="5", ranks=(1, 2), stream=32)
    program = (*TENSOR, Call(what="allreduce", group=middle))
    clock_us = (0.0, 3e6, -2e6, 7.5e6)
    recorded = record(PairingJob(world_size=4, program=program, clock_us=clock_us))
    found, left, window = paired(tmp_path, recorded)
    assert not left
    clocks = Clocks(found, window)
    for rank in range(4):
        for other in range(4):
            expected = (clock_us[rank] - clock_us[other]) * 1000
            assert clocks.apart_ns(rank, other) == pytest.approx(expected, abs=5_000)
    # Without the group in the middle nothing is known across.
    apart = Clocks([one for one in found if one.key.name != "5"], window)
    assert apart.apart_ns(0, 3) is None
    assert apart.apart_ns(0, 1) == pytest.approx(-3e9, abs=5_000)


def test_a_receive_that_ends_before_its_send_began_is_refused(tmp_path: Path) -> None:
    program = (Call(what="p2p", group=WORLD, source=0, destination=3), REDUCE)
    recorded = record(PairingJob(world_size=4, program=program))
    receives = [e for e in recorded.documents[3]["traceEvents"] if "SendRecv" in e["name"]]
    late = receives[4]
    late["ts"], late["dur"] = late["ts"] - 8_000, 100
    found, left, _ = paired(tmp_path, recorded)
    assert [one.key.source for one in found] == [-1]
    assert "before rank 0 began to send, at position 4" in left[0].reason


@pytest.mark.parametrize("labels", ["full", "own_names", "strided"])
def test_of_groups_that_overlap_the_slow_rank_is_named_and_not_who_waits_for_it(
    tmp_path: Path, labels: str
) -> None:
    job = PairingJob(world_size=4, program=HYBRID, labels=labels, slow=1, steps=40)
    write_traces(tmp_path, record(job).documents)
    report = analyze_paths([tmp_path]).report
    assert report["verdict"] == "straggler"
    assert [(f["ranks"], f["cause"]) for f in report["findings"]] == [([1], "host")]
    assert report["data"]["complete"]
