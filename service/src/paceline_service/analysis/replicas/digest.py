"""One replica digest as a sample of telemetry tells it; what makes no sense is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from paceline import telemetry as names

_HEX = r"(?a)[0-9a-f]{16}\Z"
_PART = r"(?a)(\d{1,9})/(\d{1,9})\Z"
_MAX_NAME_CHARS = 128
_MAX_COUNT = 1_000_000
_MAX_NUMBER = 1 << 62


class Place(NamedTuple):
    """What of a job is compared: a set of replicas, and which part of it."""

    name: str
    replicas: int
    """Ranks that hold a replica."""
    part: int
    parts: int


class Digest(NamedTuple):
    """What one rank found at one check."""

    place: Place
    step: int
    seq: int
    value: int


def digest_in(values: Mapping[str, Any]) -> Digest | None:
    """Return the digest that a sample holds, None where it holds none that can be used."""
    text, name = values.get(names.REPLICA_DIGEST), values.get(names.REPLICA_SET)
    part = re.match(_PART, str(values.get(names.REPLICA_PART, "0/1")))
    count = values.get(names.REPLICA_COUNT)
    step, seq = values.get(names.REPLICA_STEP), values.get(names.REPLICA_SEQ, 0)
    if not (isinstance(text, str) and re.match(_HEX, text) and part):
        return None
    if not (isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS):
        return None
    if not (type(count) is int and 2 <= count <= _MAX_COUNT):
        return None
    if type(step) is not int or type(seq) is not int or min(step, seq) < 0:
        return None
    if max(step, seq) > _MAX_NUMBER:
        return None
    place = Place(name=name, replicas=count, part=int(part[1]), parts=int(part[2]))
    return Digest(place=place, step=step, seq=seq, value=int(text, 16))
