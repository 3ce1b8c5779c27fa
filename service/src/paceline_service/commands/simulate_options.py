"""What ``paceline simulate`` is told: ranks, their noise, lists, all with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, TypeVar

import numpy as np
import typer

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.words import duration_of
from paceline_service.export.units import format_ratio
from paceline_service.simulate.noise import LAWS, Floats, Noise
from paceline_service.simulate.profile import Profile

DEFAULT_RANKS = "20ms,22ms,21ms,38ms"
DEFAULT_NOISE = "uniform:2ms"
DEFAULT_COMMUNICATION = "6ms"
MOST_RANKS = 1_000_000
MOST_TIMES = 20_000_000
"""Step times held at once: steps times ranks."""
RanksOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIMES",
        help="Compute of each rank a step: 20ms,22ms,38ms; 100ms*63,130ms is 64 ranks. Default "
        f"{DEFAULT_RANKS}.",
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="LAW",
        help="Spread of each rank's time: uniform:2ms, normal:5%, lognormal:10%, gamma:50%, "
        "exponential:20%, pareto:3 (shape), pause:1%:50ms, constant.",
    ),
]
CommunicationOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help=f"Of a step, after its barrier. Default {DEFAULT_COMMUNICATION}."
    ),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Of the draws, which are those of random.Random(N).")
]
_T = TypeVar("_T")


def profile_of(ranks: str | None, noise: str | None) -> Profile:
    """Return the ranks that the arguments describe.

    Raises:
        ConfigError: they describe none, or a rank alone.
    """
    # The figures of the introduction have jitter; ranks that somebody gives have what is given.
    law = noise or (DEFAULT_NOISE if ranks is None else "constant")
    profile = Profile(mean_s=ranks_of(ranks or DEFAULT_RANKS), noise=noise_of(law))
    profile.noise.relative_spread(profile.mean_s)
    return profile


def ranks_of(text: str) -> Floats:
    """Return the compute of each rank (R,), s, from ``20ms,22ms`` or ``100ms*63,130ms``.

    A time without a unit has that of the last one: ``20,22,21,38ms``.

    Raises:
        ConfigError: it is no such list, or one of a single rank.
    """
    parts = [part.strip() for part in text.split(",")]
    last = re.search(r"([a-zµμ]+)\s*(?:\*.*)?$", parts[-1])
    values: list[float] = []
    for part in parts:
        time, _, count = (word.strip() for word in part.partition("*"))
        if last is not None and re.fullmatch(r"[\d.]+", time):
            time += last[1]
        times = units.parse_count(count, "--ranks", unit="ranks behind *") if count else 1
        if len(values) + times > MOST_RANKS:
            raise ConfigError(f"--ranks {text!r} is over {MOST_RANKS:,} ranks: give fewer")
        values += [units.parse_duration_s(time, "--ranks")] * times
    if len(values) == 1:
        raise ConfigError(
            f"--ranks {text!r} is one rank, which waits for nobody: give 2 or more, as in "
            "20ms,38ms or 100ms*64"
        )
    return np.array(values)


def noise_of(text: str) -> Noise:
    """Return the law that ``text`` names.

    Raises:
        ConfigError: it is none.
    """
    law, _, told = (word.strip() for word in text.partition(":"))
    if law not in LAWS:
        raise ConfigError(
            f"--noise {text!r}: {law!r} is no law; there are {', '.join(LAWS)}, as in normal:5%"
        )
    if law == "constant":
        if told:
            raise ConfigError(f"--noise {text!r}: constant has no spread; give only constant")
        return Noise()
    if not told:
        raise ConfigError(f"--noise {text!r} lacks its number: {law}:... ({LAWS[law]})")
    if law == "pareto":
        return Noise(law=law, spread=_number(told, text, "a shape above 1, such as 3"))
    if law == "pause":
        chance, _, length = (word.strip() for word in told.partition(":"))
        if not length:
            raise ConfigError(f"--noise {text!r}: give probability and length, pause:1%:50ms")
        probability = _share(chance, text)
        return replace(_spread(law, length, text), probability=probability)
    return _spread(law, told, text)


def whole_list(
    text: str, argument: str, unit: str, *, least: int = 1, most: int | None = None
) -> list[int]:
    """Return ascending whole numbers from ``2,8,32``.

    Raises:
        ConfigError: one of them is none, or out of bounds.
    """
    found = sorted(
        _each(text, lambda one: units.parse_count(one, argument, unit=unit, least=least))
    )
    if most is not None and found[-1] > most:
        raise ConfigError(f"{argument} is {found[-1]:,} {unit}: give at most {most:,}")
    return found


def factors_of(text: str) -> list[float]:
    """Return slow factors from ``1,1.5,2``.

    Raises:
        ConfigError: one of them is below 1.
    """

    def one(word: str) -> float:
        expected = "how many times as long a slow rank takes, 1 or more, such as 1.5"
        value = _number(word, word, expected, "--slow")
        if not 1 <= value < math.inf:
            raise ConfigError(f"--slow is {word!r}: give {expected}")
        return value

    return sorted(_each(text, one))


def bounds_of(text: str) -> list[float]:
    """Return bounds from ``0,1,4,inf``.

    Raises:
        ConfigError: one of them is no whole number from 0, nor ``inf``.
    """

    def one(word: str) -> float:
        if word.lower() in ("inf", "infinite", "infinity"):
            return math.inf
        if not re.fullmatch(r"\d{1,9}", word):
            raise ConfigError(
                f"--bounds {word!r}: give whole numbers of steps from 0, or inf, as in 0,1,4,inf"
            )
        return float(word)

    return sorted(_each(text, one))


def communication_of(text: str | None, default_s: float | None = None) -> float:
    """Return the communication of a step, s; what was measured where none is given.

    Raises:
        ConfigError: it is no time.
    """
    if text is None and default_s is not None:
        return default_s
    return units.parse_duration_s(text or DEFAULT_COMMUNICATION, "--communication", zero=True)


def check_size(steps: int, ranks: int) -> None:
    """Refuse what would not fit into memory.

    Raises:
        ConfigError: it would not.
    """
    if steps * ranks > MOST_TIMES:
        raise ConfigError(
            f"--steps {steps:,} of {ranks:,} ranks are {steps * ranks:,} step times: give at most "
            f"{max(MOST_TIMES // ranks, 1):,} steps"
        )


def told_noise(noise: Noise) -> str:
    """Return a law in words, as it was understood."""
    spread = format_ratio(noise.spread) if noise.relative else duration_of(noise.spread)
    of = " of the mean" if noise.relative else ""
    words = {
        "constant": "always the same",
        "uniform": f"uniform within {spread}{of} around the mean",
        "exponential": f"shifted exponential, standard deviation {spread}{of}",
        "pareto": f"Pareto tail of shape {noise.spread:g}",
        "pause": f"a pause of {spread}{of} in {format_ratio(noise.probability)} of a rank's steps",
    }
    return words.get(noise.law, f"{noise.law}, standard deviation {spread}{of}")


def noise_input(noise: Noise) -> dict[str, object]:
    """Return a law as it stands in JSON."""
    told: dict[str, object] = {"law": noise.law}
    if noise.law == "pareto":
        told["shape"] = noise.spread
    elif noise.law != "constant":
        told["spread_ratio" if noise.relative else "spread_s"] = noise.spread
    if noise.law == "pause":
        told["probability"] = noise.probability
    return told


def _each(text: str, read: Callable[[str], _T]) -> set[_T]:
    return {read(part.strip()) for part in text.split(",")}


def _spread(law: str, told: str, text: str) -> Noise:
    if told.endswith("%"):
        return Noise(law=law, spread=_share(told, text))
    if re.fullmatch(r"[\d.eE+-]+", told):
        raise ConfigError(
            f"--noise {text!r}: {told} has no unit; give a share of the mean ({told}%) or a time "
            f"({told}ms)"
        )
    return Noise(law=law, spread=units.parse_duration_s(told, "--noise"), relative=False)


def _share(told: str, text: str) -> float:
    expected = "a share in per cent, such as 5%"
    value = _number(told.removesuffix("%"), text, expected)
    return value / 100 if told.endswith("%") else value


def _number(told: str, text: str, expected: str, argument: str = "--noise") -> float:
    try:
        value = float(told)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{argument} {text!r}: {told!r} is not understood; give {expected}")
    return value
