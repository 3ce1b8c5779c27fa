"""Numbers with units from text: what is meant is understood, what is ambiguous is refused.

Every message names the argument, the value and what is expected. Bits and bytes are the mistake
that costs a factor of eight, so a bandwidth must say which it is: ``400Gb/s`` and ``50GB/s`` are
the same, ``400`` is refused.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from paceline.errors import ConfigError

_NUMBER = re.compile(
    r"\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?|[+-]?inf(?:inity)?|nan)\s*(.*?)\s*"
)
_SI = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_BYTES = re.compile(r"([kKMGTP]i?)?(B|[Bb]ytes?)")
_BITS = re.compile(r"([kKMGTP]i?)?(b|[Bb]its?)")
_COUNT = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6), "ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60),
    "h": Fraction(3600),
}  # fmt: skip
_FLOPS = re.compile(r"([kKMGTPE])?(?:FLOP(?:/s|S|s|ps)?|[Ff]lops?(?:/s)?)?")
_PER_S = re.compile(r"(?:/s(?:ec)?|ps)$")
MOST = 1e30
"""Of any quantity in base units, and one over it the least: products of a few stay finite."""
LEAST_FLOPS = 1e6
"""No processor that trains is slower: a smaller number lacks its prefix."""
LEAST_BARE_BYTES_PER_S = 1e6
"""A bandwidth without a unit that is smaller was meant in Gb/s or GB/s."""


def positive(value: float, argument: str, unit: str) -> float:
    """Return ``value``, which must be a finite number above zero.

    Args:
        value: what was given.
        argument: its name, as the user wrote it: ``--latency``.
        unit: what is expected, in words: ``bytes per second``.

    Raises:
        ConfigError: it is not.
    """
    if not value > 0 or math.isinf(value):
        raise ConfigError(f"{argument} is {_told(value)}: give a finite number above 0, in {unit}")
    if not 1 / MOST <= value <= MOST:
        raise ConfigError(f"{argument} is {_told(value)}, beyond all that is built: give {unit}")
    return value


def not_negative(value: float, argument: str, unit: str) -> float:
    """Return ``value``, which must be a finite number that is not below zero.

    Raises:
        ConfigError: it is not.
    """
    return value if value == 0 else positive(value, argument, unit)


def whole(value: float, argument: str, unit: str, *, least: int = 1) -> int:
    """Return ``value`` as an int; it must be a whole number, at least ``least``.

    Raises:
        ConfigError: it is not.
    """
    if not abs(value) <= MOST or value != int(value) or value < least:
        raise ConfigError(
            f"{argument} is {_told(value)}: give a whole number of {unit}, at least {least}"
        )
    return int(value)


def group_of(ranks: float, argument: str = "--ranks") -> int:
    """Return the size of a group in which something can be sent: 2 ranks or more.

    Raises:
        ConfigError: it is not.
    """
    if ranks == 1:
        raise ConfigError(
            f"{argument} is 1: a rank alone sends nothing; give a whole number of ranks, at least 2"
        )
    return whole(ranks, argument, "ranks", least=2)


def parse_bandwidth(text: str, argument: str, *, bare: str | None = None) -> float:
    """Return a bandwidth out of a rank, bytes/s, from ``50GB/s``, ``400Gb/s`` or ``46GiB/s``.

    Args:
        text: what the user wrote.
        argument: its name.
        bare: ``bytes/s`` where a number without a unit is that; else it is refused.

    Raises:
        ConfigError: it is no bandwidth, or may be bits as well as bytes.
    """
    expected = "a bandwidth with its unit: 50GB/s (bytes) or 400Gb/s (bits)"
    number, unit = _split(text, argument, expected)
    if not unit:
        if bare != "bytes/s" or 0 < number < LEAST_BARE_BYTES_PER_S:
            raise ConfigError(
                f"{argument} is {text!r}, which may be bits or bytes: give {expected}"
            )
        return positive(float(number), argument, "bytes per second")
    amount = _PER_S.sub("", unit)
    if amount == unit:
        raise ConfigError(
            f"{argument} is {text!r}, an amount and no speed: give {expected}, per second"
        )
    for pattern, divisor in ((_BYTES, 1), (_BITS, 8)):
        found = pattern.fullmatch(amount)
        if found:
            scaled = number * _prefix(found[1]) / divisor
            return positive(float(scaled), argument, "bytes per second")
    if re.fullmatch(r"[kmgtp]i?b", amount):
        amount = amount[0].upper() + amount[1:-1]
        raise ConfigError(
            f"{argument} is {text!r}, which may be bits or bytes: write {amount}b/s for bits or "
            f"{amount}B/s for bytes"
        )
    raise ConfigError(f"{argument} is {text!r}: {unit!r} is not understood; give {expected}")


def parse_bytes(text: str, argument: str) -> int:
    """Return a size in bytes from ``25MB``, ``25MiB`` or ``26214400``.

    Raises:
        ConfigError: it is no size, or one in bits.
    """
    expected = "a size in bytes: 25MB, 25MiB or 26214400"
    number, unit = _split(text, argument, expected)
    found = _BYTES.fullmatch(unit) or re.fullmatch(r"([kKMGTP]i)?()", unit)
    if not found:
        why = "is bits" if _BITS.fullmatch(unit) else f"has a unit that is not understood, {unit!r}"
        raise ConfigError(f"{argument} is {text!r}, which {why}: give {expected}")
    return whole(float(number * _prefix(found[1])), argument, "bytes")


def parse_count(text: str, argument: str, *, unit: str = "them", least: int = 1) -> int:
    """Return a whole number from ``7e9``, ``7B``, ``66M`` or ``2048``.

    Raises:
        ConfigError: it is none, or smaller than ``least``.
    """
    expected = f"a whole number of {unit}, at least {least}, such as 2048, 66M or 7e9"
    number, suffix = _split(text, argument, expected)
    if suffix not in _COUNT:
        raise ConfigError(f"{argument} is {text!r}: {suffix!r} is not understood; give {expected}")
    return whole(float(number * _COUNT[suffix]), argument, unit, least=least)


def parse_duration_s(text: str, argument: str, *, zero: bool = False) -> float:
    """Return seconds from ``80ms``, ``5us``, ``1.5s``.

    Args:
        text: what the user wrote.
        argument: its name.
        zero: no time at all is allowed.

    Raises:
        ConfigError: it is no time, or has no unit.
    """
    expected = "a time with its unit: 5us, 80ms or 1.5s"
    number, unit = _split(text, argument, expected)
    if not unit and number == 0 and zero:
        return 0.0
    if unit not in _SECONDS:
        why = f"{unit!r} is not understood" if unit else "it has no unit"
        raise ConfigError(f"{argument} is {text!r}: {why}; give {expected}")
    check = not_negative if zero else positive
    return check(float(number * _SECONDS[unit]), argument, "ns, us, ms or s")


def parse_flops(text: str, argument: str) -> float:
    """Return floating-point operations per second from ``312T``, ``312e12``, ``312TFLOP/s``.

    Raises:
        ConfigError: it is no speed of a processor.
    """
    expected = "floating-point operations per second: 312T, 312TFLOP/s or 312e12"
    number, unit = _split(text, argument, expected)
    found = _FLOPS.fullmatch(unit)
    if not found:
        raise ConfigError(f"{argument} is {text!r}: {unit!r} is not understood; give {expected}")
    speed = positive(float(number * _prefix(found[1])), argument, "FLOP/s")
    if speed < LEAST_FLOPS:
        raise ConfigError(
            f"{argument} is {text!r}, less than a megaflop per second: give {expected}"
        )
    return speed


def _split(text: str, argument: str, expected: str) -> tuple[Fraction, str]:
    """Return the number of ``text``, exactly, and what stands behind it."""
    found = _NUMBER.fullmatch(text)
    if not found:
        raise ConfigError(f"{argument} is {text!r}, which is no number: give {expected}")
    digits = found[1].replace("_", "").replace(",", "")
    if not math.isfinite(float(digits)):
        raise ConfigError(f"{argument} is {text!r}, which is not finite: give {expected}")
    number = Fraction(digits)
    if number > MOST:
        raise ConfigError(f"{argument} is {text!r}, beyond all that is built: give {expected}")
    if number < 0:
        raise ConfigError(f"{argument} is {text!r}, which is negative: give {expected}")
    return number, found[2]


def _prefix(prefix: str | None) -> int:
    name = prefix or ""
    return _BINARY["K" + name[1:] if name[0] == "k" else name] if name.endswith("i") else _SI[name]


def _told(value: float) -> str:
    return "not a number" if math.isnan(value) else f"{value:.15g}"
