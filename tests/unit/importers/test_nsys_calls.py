from __future__ import annotations

import numpy as np

from paceline_service.importers.kineto.args import Args
from paceline_service.importers.nsys.calls import Communicator, kernel_calls
from paceline_service.importers.nsys.communicators import communicators
from paceline_service.importers.nsys.payloads import Payload
from paceline_service.importers.nsys.ranges import Ranges
from paceline_service.importers.nsys.ranks import Ranks

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


RANKS = Ranks(of={(0, p): p for p in range(4)}, world_size=4)


def made(own: dict[int, list[tuple[str, Payload]]]) -> dict[int, Communicator]:
    """Return the communicators that ranks 0 to 3 tell of."""
    ranges = {}
    for process, calls in own.items():
        ranges[0, process] = Ranges(
            nccl_names=[name for name, _ in calls], payloads=[payload for _, payload in calls]
        )
    return communicators(RANKS, ranges)[0]


def test_a_communicator_has_the_ranks_that_made_it_in_the_order_of_their_places() -> None:
    pairs = {1: (3, 0), 3: (1, 1)}
    own = {
        rank: [("ncclCommInitRank", Payload(communicator=5, size=2, position=place))]
        for rank, (_, place) in pairs.items()
    }
    assert made(own)[5] == Communicator(name="comm 0x5", ranks=(1, 3), size=2, ordered=True)


def test_what_splits_off_has_its_own_ranks_though_it_tells_the_places_in_its_parent() -> None:
    own = {
        rank: [
            ("ncclCommSplit", Payload(communicator=6 + rank % 2, parent=4, size=4, position=rank,
                                      key=9 - rank))
        ]
        for rank in range(4)
    }  # fmt: skip
    found = made(own)
    assert (found[4].ranks, found[4].ordered) == ((0, 1, 2, 3), True)
    assert (found[6].ranks, found[7].ranks) == ((2, 0), (3, 1))
    assert found[6].ordered


def test_who_uses_a_communicator_that_nobody_made_is_in_it() -> None:
    use = ("ncclAllReduce", Payload(communicator=-3, payload_bytes=8))
    found = made({0: [use], 2: [use, use]})
    assert found[-3] == Communicator(
        name="comm 0xfffffffffffffffd", ranks=(0, 2), size=2, ordered=False
    )


def test_a_size_that_no_communicator_has_costs_nothing() -> None:
    huge = ("ncclCommInitRank", Payload(communicator=5, size=1 << 59, position=0))
    assert made({1: [huge]})[5].ranks == (1,)
