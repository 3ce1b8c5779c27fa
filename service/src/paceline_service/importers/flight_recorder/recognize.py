"""How a dump begins."""

from __future__ import annotations

_KEYS = (b"pg_status", b"collective_seq_id", b"nccl_comm_state", b"p2p_seq_id", b"profiling_name")


def begins_dump(head: bytes) -> bool:
    """Whether a file with these first bytes is a Flight Recorder dump, as pickle or JSON."""
    if b'"traceEvents"' in head or not any(key in head for key in _KEYS):
        return False
    return head[:1] == b"\x80" or head.lstrip()[:1] == b"{"
