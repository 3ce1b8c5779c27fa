from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs import exactness as ex
from paceline_service.commands import simulate

STEPS, DIMENSIONS, EXAMPLES, RANKS = 30, 20, 4096, 8
LIMIT = 1e-14


def max_deviation(one: ex.FloatArray, other: ex.FloatArray) -> float:
    return max(ex.deviations(one, other))


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_average_equal_shares_train_as_one_machine_does_to_rounding(seed: int) -> None:
    found = ex.demonstrate(
        ranks=RANKS, steps=STEPS, dimensions=DIMENSIONS, examples=EXAMPLES, seed=seed
    )
    assert found.largest["equal"] < LIMIT  # another order of the sums, and nothing else
    assert found.loss[1] < found.loss[0] / 4  # it did train


@pytest.mark.parametrize("seed", range(5))
def test_unequal_shares_are_exact_when_weighted_by_size_and_wrong_when_not(seed: int) -> None:
    found = ex.demonstrate(seed=seed)
    assert found.largest["weighted"] < LIMIT
    assert found.largest["naive"] > 1e-3
    assert sum(found.shares) == RANKS * 64
    assert len(set(found.shares)) == RANKS


def test_the_bias_of_the_plain_mean_is_what_the_formula_says() -> None:
    problem = ex.make_problem(3, EXAMPLES, DIMENSIONS)
    (batch,) = ex.draw_batches(3, EXAMPLES, 512, 1)
    sizes = ex.divide(512, range(1, RANKS + 1))
    exact = ex.train_ranks(problem, [batch], [sizes])
    naive = ex.train_ranks(problem, [batch], [sizes], by_size=False)
    step = (exact - naive)[1] / ex.LEARNING_RATE
    assert np.abs(step - ex.naive_bias(problem, batch, sizes)).max() < 1e-13
    even = ex.divide(512, [1] * RANKS)
    assert np.abs(ex.naive_bias(problem, batch, even)).max() == 0


def test_draining_and_adding_a_rank_keeps_the_update_exact() -> None:
    assert ex.demonstrate().largest["elastic"] < LIMIT
    # Where the others do not take over the share, it is exact SGD of a smaller batch.
    problem = ex.make_problem(1, EXAMPLES, DIMENSIONS)
    batches = ex.draw_batches(1, EXAMPLES, 512, STEPS)
    kept = [batch[: 7 * 64] for batch in batches]
    seven = ex.train_ranks(problem, kept, [[64] * 7] * STEPS)
    assert max_deviation(ex.train_alone(problem, kept), seven) < LIMIT
    assert max_deviation(ex.train_alone(problem, batches), seven) > 1e-3


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("ranks", 1), ("ranks", 0), ("ranks", -8), ("batch_per_rank", 0), ("steps", 0),
        ("dimensions", -1), ("examples", 100), ("seed", -1),
    ],
)  # fmt: skip
def test_what_cannot_be_demonstrated_is_refused_by_its_argument(argument: str, value: int) -> None:
    with pytest.raises(ConfigError, match="--" + argument.replace("_", "-")):
        ex.demonstrate(**{argument: value})


def test_the_command_says_the_same_as_text_json_and_with_a_plot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert simulate.main(["exact", "--html", str(tmp_path / "exact.html")]) == 0
    text = capsys.readouterr().out
    assert "shares of 14 to 114 examples, plain mean" in text
    assert "<svg" in (tmp_path / "exact.html").read_text()
    assert simulate.main(["exact", "--ranks", "4", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["model"]) == ("paceline.simulate/1", "exact")
    assert told["input"]["ranks"] == 4
    assert told["max_deviation"]["equal"] < LIMIT < told["max_deviation"]["naive"]
    assert simulate.main(["exact", "--ranks", "1"]) == 2
    assert "--ranks is 1" in capsys.readouterr().err
