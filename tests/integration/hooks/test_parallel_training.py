"""What was captured of each way of parallel training, against what torch says it issued.

Torch's Flight Recorder sees what a process group is told, below the hooks and without them; it
leaves out messages between two ranks, which are known from the schedule of the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

import pytest

from paceline.hooks.replica_sets import FSDP_MODULES
from paceline.vocabulary import P2P_OPS, Op, Phase, op_name
from tests.integration.hooks.kit import Finished, Ring, run_ranks

pytestmark = pytest.mark.integration
RANKS = range(4)
STEPS = 2
WEIGHT_BYTES = 4 * 16 * 16 * 4
MICRO_BYTES = 2 * 16 * 4
ELEMENT_BYTES = {"Float": 4, "Half": 2, "Int": 4, "Long": 8, "Byte": 1}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, hooks: Mapping[str, str]) -> Finished:
    env = {**hooks, "TORCH_FR_BUFFER_SIZE": "10000", "PACELINE_REPLICA_CHECK_STEPS": "1"}
    finished = run_ranks("parallel.py", tmp_path_factory.mktemp("parallel"), 4, env=env)
    assert finished.returncodes == [0] * 4, "\n".join(finished.output)
    return finished


def steps_of(job: Finished, name: str, rank: int = 0) -> range:
    first = job.said[rank]["first"]
    names = list(first)
    return range(first[name], first[names[names.index(name) + 1]])


def in_order(ring: Ring, steps: range | None = None) -> list[Any]:
    return [
        record
        for record in sorted(ring.collectives(), key=lambda record: record.start_ns)
        if steps is None or record.step in steps
    ]


def issued(job: Finished, name: str) -> Counter[tuple[str, int]]:
    """How often rank 0 issued what in the steps of a case, but for the barrier before it."""
    return Counter(
        (op_name(Op(record.code)), record.payload_bytes)
        for record in in_order(job.rings[0], steps_of(job, name))
        if record.code != Op.BARRIER
    )


def recorded_bytes(entry: dict[str, Any], op: str, size: int) -> int:
    """The payload by the shapes that torch recorded (docs/capture.md)."""
    side = "output" if op == "scatter" else "input"  # which the root alone has
    shapes, types = entry[f"{side}_sizes"], entry[f"{side}_dtypes"]
    told = sum(prod(shape) * ELEMENT_BYTES[kind] for shape, kind in zip(shapes, types, strict=True))
    return told * size if op in ("all_gather", "scatter") else told


def test_no_hook_failed(job: Finished) -> None:
    assert [(r.errors, r.closed, r.inflight) for r in job.rings.values()] == [(0, True, [])] * 4


def test_replicas_are_compared_where_torch_keeps_them_equal_and_they_are(job: Finished) -> None:
    digests: dict[tuple[object, ...], dict[int, int]] = {}
    for rank, ring in job.rings.items():
        for one in ring.digests:
            group = ring.groups[one.group]
            key = (group["name"], group["ranks"], one.layout, one.module, one.step, one.seq)
            digests.setdefault(key, {})[rank] = one.digest
        assert ring.info["replica_check"] == "every step"
        assert "powerSGD_hook" in ring.info["replica_left_out"]
    assert all(len(set(of_ranks.values())) == 1 for of_ranks in digests.values())
    # A pipeline sends over the same group, not equally often on all ranks: then nobody is compared.
    alike = {key: of for key, of in digests.items() if key[4] < steps_of(job, "gpipe").start}
    assert all(len(of) == (4 if key[1] == "0-3" else 2) for key, of in alike.items())
    steps = {key[4] for key in digests}
    for name in ("fp16_hook", "no_sync", "zero", "two_optimizers", "hybrid"):
        assert set(steps_of(job, name)) <= steps, name
    # Six modules of DDP, without the one with PowerSGD; of FSDP2 the second root alone, in pairs.
    assert {key[3] for key in digests if key[1] == "0-3"} == {0, 1, 3, 4, 5, 6}
    assert {key[3] for key in digests if key[1] != "0-3"} == {FSDP_MODULES + 1}


def test_all_that_torch_recorded_was_captured_in_the_same_order(job: Finished) -> None:
    if job.said[0]["recorded"] is None:
        pytest.skip("this torch records no collectives of Gloo: pip install torch==2.13.*")
    for rank in RANKS:
        ring = job.rings[rank]
        sizes = {g["name"]: 4 if g["ranks"] == "0-3" else 2 for g in ring.groups.values()}
        expected = []
        for entry in job.said[rank]["recorded"]:
            group, op = entry["process_group"][0], entry["profiling_name"].removeprefix("gloo:")
            expected.append((group, op, recorded_bytes(entry, op, sizes[group])))
        captured = []
        for record in in_order(ring):
            if record.code in P2P_OPS:
                continue
            op = op_name(Op(record.code))
            # Gloo carries out a reduce_scatter as an all_reduce, and records it as such.
            op = "all_reduce" if op == "reduce_scatter" else op
            captured.append((ring.groups[record.group]["name"], op, record.payload_bytes))
        assert captured == expected


def test_ranks_agree_on_the_step_of_every_case(job: Finished) -> None:
    first = {rank: dict(job.said[rank]["first"]) for rank in RANKS}
    ends = [first[rank].pop("end") for rank in RANKS]
    assert all(first[rank] == first[0] for rank in RANKS)
    assert list(first[0].values()) == [STEPS * case for case in range(len(first[0]))]
    assert ends == [STEPS * len(first[0])] * 3 + [STEPS * (len(first[0]) - 1)]


def test_a_rank_without_an_optimizer_stays_in_its_step_and_is_captured(job: Finished) -> None:
    ring = job.rings[3]
    step = job.said[3]["first"]["without_optimizer"]
    reduced = [r for r in ring.collectives() if r.payload_bytes == 32 and r.step >= step]
    assert [r.step for r in reduced if r.code == Op.ALL_REDUCE] == [step] * STEPS
    others = [r for r in job.rings[0].collectives() if r.payload_bytes == 32 and r.step >= step]
    assert [r.seq for r in reduced] == [r.seq for r in others]


@pytest.mark.parametrize(
    ("name", "optimizers"),
    [
        ("static_graph", 1),
        ("fp16_hook", 1),
        ("power_sgd", 1),
        ("zero", 1),
        ("two_optimizers", 2),
        ("fsdp2", 1),
        ("fsdp1", 1),
        ("two_dimensions", 1),
        ("compiled_ddp", 1),
    ],
)
def test_every_step_has_its_phases_once(job: Finished, name: str, optimizers: int) -> None:
    for ring in job.rings.values():
        # The compiler calls autograd in the first step, to see what it does.
        for step in steps_of(job, name)[1 if name == "compiled_ddp" else 0 :]:
            assert len(ring.phases(Phase.BACKWARD, step)) == 1
            assert len(ring.phases(Phase.OPTIMIZER, step)) == optimizers
            if name != "compiled_ddp":  # its forward is not seen to begin (docs/capture.md)
                assert len(ring.phases(Phase.FORWARD, step)) == 1


@pytest.mark.parametrize("name", ["static_graph", "no_sync", "zero", "two_optimizers"])
def test_ddp_reduces_each_gradient_once_a_step(job: Finished, name: str) -> None:
    assert issued(job, name)["all_reduce", WEIGHT_BYTES] == STEPS


def test_accumulated_gradients_are_reduced_in_the_last_backward(job: Finished) -> None:
    ring = job.rings[0]
    for step in steps_of(job, "no_sync"):
        backwards = ring.phases(Phase.BACKWARD, step)
        (reduced,) = [r for r in ring.collectives() if (r.code, r.step) == (Op.ALL_REDUCE, step)]
        assert len(backwards) == 4
        assert backwards[-1].start_ns <= reduced.start_ns < backwards[-1].end_ns


def test_a_comm_hook_that_compresses_is_seen_in_the_bytes(job: Finished) -> None:
    assert issued(job, "fp16_hook")["all_reduce", WEIGHT_BYTES // 2] == STEPS
    # After one plain step rank-1 factors: of each 16 x 16 weight two vectors of 16.
    told = issued(job, "power_sgd")
    assert told["all_reduce", WEIGHT_BYTES] == 1
    assert told["all_reduce", 4 * 16 * 4] == 2


def test_zero_broadcasts_the_part_of_every_rank(job: Finished) -> None:
    for step in steps_of(job, "zero"):
        parts = [
            record
            for record in in_order(job.rings[0], range(step, step + 1))
            if (record.code, record.payload_bytes) == (Op.BROADCAST, WEIGHT_BYTES // 4)
        ]
        assert [record.peer for record in parts] == list(RANKS)


@pytest.mark.parametrize("name", ["fsdp1", "fsdp2"])
def test_fsdp_gathers_and_scatters_each_block(job: Finished, name: str) -> None:
    told = issued(job, name)
    block_bytes = WEIGHT_BYTES // 2
    assert told["reduce_scatter", block_bytes] == 2 * STEPS
    assert told["all_gather", block_bytes] == 4 * STEPS  # both blocks, forward and backward


def test_a_mesh_names_its_groups(job: Finished) -> None:
    meshes = [
        {g["mesh_dim"]: g["ranks"] for g in job.rings[rank].groups.values()} for rank in RANKS
    ]
    assert [mesh["tp"] for mesh in meshes] == ["0-1", "0-1", "2-3", "2-3"]
    assert [mesh["dp"] for mesh in meshes] == ["0,2", "1,3", "0,2", "1,3"]


def test_tensor_parallel_reduces_activations_in_its_own_group(job: Finished) -> None:
    ring = job.rings[0]
    activation_bytes = 4 * 16 * 4
    for name in ("tensor_parallel", "two_dimensions"):
        for step in steps_of(job, name):
            of_tp = [
                (Op(r.code), r.payload_bytes)
                for r in in_order(ring, range(step, step + 1))
                if ring.groups[r.group]["mesh_dim"] == "tp" and r.code == Op.ALL_REDUCE
            ]
            # Forward of both blocks, and backward of the second: the first has no input gradient.
            assert of_tp == [(Op.ALL_REDUCE, activation_bytes)] * 3


def test_two_dimensions_shard_over_one_and_reduce_over_the_other(job: Finished) -> None:
    ring = job.rings[0]
    for step in steps_of(job, "two_dimensions"):
        of_dp = [
            (Op(r.code), r.payload_bytes)
            for r in in_order(ring, range(step, step + 1))
            if ring.groups[r.group]["mesh_dim"] == "dp"
        ]
        half = WEIGHT_BYTES // 2
        assert of_dp == [(Op.ALL_GATHER, half), (Op.REDUCE_SCATTER, half)]


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b"])
def test_a_pipeline_sends_each_micro_batch_on_and_its_gradient_back(
    job: Finished, name: str
) -> None:
    sent: Counter[tuple[int, int, int]] = Counter()
    received: Counter[tuple[int, int, int]] = Counter()
    for rank in RANKS:
        for record in in_order(job.rings[rank], steps_of(job, name, rank)):
            if record.payload_bytes != MICRO_BYTES:
                continue  # the shapes, told before the first step
            if record.code == Op.SEND:
                sent[rank, record.peer, record.seq] += 1
            elif record.code == Op.RECV:
                received[record.peer, rank, record.seq] += 1
    assert sent == received
    assert set(sent.values()) == {1}
    pairs = Counter((source, destination) for source, destination, _ in sent)
    neighbours = [(a, b) for a in RANKS for b in RANKS if abs(a - b) == 1]
    assert pairs == Counter(dict.fromkeys(neighbours, 4 * STEPS))


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b"])
def test_a_stage_has_a_forward_and_a_backward_for_each_micro_batch(
    job: Finished, name: str
) -> None:
    for rank in RANKS:
        ring, step = job.rings[rank], steps_of(job, name, rank)[-1]  # the first infers shapes
        assert len(ring.phases(Phase.FORWARD, step)) == 4
        assert len(ring.phases(Phase.BACKWARD, step)) == 4
        assert len(ring.phases(Phase.OPTIMIZER, step)) == 1


def test_collectives_within_compiled_code_are_captured(job: Finished) -> None:
    row_bytes = 16 * 4
    assert issued(job, "functional") == Counter(
        {("all_gather", 4 * row_bytes): STEPS, ("all_reduce", 4 * row_bytes): STEPS}
    )
