"""Laws of step times on the command line: ``normal:5%``, ``uniform:2ms``, ``pause:1%:50ms``."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.words import duration_of
from paceline_service.export.units import format_ratio
from paceline_service.simulate.noise import LAWS, Noise


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
        return Noise(law=law, spread=number(told, text, "a shape above 1, such as 3"))
    if law == "pause":
        chance, _, length = (word.strip() for word in told.partition(":"))
        if not length:
            raise ConfigError(f"--noise {text!r}: give probability and length, pause:1%:50ms")
        probability = _share(chance, text)
        return replace(_spread(law, length, text), probability=probability)
    return _spread(law, told, text)


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


def number(told: str, text: str, expected: str, argument: str = "--noise") -> float:
    """Return a finite number from 0.

    Raises:
        ConfigError: it is none.
    """
    try:
        value = float(told)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{argument} {text!r}: {told!r} is not understood; give {expected}")
    return value


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
    value = number(told.removesuffix("%"), text, expected)
    return value / 100 if told.endswith("%") else value
