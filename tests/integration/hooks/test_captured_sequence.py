from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.vocabulary import P2P_OPS, Flag, Op, op_name
from tests.integration.hooks.kit import Finished, free_port, run_ranks

pytestmark = pytest.mark.integration
RANKS = (0, 1, 2)
LATE = 5


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, hooks: Mapping[str, str]) -> Finished:
    directory: Path = tmp_path_factory.mktemp("operations")
    env = {**hooks, "SECOND_PORT": str(free_port())}
    finished = run_ranks("operations.py", directory, 3, env=env)
    assert finished.returncodes == [0, 0, 0], "\n".join(finished.output)
    return finished


def test_the_hooks_that_were_chosen_serve(job: Finished, hooks: Mapping[str, str]) -> None:
    chosen = "python" if hooks["PACELINE_NATIVE"] == "off" else "native"
    assert {ring.info["hooks"] for ring in job.rings.values()} == {chosen}


def test_every_operation_is_captured_with_its_group_bytes_and_root(job: Finished) -> None:
    for rank in RANKS:
        ring = job.rings[rank]
        captured = [
            [ring.groups[r.group]["name"], op_name(Op(r.code)), r.payload_bytes, r.peer]
            for r in sorted(ring.collectives(), key=lambda r: r.start_ns)
        ]
        assert captured == job.said[rank]


def test_no_hook_failed_and_every_ring_was_closed(job: Finished) -> None:
    for rank in RANKS:
        ring = job.rings[rank]
        assert (ring.errors, ring.closed, ring.inflight) == (0, True, [])
        assert (ring.identity.rank, ring.identity.world_size) == (rank, 3)
        assert (ring.identity.job, ring.identity.run_id) == ("kit", "kit-run")


def test_collectives_count_per_group_without_gaps(job: Finished) -> None:
    for rank in RANKS:
        ring = job.rings[rank]
        for index in ring.groups:
            seqs = [r.seq for r in ring.collectives() if r.group == index and r.code not in P2P_OPS]
            assert sorted(seqs) == list(range(len(seqs)))


def test_messages_count_per_direction_so_that_send_meets_receive(job: Finished) -> None:
    def ends(op: Op) -> set[tuple[int, int, int]]:
        found = set()
        for rank in RANKS:
            for r in job.rings[rank].collectives():
                if r.code == op:
                    pair = (rank, r.peer) if op is Op.SEND else (r.peer, rank)
                    found.add((*pair, r.seq))
        return found

    assert ends(Op.SEND) == ends(Op.RECV)
    assert ends(Op.SEND) == {(0, 1, 0), (0, 1, 1), (0, 1, 2), (1, 0, 0), (2, 0, 0)}


def test_a_subgroup_is_described_by_global_ranks(job: Finished) -> None:
    described = [g for g in job.rings[2].groups.values() if g["mesh_dim"] == "pair"]
    assert [(g["ranks"], g["backend"], g["epoch"]) for g in described] == [("1-2", "gloo", 0)]
    assert all(g["mesh_dim"] != "pair" for g in job.rings[0].groups.values())


def test_a_group_that_is_initialised_again_is_another_epoch_and_counts_from_zero(
    job: Finished,
) -> None:
    for rank in RANKS:
        ring = job.rings[rank]
        worlds = [g for g in ring.groups.values() if g["ranks"] == "0-2"]
        assert [(g["name"], g["epoch"]) for g in worlds] == [("0", 0), ("0", 1)]
        last = max(ring.collectives(), key=lambda r: r.start_ns)
        assert (ring.groups[last.group]["epoch"], last.seq) == (1, 0)


def test_a_late_rank_is_the_last_arriver_and_has_the_shortest_duration(job: Finished) -> None:
    lateness_ns, last = [], []
    for late in range(1, 2 * LATE, 2):  # operations.py: barrier, all_reduce, barrier, ...
        at = {rank: job.rings[rank].collectives()[late] for rank in RANKS}
        assert {r.seq for r in at.values()} == {late}
        lateness_ns.append(at[1].start_ns - max(at[0].start_ns, at[2].start_ns))
        durations = {rank: r.end_ns - r.start_ns for rank, r in at.items()}
        last.append(min(durations, key=durations.__getitem__))
    assert 25e6 < statistics.median(lateness_ns) < 60e6
    assert statistics.mode(last) == 1


def test_the_time_when_a_caller_began_to_wait_is_kept(job: Finished) -> None:
    asynchronous = job.rings[0].collectives()[2 * LATE]
    immediate = [r for r in job.rings[0].collectives() if not r.flags & Flag.ASYNC]
    assert len(immediate) > 10
    assert sorted(r.join_ns - r.start_ns for r in immediate)[len(immediate) // 2] < 5e6
    assert asynchronous.flags & Flag.ASYNC
    assert asynchronous.join_ns - asynchronous.start_ns >= 20e6


def test_functional_collectives_are_released_by_wait_tensor(job: Finished) -> None:
    ring = job.rings[0]
    # operations.py: the last all_gather of the first world is the functional one.
    gathers = [r for r in ring.collectives() if r.code == Op.ALL_GATHER]
    functional = max(gathers, key=lambda r: r.start_ns)
    assert not functional.flags & Flag.RELEASE_POLLED
    assert functional.join_ns - functional.start_ns >= 20e6
    if job.rings[0].info["hooks"] == "python":
        assert functional.end_ns >= functional.join_ns
    else:  # the operation itself: it may be over before its caller begins to wait
        assert functional.end_ns > functional.start_ns


def test_times_of_a_record_are_in_order(job: Finished) -> None:
    for rank in RANKS:
        ring = job.rings[rank]
        for r in ring.collectives():
            assert 0 < r.start_ns == r.issue_ns < r.end_ns
            if ring.info["hooks"] == "native":
                assert r.join_ns == 0 or r.start_ns <= r.join_ns
            elif not r.flags & Flag.RELEASE_POLLED:
                assert r.start_ns <= r.join_ns <= r.end_ns
