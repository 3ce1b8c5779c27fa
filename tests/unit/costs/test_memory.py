from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs.memory import layer_activations_bytes, memory_of
from paceline_service.analysis.costs.pipeline import Pipeline, Schedule
from paceline_service.analysis.costs.precision import PRECISIONS
from paceline_service.analysis.costs.strategies import Layout, Recompute, Strategy
from paceline_service.analysis.costs.transformer import Transformer, transformer_of

GB = 1e9
PAPER = transformer_of(parameters=7_500_000_000)
"""ZeRO paper, figure 1 and table 1: 7.5e9 parameters."""
GPT3 = transformer_of(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)


def states_gb(strategy: Strategy, ranks: int, model: Transformer = PAPER) -> float:
    layout = Layout(data=ranks, strategy=strategy)
    return memory_of(model, layout, PRECISIONS["zero"]).states_bytes / GB


@pytest.mark.parametrize(
    ("strategy", "ranks", "gb"),
    [
        (Strategy.DDP, 64, 120.0),
        (Strategy.ZERO1, 4, 52.5),
        (Strategy.ZERO1, 64, 31.4),
        (Strategy.ZERO1, 1024, 30.1),
        (Strategy.ZERO2, 4, 41.25),
        (Strategy.ZERO2, 64, 16.6),
        (Strategy.ZERO2, 1024, 15.1),
        (Strategy.ZERO3, 4, 30.0),
        (Strategy.ZERO3, 64, 1.875),
        (Strategy.ZERO3, 1024, 0.12),
    ],
)
def test_states_per_rank_are_those_of_the_zero_paper(
    strategy: Strategy, ranks: int, gb: float
) -> None:
    assert states_gb(strategy, ranks) == pytest.approx(gb, rel=0.03)


def test_a_rank_alone_holds_sixteen_bytes_per_parameter_whatever_the_strategy() -> None:
    for strategy in Strategy:
        if strategy is not Strategy.HYBRID:
            assert states_gb(strategy, 1) == pytest.approx(120.0)


def test_hybrid_shard_holds_as_much_as_full_shard_within_one_copy() -> None:
    hybrid = Layout(data=64, strategy=Strategy.HYBRID, shard=8)
    full = Layout(data=8, strategy=Strategy.FSDP)
    zero = PRECISIONS["zero"]
    assert memory_of(PAPER, hybrid, zero) == memory_of(PAPER, full, zero)


def test_megatron_keeps_eighteen_bytes_and_its_distributed_optimizer_six_and_twelve_shared() -> (
    None
):
    megatron = PRECISIONS["megatron"]
    assert megatron.state_bytes == 18
    model = transformer_of(parameters=1_000_000_000)
    held = memory_of(model, Layout(data=4, strategy=Strategy.ZERO1), megatron).states_bytes
    assert held == pytest.approx((6 + 12 / 4) * 1e9)


@pytest.mark.parametrize(
    ("tensor", "sequence_parallel", "recompute", "factor"),
    [
        (1, False, Recompute.NONE, 34 + 80),
        (8, False, Recompute.NONE, 10 + 24 / 8 + 80 / 8),
        (8, True, Recompute.NONE, (34 + 80) / 8),
        (8, False, Recompute.SELECTIVE, 10 + 24 / 8),
        (8, True, Recompute.SELECTIVE, 34 / 8),
        (8, False, Recompute.FULL, 2),
    ],
)
def test_activations_of_a_layer_are_those_of_table_2(
    tensor: int, sequence_parallel: bool, recompute: Recompute, factor: float
) -> None:
    # Korthikanti et al. give 5 a s / h = 80 for GPT-3.
    layout = Layout(tensor=tensor, sequence_parallel=sequence_parallel)
    unit = 2048 * 12288
    assert layer_activations_bytes(GPT3, layout, 1, recompute) == pytest.approx(factor * unit)


def test_a_first_stage_holds_activations_of_as_many_layers_as_the_whole_model_has() -> None:
    alone = Layout(tensor=8)
    layer = layer_activations_bytes(GPT3, alone, 1, Recompute.SELECTIVE)
    piped = Layout(tensor=8, pipeline=Pipeline(stages=8, micro_batches=64))
    held = memory_of(GPT3, piped, PRECISIONS["zero"]).activations_bytes
    assert held == pytest.approx(96 * layer + 8 * 2048 * 12288 / 8)


def test_gpipe_holds_every_micro_batch_and_interleaving_a_little_more_than_1f1b() -> None:
    def held(schedule: Schedule, virtual: int = 1) -> float:
        pipeline = Pipeline(stages=4, micro_batches=16, virtual_stages=virtual, schedule=schedule)
        return memory_of(GPT3, Layout(pipeline=pipeline), PRECISIONS["zero"]).activations_bytes

    once = held(Schedule.ONE_F_ONE_B)
    assert held(Schedule.GPIPE) == pytest.approx(4 * once)
    assert held(Schedule.INTERLEAVED, 3) == pytest.approx(once * (1 + 3 / (4 * 3)))


def test_recomputing_everything_keeps_least() -> None:
    def kept(recompute: Recompute) -> float:
        return memory_of(GPT3, Layout(), PRECISIONS["zero"], recompute=recompute).activations_bytes

    assert kept(Recompute.FULL) < kept(Recompute.SELECTIVE) < kept(Recompute.NONE)


def test_a_model_cannot_be_cut_into_more_stages_than_layers() -> None:
    model = transformer_of(parameters=66_000_000, layers=6, hidden=768, heads=12)
    with pytest.raises(ConfigError, match="more than the 6 layers"):
        memory_of(model, Layout(pipeline=Pipeline(stages=8)), PRECISIONS["zero"])
    with pytest.raises(ConfigError, match="--tensor is 16, more than the 12 attention heads"):
        memory_of(model, Layout(tensor=16), PRECISIONS["zero"])
