"""How an action on a node went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one attempt."""

    done: bool
    words: str
    again: bool = False
    """Whether another attempt may end better."""
