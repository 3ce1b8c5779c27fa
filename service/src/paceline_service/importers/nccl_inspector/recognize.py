"""Whether a file was written by NCCL Inspector, by how it begins."""

from __future__ import annotations

_ABOUT = b'"inspector_output_format_version"'
_RECORDS = (b'"coll_perf"', b'"p2p_perf"')
PROMETHEUS_METRICS = (
    b"nccl_bus_bandwidth_gbs{",
    b"nccl_collective_exec_time_microseconds{",
    b"nccl_p2p_bus_bandwidth_gbs{",
    b"nccl_p2p_exec_time_microseconds{",
)
"""What ``NCCL_INSPECTOR_PROM_DUMP=1`` writes instead: averages; known in order to say so."""


def begins_inspector(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is of NCCL Inspector."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    if first.startswith(b"{"):
        return b'"header"' in first and (_ABOUT in first or any(r in first for r in _RECORDS))
    return begins_prometheus(head)


def begins_prometheus(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is its text for Prometheus."""
    return any(metric in head for metric in PROMETHEUS_METRICS)
