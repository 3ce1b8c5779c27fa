"""Synchronous SGD on K ranks against SGD on one machine: the same numbers, to rounding.

Source: docs/math/replicas.md. What is trained is a linear regression, whose gradients are known in
closed form, so that nothing but the order of sums can differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.costs.units import positive, whole

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
LEARNING_RATE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A regression: N examples of d features, and what they should give."""

    features: FloatArray
    """(N, d)"""
    targets: FloatArray
    """(N,)"""

    def summed_gradient(self, weights: FloatArray, chosen: IntArray) -> FloatArray:
        """Return the sum over the examples ``chosen`` of the gradient of half the square, (d,)."""
        features = self.features[chosen]
        return features.T @ (features @ weights - self.targets[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """How far the weights of ranks are from those of one machine with the same batches.

    Attributes:
        by_step: largest deviation of any weight behind each step, by way of training: ``equal``
            shares; unequal shares, ``weighted`` by their sizes; the same, averaged as if they were
            equal (``naive``); ``elastic``: a rank is drained, then two are added, and the batch is
            divided anew each time.
        bias: largest element of (naive - exact) in the first step's gradient.
        loss: of the first and last weights, mean of half the square over all examples.
    """

    by_step: Mapping[str, tuple[float, ...]]
    bias: float
    loss: tuple[float, float]
    shares: tuple[int, ...]
    """The unequal ones."""

    @property
    def largest(self) -> dict[str, float]:
        """Return the largest deviation of any step, by way of training."""
        return {way: max(deviations) for way, deviations in self.by_step.items()}


def make_problem(seed: int, examples: int, dimensions: int) -> Problem:
    """Return a regression with noise, drawn from ``seed``."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((examples, dimensions))
    truth = draw.standard_normal(dimensions)
    return Problem(
        features=features, targets=features @ truth + 0.1 * draw.standard_normal(examples)
    )


def draw_batches(seed: int, examples: int, batch: int, steps: int) -> list[IntArray]:
    """Return which examples each step uses: every epoch all of them in another order."""
    draw = np.random.default_rng(seed)
    epochs = -(-batch * steps // examples)
    order = np.concatenate([draw.permutation(examples) for _ in range(epochs)])
    return [order[step * batch : (step + 1) * batch] for step in range(steps)]


def divide(batch: int, parts: Sequence[float]) -> list[int]:
    """Return ``batch`` divided in proportion to ``parts``, as whole numbers that sum to it."""
    ends = np.rint(np.cumsum(parts) / np.sum(parts) * batch).astype(np.int64)
    return [int(size) for size in np.diff(ends, prepend=0)]


def train_alone(problem: Problem, batches: Sequence[IntArray]) -> FloatArray:
    """Return the weights before each step and after the last, (steps + 1, d)."""
    weights = [np.zeros(problem.features.shape[1])]
    for chosen in batches:
        gradient = problem.summed_gradient(weights[-1], chosen) / len(chosen)
        weights.append(weights[-1] - LEARNING_RATE * gradient)
    return np.array(weights)


def train_ranks(
    problem: Problem,
    batches: Sequence[IntArray],
    shares: Sequence[Sequence[int]],
    *,
    by_size: bool = True,
) -> FloatArray:
    """Do the same on ranks: each takes the mean over its share, then all average the means.

    Args:
        problem: what is trained.
        batches: of each step.
        shares: of each step, how many examples each rank takes; they sum to the batch.
        by_size: weight each mean by its share; False: by 1/K, as a plain all-reduce does.

    Returns:
        The weights before each step and after the last, (steps + 1, d).
    """
    weights = [np.zeros(problem.features.shape[1])]
    for chosen, sizes in zip(batches, shares, strict=True):
        gradient = np.zeros_like(weights[0])
        for part in _parts(chosen, sizes):
            mean = problem.summed_gradient(weights[-1], part) / len(part)
            gradient += mean * (len(part) / len(chosen) if by_size else 1 / len(sizes))
        weights.append(weights[-1] - LEARNING_RATE * gradient)
    return np.array(weights)


def naive_bias(problem: Problem, chosen: IntArray, sizes: Sequence[int]) -> FloatArray:
    """Return sum_k (1/K - b_k/B) g_k at weights 0: how far the plain mean is off, (d,)."""
    start = np.zeros(problem.features.shape[1])
    bias = np.zeros_like(start)
    for part in _parts(chosen, sizes):
        mean = problem.summed_gradient(start, part) / len(part)
        bias += (1 / len(sizes) - len(part) / len(chosen)) * mean
    return bias


def deviations(one: FloatArray, other: FloatArray) -> tuple[float, ...]:
    """Return the largest difference of any weight behind each step."""
    return tuple(float(largest) for largest in np.abs(one - other).max(axis=1)[1:])


def demonstrate(
    *,
    ranks: int = 8,
    batch_per_rank: int = 64,
    steps: int = 30,
    dimensions: int = 20,
    examples: int = 4096,
    seed: int = 7,
) -> Exactness:
    """Train alone and on ranks, in the four ways of ``Exactness``.

    Raises:
        ConfigError: an argument is out of range, or a batch holds more than all examples.
    """
    whole(ranks, "--ranks", "ranks", least=2)
    # Shares go from 1 to K parts of a batch, and K + 1 ranks divide it as well.
    whole(batch_per_rank, "--batch-per-rank", "examples (of which the smallest share gets 1)",
          least=2)  # fmt: skip
    whole(steps, "--steps", "steps")
    whole(dimensions, "--dimensions", "weights")
    whole(examples, "--examples", "examples (a batch is --ranks times --batch-per-rank)",
          least=ranks * batch_per_rank)  # fmt: skip
    positive(seed + 1, "--seed", "a whole number of at least 0")
    batch = ranks * batch_per_rank
    problem = make_problem(seed, examples, dimensions)
    batches = draw_batches(seed, examples, batch, steps)
    alone = train_alone(problem, batches)
    even = divide(batch, [1] * ranks)
    uneven = divide(batch, range(1, ranks + 1))
    changing = [divide(batch, [1] * count) for count in _membership(ranks, steps)]
    losses = [
        float(np.mean((problem.features @ w - problem.targets) ** 2) / 2)
        for w in (alone[0], alone[-1])
    ]
    ways = {
        "equal": train_ranks(problem, batches, [even] * steps),
        "weighted": train_ranks(problem, batches, [uneven] * steps),
        "naive": train_ranks(problem, batches, [uneven] * steps, by_size=False),
        "elastic": train_ranks(problem, batches, changing),
    }
    return Exactness(
        by_step={way: deviations(alone, weights) for way, weights in ways.items()},
        bias=float(np.abs(naive_bias(problem, batches[0], uneven)).max()),
        loss=(losses[0], losses[1]),
        shares=tuple(uneven),
    )


def _membership(ranks: int, steps: int) -> list[int]:
    """Return how many ranks take part in each step: all, one fewer, one more than at first."""
    third = -(-steps // 3)
    return ([ranks] * third + [ranks - 1] * third + [ranks + 1] * third)[:steps]


def _parts(chosen: IntArray, sizes: Sequence[int]) -> list[IntArray]:
    return [part for part in np.split(chosen, np.cumsum(sizes)[:-1]) if len(part)]
