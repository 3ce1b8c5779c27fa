"""Rings: one fixed-size memory-mapped file per rank, written in the job, read by the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.ring.layout import InFlight, Record, RingIdentity
from paceline.ring.writer import RingWriter, new_identity

if TYPE_CHECKING:
    from paceline.ring.reader import Batch, RingReader

__all__ = [
    "Batch",
    "InFlight",
    "Record",
    "RingIdentity",
    "RingReader",
    "RingWriter",
    "new_identity",
]


def __getattr__(name: str) -> Any:
    """Import the reader when it is asked for: ranks, which only write, have no use for it."""
    if name in ("Batch", "RingReader"):
        from paceline.ring import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
