"""What ``paceline simulate`` is told: ranks, their noise, lists, all with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, TypeVar

import numpy as np
import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.commands.simulate_noise import noise_of, number
from paceline_service.simulate.noise import Floats
from paceline_service.simulate.profile import Mixed, Profile

DEFAULT_RANKS = "20ms,22ms,21ms,38ms"
DEFAULT_NOISE = "uniform:2ms"
DEFAULT_COMMUNICATION = "6ms"
MOST_RANKS = 1_000_000
MOST_SLOW = 1_000_000
LONGEST_S = 1e6
"""Of a step; what is longer has a mistaken unit."""
MOST_TIMES = 20_000_000
"""Step times held at once: steps times ranks."""
RanksOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIMES",
        help="Compute of each rank a step: 20ms,22ms,38ms; 100ms*63,130ms is 64 ranks; "
        f"130ms~gamma:30% has a --noise of its own. Default {DEFAULT_RANKS}.",
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
_SHORTEST_S = 1e-9 * (1 - 1e-9)
_T = TypeVar("_T")
_ENTRY = re.compile(r"\s*(?P<time>[^~*]*?)\s*(?:~(?P<law>[^*]+?))?\s*(?:\*(?P<count>[^~*]*))?\s*")
"""A time, perhaps its law, perhaps how many ranks have it."""


def profile_of(ranks: str | None, noise: str | None) -> Profile | Mixed:
    """Return the ranks that the arguments describe.

    Raises:
        ConfigError: they describe none, or a rank alone.
    """
    # The figures of the introduction have jitter; ranks that somebody gives have what is given.
    law = noise or (DEFAULT_NOISE if ranks is None else "constant")
    mean_s, laws = ranks_of(ranks or DEFAULT_RANKS)
    kinds = [noise_of(one or law) for one in dict.fromkeys(laws)]
    places = {one: place for place, one in enumerate(dict.fromkeys(laws))}
    for one, place in places.items():
        kinds[place].relative_spread(mean_s[[other == one for other in laws]])
    if len(kinds) == 1:
        return Profile(mean_s=mean_s, noise=kinds[0])
    return Mixed(mean_s=mean_s, laws=tuple(kinds), law_of=np.array([places[one] for one in laws]))


def ranks_of(text: str) -> tuple[Floats, list[str]]:
    """Return the compute of each rank (R,), s, from ``20ms,22ms`` or ``100ms*63,130ms``.

    A time without a unit has that of the last one: ``20,22,21,38ms``. Behind ``~`` stands a law
    of these ranks alone: ``100ms*63,130ms~gamma:30%``.

    Raises:
        ConfigError: it is no such list, or one of a single rank.
    """
    parts = [_ENTRY.fullmatch(part) for part in text.split(",")]
    last = parts[-1] and re.search(r"[a-z\u00b5\u03bc]+$", parts[-1]["time"])
    values: list[float] = []
    laws: list[str] = []
    for part in parts:
        if part is None:
            raise ConfigError(f"--ranks {text!r} is not understood: give times, 20ms,38ms")
        time, count = part["time"], part["count"]
        if last and re.fullmatch(r"[\d.]+", time):
            time += last[0]
        times = units.parse_count(count, "--ranks", unit="ranks behind *") if count else 1
        if len(values) + times > MOST_RANKS:
            raise ConfigError(f"--ranks {text!r} is over {MOST_RANKS:,} ranks: give fewer")
        values += [_time_s(time, "--ranks")] * times
        laws += [part["law"] or ""] * times
    if len(values) == 1:
        raise ConfigError(
            f"--ranks {text!r} is one rank, which waits for nobody: give 2 or more, as in "
            "20ms,38ms or 100ms*64"
        )
    return np.array(values), laws


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
        expected = f"how many times as long a slow rank takes, 1 to {MOST_SLOW:,}, such as 1.5"
        value = number(word, word, expected, "--slow")
        if not 1 <= value <= MOST_SLOW:
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
    return _time_s(text or DEFAULT_COMMUNICATION, "--communication", zero=True)


def check_size(steps: int, ranks: int, most: int = MOST_TIMES) -> None:
    """Refuse what would not fit into memory.

    Args:
        steps: of each rank.
        ranks: of them.
        most: step times.

    Raises:
        ConfigError: it would not.
    """
    if steps * ranks > most:
        raise ConfigError(
            f"--steps {steps:,} of {ranks:,} ranks are {steps * ranks:,} step times: give at most "
            f"{counted(max(most // ranks, 1), 'step')}"
        )


def _time_s(text: str, argument: str, *, zero: bool = False) -> float:
    seconds = units.parse_duration_s(text, argument, zero=zero)
    if seconds > LONGEST_S or 0 < seconds < _SHORTEST_S:
        raise ConfigError(
            f"{argument} is {text!r}: give the time of a step, from 1ns to 1,000,000s"
        )
    return seconds


def _each(text: str, read: Callable[[str], _T]) -> set[_T]:
    return {read(part.strip()) for part in text.split(",")}
