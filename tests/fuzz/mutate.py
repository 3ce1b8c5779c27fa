"""Mutations of bytes and of plain values, by a random generator that is passed in.

Coverage-guided runs and the short run of CI use the same ones, so that what a structured format
hides behind a checksum or a grammar is reached by both.
"""

from __future__ import annotations

import random
from typing import Any

INTEGERS = (
    0, 1, -1, 2, 3, 7, 63, 64, 127, 128, 255, 256, 1000, 4096, 16383, 16384, 65535, 65536,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 53, (1 << 62) - 1, 1 << 62,
    (1 << 63) - 1, -(1 << 31), -(1 << 62), -(1 << 63),
)  # fmt: skip
TOO_LARGE = (1 << 63, (1 << 64) - 1)
FLOATS = (0.0, -0.0, 1.5, -1.0, 1e-320, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", "0", "-1", "NaN", "0-3", "0-999999", "0-99999999999", "3,1,2", "0,0", "a" * 300, "\0",
    "\u202e\U0001f525", "'; DROP TABLE jobs; --", "../../etc/passwd", "%s%n{0}", "<script>",
    "\u00b2", "\u0663", "9" * 5000, "1e999", "0-7:0",
)  # fmt: skip
MAX_BYTES = 1 << 20


def mutate_bytes(data: bytes, rng: random.Random, *, keep_length: bool = False) -> bytes:
    """Return ``data`` with one to four changes."""
    out = bytearray(data)
    for _ in range(1 << rng.randrange(3)):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(3 if keep_length else 7)
        if what == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2D, rng.randrange(256)))
        elif what == 2:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(INTEGERS) % (1 << 8 * width)
            raw = number.to_bytes(width, rng.choice(("little", "big")))
            if at + width <= len(out):
                out[at : at + width] = raw
        elif what == 3:
            del out[at : at + 1 + rng.randrange(16)]
        elif what == 4:
            out[at:at] = rng.randbytes(1 + rng.randrange(8))
        elif what == 5 and out:
            begin = rng.randrange(len(out))
            out[at:at] = out[begin : begin + 1 + rng.randrange(64)]
        elif what == 6 and rng.randrange(4) == 0:
            del out[at:]
    return bytes(out[:MAX_BYTES])


def mutate_value(value: Any, rng: random.Random) -> Any:
    """Return ``value`` with something in it replaced, left out or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.92:
        return _mutate_mapping(dict(value), rng)
    if isinstance(value, list | tuple) and value and rng.random() < 0.92:
        return _mutate_list(list(value), rng)
    if isinstance(value, bytes) and rng.random() < 0.9:
        return mutate_bytes(value, rng, keep_length=rng.random() < 0.8)
    if isinstance(value, str) and rng.random() < 0.3:
        raw = mutate_bytes(value.encode("utf-8", "replace"), rng)
        return raw.decode("utf-8", "replace")
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.8:
        return _mutate_integer(value, rng)
    return replacement(rng)


def replacement(rng: random.Random) -> Any:
    """Return some value of some kind."""
    kind = rng.randrange(8)
    if kind < 2:
        return rng.choice(INTEGERS)
    if kind == 2:
        return rng.choice(TOO_LARGE)
    if kind == 3:
        return rng.choice(FLOATS)
    if kind == 4:
        return rng.choice(TEXTS)
    return rng.choice((None, True, False, [], {}, b"", [[]], {"": {}}, [0] * 20))


def _mutate_integer(value: int, rng: random.Random) -> int:
    if rng.random() < 0.5:
        return rng.choice(INTEGERS)
    return value + rng.choice((-1, 1, -2, 2, 10, -1000, 10**6, -(10**9), 10**12))


def _mutate_mapping(value: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    key = rng.choice(list(value))
    what = rng.random()
    if what < 0.08:
        del value[key]
    elif what < 0.16:
        value[rng.choice(list(value))] = value[key]
    elif what < 0.20 and isinstance(key, str):
        value[rng.choice(TEXTS)] = value.pop(key)
    else:
        value[key] = mutate_value(value[key], rng)
    return value


def _mutate_list(value: list[Any], rng: random.Random) -> list[Any]:
    at = rng.randrange(len(value))
    what = rng.random()
    if what < 0.06:
        del value[at]
    elif what < 0.12:
        value.insert(rng.randrange(len(value) + 1), value[at])
    elif what < 0.16:
        other = rng.randrange(len(value))
        value[at], value[other] = value[other], value[at]
    elif what < 0.18:
        value.extend(value[at : at + 8])
    else:
        value[at] = mutate_value(value[at], rng)
    return value
