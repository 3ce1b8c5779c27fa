"""What the lab says of its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_service.analysis.costs.alpha_beta import Cost
from paceline_service.lab.figures import StretchFigures
from paceline_service.lab.links import Wire
from paceline_service.lab.words import against_model, best_bucket, hidden, learned, wire_words
from tests.unit.lab.job import stretch


def figures(
    name: str = "ddp-1MiB", strategy: str = "ddp", *, step_s: float = 0.1, exposed_s: float = 0.002,
    spread_s: float = 0.001,
) -> StretchFigures:  # fmt: skip
    return StretchFigures(
        stretch=stretch(name, strategy, first=0, steps=10), syncs=[], steps=10, step_s=step_s,
        spread_s=spread_s, phases_s={}, passes_s={}, payload_bytes=8_000_000, transfer_s=0.02,
        modelled_transfer_s=0.01, exposed_s=exposed_s, modelled_exposed_s=0.001, waited_s=0.003,
        full_bytes=1,
    )  # fmt: skip


def with_losses(losses: list[float], strategy: str = "ddp") -> StretchFigures:
    one = figures(strategy, strategy)
    return replace(one, stretch=replace(one.stretch, losses=losses))


def test_a_loss_that_fell_is_said_to_have_fallen() -> None:
    told = learned([with_losses([1.4, 1.2, 0.9, 0.5, 0.3, 0.2])])
    assert told.startswith("It learns: the loss fell from 1.17 to 0.33 in 6 steps, and 90 %")


def test_a_loss_that_did_not_fall_is_said_not_to_have_fallen() -> None:
    told = learned([with_losses([1.4, 1.4, 1.4, 1.39, 1.41, 1.4])])
    assert told == "The loss did not fall (from 1.4 to 1.4 in 6 steps): train longer with --steps."


def test_equal_losses_of_all_strategies_are_pointed_out_and_others_measured() -> None:
    one, other = [1.4, 1.0, 0.9, 0.5, 0.3, 0.2], [1.4, 1.0, 0.9, 0.5, 0.3, 0.25]
    assert "how the work is divided changes nothing" in learned([with_losses(one)] * 2)
    assert "differ by 0.05 at most" in learned([with_losses(one), with_losses(other, "zero3")])


def test_what_compute_hides_is_a_share_of_the_transfers() -> None:
    assert "compute hides 90 % of that" in hidden(figures(), "cpu")
    assert "nothing of it hidden by compute" in hidden(figures(exposed_s=0.02), "cpu")
    assert "needs a stream beside the compute" in hidden(figures("zero3", "zero3"), "cpu")


@pytest.mark.parametrize(
    ("spread_s", "said"),
    [(0.001, "The shortest step has buckets of 16MiB"), (0.1, "cannot be told here")],
)
def test_the_shortest_step_of_a_sweep_is_named_only_if_steps_jitter_less(
    spread_s: float, said: str
) -> None:
    sweep = [
        figures("ddp-1MiB", step_s=0.12, exposed_s=0.001, spread_s=spread_s),
        figures("ddp-16MiB", step_s=0.10, exposed_s=0.009, spread_s=spread_s),
    ]
    told = best_bucket(sweep)
    assert "Buckets of 1MiB leave least in the open, 1 ms a step" in told
    assert said in told


def test_transfers_in_training_are_compared_with_those_alone() -> None:
    assert "2 times what they take alone: on a CPU" in against_model([figures()], "cpu")
    alike = replace(figures(), modelled_transfer_s=0.019)
    assert "holds in training too" in against_model([alike], "cpu")
    unknown = replace(figures(), modelled_transfer_s=None)
    assert "have no model here" in against_model([unknown], "cpu")


def test_alpha_and_bandwidth_are_those_of_a_ring() -> None:
    wire = Wire(op="all_reduce", size_bytes=(4096,), took_s=(1e-3,), cost=Cost(600e-6, 1.5e-9),
                off_times=1.1, off_bytes=4096)  # fmt: skip
    told = wire_words(wire, ranks=4)
    assert "alpha is 100 us a message" in told  # 2 (K-1) = 6 messages
    assert "1 GB/s (8 Gb/s) leave a rank" in told  # 2 (K-1)/K = 1.5
    assert "off this line" not in told
    assert "factor of 3 at 4.1 kB" in wire_words(replace(wire, off_times=3.0), ranks=4)
    assert "too noisy" in wire_words(replace(wire, cost=None), ranks=4)
