"""Words for the findings about the network."""

from __future__ import annotations

from paceline.ranks import format_ranks
from paceline_service.analysis.causes.actions import names_a_node
from paceline_service.analysis.network.places import Place

_BYTES = ("B", "KiB", "MiB", "GiB")


def time_of(time_ns: float) -> str:
    """Return a duration with its unit, for example ``2.41 ms``."""
    if time_ns >= 1e9:
        return f"{time_ns / 1e9:.2f} s"
    if time_ns >= 1e6:
        return f"{time_ns / 1e6:.2f} ms"
    return f"{time_ns / 1e3:.1f} us"


def size_of(size: float) -> str:
    """Return a number of bytes with its unit."""
    unit = 0
    while size >= 1024 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {_BYTES[unit]}"


def bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth with its unit, for example ``48.2 GB/s``."""
    for limit, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= limit:
            return f"{bytes_per_s / limit:.3g} {unit}"
    return f"{bytes_per_s:.3g} B/s"


def where_sentence(place: Place, nodes: list[str], watched: int) -> str:
    """Return what the slow lanes have in common and what clears the others."""
    slow = len(place.lanes)
    fast = f"; {place.fast_lanes} others are as fast as ever" if place.fast_lanes else ""
    on = f" (node {', '.join(nodes)})" if nodes else ""
    if place.what == "fabric":
        if watched <= 1:
            return "it is the only group there, so nothing tells which of its members it is"
        return f"all {slow} groups and pairs that would show it are slow: it is nothing of one rank"
    if place.what == "node":
        return f"all {slow} slow groups and pairs leave or enter node {nodes[0]}{fast}"
    ranks = format_ranks(place.ranks[:64])
    if place.what == "cable":
        if nodes:
            return f"all {slow} slow groups and pairs lie between {' and '.join(nodes)}{fast}"
        return (
            f"all {slow} slow groups and pairs lie between two nodes, one of which has no other "
            f"traffic: it is the link or that node{fast}"
        )
    if place.what == "rank":
        return f"rank {ranks}{on} is in all {slow} slow groups and pairs{fast}"
    if place.what == "sender":
        return f"rank {ranks}{on} is slow towards all {slow} ranks it sends to{fast}"
    if place.what == "receiver":
        return f"rank {ranks}{on} is slow from all {slow} ranks it receives from{fast}"
    if place.what == "link":
        return f"it is one link: other traffic of rank {ranks} is not slow{fast}" if (
            place.fast_lanes
        ) else f"it is between rank {ranks}; nothing tells which end it is"  # fmt: skip
    return f"nothing tells which of rank {ranks}{on} it is: they share the slow traffic{fast}"


def action_of(place: Place, nodes: list[str]) -> str:
    """Return the next command."""
    nodes = [node for node in nodes if names_a_node(node)]
    if place.what == "fabric":
        return "ibdiagnet --pc -P all=1  # then look for congestion and other jobs on the switches"
    if place.what == "node" and nodes:
        return f"scontrol update nodename={nodes[0]} state=drain reason=paceline-network"
    there = f"on {nodes[0]}" if len(nodes) == 1 else "on both nodes" if len(nodes) == 2 else (
        "on the nodes of these ranks"
    )  # fmt: skip
    who = format_ranks(place.ranks[:64])
    if place.what in ("link", "cable"):
        return f"ib_write_bw --report_gbits  # between the NICs of rank {who}; then ibqueryerrors"
    return f"ibstat; ibqueryerrors; ethtool -S IFACE | grep -i err  # {there}, NIC of rank {who}"
