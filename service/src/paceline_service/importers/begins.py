"""How files of two formats begin, apart from their importers, which take long to import."""

from __future__ import annotations

PARQUET_MAGIC = b"PAR1"


def begins_event_log(head: bytes) -> bool:
    """Whether a file with these first bytes is an event log, of whatever version."""
    return b'"paceline.events/' in head.partition(b"\n")[0]


def begins_what_if(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is Parquet."""
    return head.startswith(PARQUET_MAGIC)
