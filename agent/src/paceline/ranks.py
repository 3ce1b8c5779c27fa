"""Rank lists as text, short also for ten thousand ranks: ``0-7``, ``0-56:8``, ``1,3,9-12``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.errors import InputError

_PART = r"(?a)(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z"
MAX_RANKS = 1_000_000


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ``ranks`` (in their order) as runs ``first-last:stride``."""
    parts = []
    index = 0
    while index < len(ranks):
        end = index + 1
        stride = ranks[end] - ranks[index] if end < len(ranks) else 0
        if stride > 0:
            while end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == stride:
                end += 1
        run = end - index + 1
        if stride > 0 and (run > 2 or stride == 1):
            suffix = "" if stride == 1 else f":{stride}"
            parts.append(f"{ranks[index]}-{ranks[end]}{suffix}")
            index = end + 1
        else:
            parts.append(str(ranks[index]))
            index += 1
    return ",".join(parts)


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks that ``text`` lists.

    Raises:
        InputError: ``text`` is no rank list, or lists more than ``MAX_RANKS``.
    """
    ranks: list[int] = []
    for part in text.split(",") if text else ():
        match = re.match(_PART, part)
        if match is None:
            raise InputError(f"{part!r} is no run of ranks; write 3, 0-7 or 0-56:8")
        first = int(match[1])
        last = int(match[2] or first)
        stride = int(match[3] or 1)
        if stride < 1 or last < first or len(ranks) + (last - first) // stride >= MAX_RANKS:
            raise InputError(
                f"rank run {part!r} is descending, has stride 0, or makes over {MAX_RANKS} ranks"
            )
        ranks.extend(range(first, last + 1, stride))
    return tuple(ranks)


def ranks_hash(ranks: Sequence[int]) -> str:
    """Return 16 hex digits that tell two memberships of one group name apart."""
    import hashlib  # takes milliseconds, and few who format ranks need it

    return hashlib.blake2b(format_ranks(ranks).encode(), digest_size=8).hexdigest()
