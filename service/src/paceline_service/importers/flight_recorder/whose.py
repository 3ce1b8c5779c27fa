"""Whose dump a file is: what its name and its folder's tell, as far as its groups allow it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from paceline.errors import InputError

_RANK = re.compile(r"rank[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)(\d{1,7})(?!\d)")
_SUFFIXES = (".gz", ".json", ".pickle", ".pkl")


def rank_of(path: Path, possible: Collection[int] | None) -> int:
    """Return the rank that a dump is of.

    Args:
        path: torch appends the rank to the name that it was given; somebody may have added a
            time, or put the dumps into a folder a rank.
        possible: the ranks that are in all of the dump's groups; None where it tells none.

    Raises:
        InputError: nothing tells the rank, or only one that its groups rule out.
    """
    stem = path.name
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    told = [
        *reversed(_RANK.findall(stem)), *reversed(_NUMBER.findall(stem)),
        *reversed(_RANK.findall(path.parent.name)),
    ]  # fmt: skip
    for number in map(int, told):
        if possible is None or number in possible:
            return number
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    if told:
        raise InputError(
            f"its name says rank {int(told[0])}, which is not in all of its groups; name dumps "
            "after their rank, for example dump_0"
        )
    raise InputError("no rank in its name; name dumps after their rank, for example dump_0")
