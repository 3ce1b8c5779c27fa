from __future__ import annotations

import numpy as np

from paceline_service.importers.kineto.event import Args
from paceline_service.importers.nsys.calls import Communicator, kernel_calls
from paceline_service.importers.nsys.payloads import Payload
from paceline_service.importers.nsys.ranges import Ranges

PAIR = Communicator(name="comm 0x7", ranks=(3, 1), size=2, ordered=True)
FOUR = Communicator(name="comm 0x8", ranks=(0, 1, 2, 3), size=4, ordered=True)
SEEN = Communicator(name="comm 0x9", ranks=(0, 1), size=2, ordered=False)
GROUPS = {7: PAIR, 8: FOUR, 9: SEEN}


def told(*calls: tuple[str, Payload]) -> list[tuple[int, int, int, Args]]:
    """Return the meaning of calls that follow one another on one thread."""
    ranges = Ranges()
    for i, (name, payload) in enumerate(calls):
        ranges.nccl.extend(np.array([[100 * i, 100 * i + 50, 1]]))
        ranges.nccl_names.append(name)
        ranges.payloads.append(payload)
    return kernel_calls(ranges, GROUPS.get)


def group(*calls: tuple[str, Payload]) -> list[tuple[int, int, int, Args]]:
    return told(("ncclGroupStart", Payload()), *calls, ("ncclGroupEnd", Payload()))


def to(peer: int, communicator: int = 8) -> Payload:
    return Payload(communicator=communicator, peer=peer, payload_bytes=64)


def test_a_collective_by_itself_is_launched_within_its_own_range() -> None:
    payload = Payload(communicator=8, payload_bytes=4096)
    ((start, end, thread, args),) = told(("ncclAllReduce", payload))
    assert (start, end, thread) == (0, 50, 1)
    assert (args.collective, args.in_elements, args.dtype) == ("ncclAllReduce", 4096, "Byte")
    assert (args.group_name, args.group_ranks, args.group_size) == ("comm 0x8", [0, 1, 2, 3], 4)


def test_what_is_called_in_a_group_is_launched_by_its_end() -> None:
    ((start, _, _, args),) = group(("ncclSend", to(1, communicator=7)))
    assert start == 200
    assert (args.collective, args.destination, args.group_ranks) == ("ncclSend", 1, [1, 3])
    ((_, _, _, args),) = group(("ncclRecv", to(0, communicator=7)))
    assert (args.collective, args.source) == ("ncclRecv", 3)


def test_of_several_calls_in_a_group_only_what_they_share_is_told() -> None:
    small, large = (Payload(communicator=8, payload_bytes=size) for size in (64, 128))
    ((_, _, _, args),) = group(("ncclAllReduce", small), ("ncclAllReduce", large))
    assert (args.collective, args.group_name) == ("ncclAllReduce", "comm 0x8")
    assert args.in_elements is None
    ((_, _, _, args),) = group(("ncclAllReduce", small), ("ncclAllGather", large))
    assert (args.collective, args.group_name) == (None, "comm 0x8")
    other = Payload(communicator=7, payload_bytes=64)
    ((_, _, _, args),) = group(("ncclAllReduce", small), ("ncclAllReduce", other))
    assert args.group_name is None


def test_sends_to_all_and_receipts_from_all_are_an_all_to_all() -> None:
    calls = [(name, to(peer)) for peer in (0, 1, 2, 3) for name in ("ncclSend", "ncclRecv")]
    ((_, _, _, args),) = group(*calls)
    assert (args.collective, args.in_elements) == ("alltoall", 256)
    ((_, _, _, args),) = group(*calls[:4])
    assert args.collective is None


def test_groups_within_groups_launch_at_the_outermost_end() -> None:
    found = told(
        ("ncclGroupStart", Payload()), ("ncclGroupStart", Payload()), ("ncclSend", to(2)),
        ("ncclGroupEnd", Payload()), ("ncclRecv", to(1)), ("ncclGroupEnd", Payload()),
        ("ncclGroupEnd", Payload()),
    )  # fmt: skip
    assert [start for start, _, _, _ in found] == [500]


def test_the_peer_is_not_told_where_the_order_of_the_ranks_is_not_known() -> None:
    ((_, _, _, args),) = told(("ncclSend", to(1, communicator=9)))
    assert (args.destination, args.group_ranks) == (None, [0, 1])
    ((_, _, _, args),) = told(("ncclSend", to(1, communicator=-1)))
    assert (args.destination, args.group_name) == (None, None)
