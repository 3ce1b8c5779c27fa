"""Which communicator belongs to which group, as far as it is proven."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from paceline.ring import InFlight
from paceline.ring import layout as at
from paceline.sidecar.join.calls import Call
from paceline.sidecar.join.facts import Communicator, Event, JoinedGroup, amounts_to
from paceline.sidecar.join.order import Signature
from paceline.vocabulary import P2P_OPS, Flag

PROOFS = 3
"""So many calls joined in a row bind a communicator to their group."""
SETTLE_S = 0.25
"""What the plugin finished so long ago has been read."""


class Book:
    """The groups and communicators of one process.

    Args:
        rank: the global rank.
    """

    def __init__(self, rank: int) -> None:
        self.groups: dict[int, JoinedGroup] = {}
        self.comms: dict[int, Communicator] = {}
        self.contradictions = 0
        """How often a communicator was found in another group than before."""
        self._rank = rank
        self._marked_s = float("-inf")

    def learn_group(self, index: int, ranks: tuple[int, ...]) -> None:
        """Take the description of a group of the hooks."""
        position = ranks.index(self._rank) if self._rank in ranks else -1
        self.groups[index] = JoinedGroup(index, ranks, position)

    def learn_comm(self, entry: Mapping[str, Any]) -> Communicator | None:
        """Take the description of a communicator; None where it cannot be read."""
        index, rank, size = (entry.get(key) for key in ("comm", "rank", "nranks"))
        if type(index) is not int or type(rank) is not int or type(size) is not int:
            return None
        label = str(entry.get("name") or entry.get("hash") or index)[:64]
        self.comms[index] = Communicator(index, label, rank, size)
        return self.comms[index]

    def comm_of(self, event: Event) -> Communicator:
        """Return the communicator of ``event``, a nameless one where none was described."""
        comm = self.comms.get(event.comm)
        if comm is None:
            comm = Communicator(event.comm, f"unknown-{event.comm}", -1, 0)
            self.comms[event.comm] = comm
        return comm

    def groups_of(self, comm: Communicator) -> list[JoinedGroup]:
        """Return the groups that ``comm`` can belong to; one, where that is proven."""
        if comm.group >= 0:
            return [self.groups[comm.group]]
        return [group for group in self.groups.values() if group.may_own(comm)]

    def call_of(self, event: Event, comm: Communicator) -> tuple[Call, JoinedGroup] | None:
        """Return the one call that ``event`` can belong to, None where there is none or two."""
        found: tuple[Call, JoinedGroup] | None = None
        for group in self.groups_of(comm):
            late = group.around_given_up(event.issue_ns)
            if any(group.fits(call, event, comm) for call in late):
                return None
            for call in group.around(event.issue_ns):
                if not group.fits(call, event, comm):
                    continue
                if comm.foreign and not amounts_to(call, [event], comm.size):
                    continue
                if found is not None:
                    return None
                found = (call, group)
        return found

    def near(self, event: Event, comm: Communicator) -> list[tuple[Call, JoinedGroup]]:
        """Return the calls of any group that ``event`` lies in, given-up ones too."""
        return [
            (call, group)
            for group in self.groups.values()
            for call in (
                *group.around_given_up(event.issue_ns),
                *group.around(event.issue_ns),
            )
            if group.fits(call, event, comm)
        ]

    def prove(self, comm: Communicator, group: JoinedGroup, call: Call) -> None:
        """Note that an event of ``comm`` was joined with a call of ``group``."""
        comm.peers.add(call.peer if call.op in P2P_OPS else -1)
        comm.foreign = False
        comm.ever_proven = True
        if comm.group == group.index:
            return
        if comm.candidate != group.index:
            if comm.candidate >= 0:
                self.contradictions += 1
            comm.candidate, comm.proofs = group.index, 0
        comm.proofs += 1
        if comm.proofs >= PROOFS:
            comm.group = group.index
            comm.whole = comm.size == len(group.ranks) and comm.rank == group.position

    def contradict(self, comm: Communicator) -> None:
        """Note that ``comm`` does not belong where it was thought to."""
        self.contradictions += 1
        comm.group = comm.candidate = -1
        comm.whole = False
        comm.proofs = 0
        comm.peers.clear()

    def signature(self, event: Event, group: JoinedGroup) -> Signature:
        """Return operation, global peer and bytes of an event."""
        comm = self.comms[event.comm]
        peer = event.peer
        if comm.size == len(group.ranks):
            peer = group.global_rank(peer)
        elif event.op in P2P_OPS and len(peers := comm.peers - {-1}) == 1:
            (peer,) = peers
        return event.op, peer, event.payload_bytes

    def settle(self, now_s: float) -> None:
        """Note how far every communicator has come, for ``is_over``."""
        if now_s - self._marked_s < SETTLE_S:
            return
        self._marked_s = now_s
        for comm in self.comms.values():
            comm.settled_issue_ns = comm.marked_issue_ns
            comm.marked_issue_ns = comm.newest_issue_ns

    def is_over(self, call: Call) -> bool:
        """Whether the communicator of ``call`` has finished something issued after it."""
        group = self.groups.get(call.group)
        if group is None:
            return True
        if call.events:
            comms = {event.comm for event in call.events}
            return any(self.comms[one].settled_issue_ns > call.end_ns for one in comms)
        lane = call.peer if call.op in P2P_OPS else -1
        carriers = [
            comm for comm in self.comms.values() if comm.group == group.index and lane in comm.peers
        ]
        # A pair may send by a communicator of its own and by the group's.
        return bool(carriers) and all(comm.settled_issue_ns > call.end_ns for comm in carriers)

    def is_blocked(self, call: Call, running: list[InFlight]) -> bool:
        """Whether its communicator has something in flight: what comes later finishes later."""
        if len(running) >= at.INFLIGHT_SLOTS:
            return True  # what did not fit is not seen
        group = self.groups.get(call.group)
        for one in running:
            comm = self.comms.get(one.group)
            if group is None or comm is None:
                continue
            if comm.group == group.index or (comm.group < 0 and group.may_own(comm)):
                return True
        return False

    def call_in_flight(self, one: InFlight, taken: set[int]) -> Call | None:
        """Return the call that an operation in flight belongs to, None where it is not clear.

        Args:
            one: in the plugin's table; once it runs its start is when it began on the device.
            taken: indices of calls that something else in flight belongs to.
        """
        comm = self.comms.get(one.group)
        if comm is None:
            return None
        event = Event(
            one.group, one.op, one.peer, one.payload_bytes, one.seq, 0, 0, one.start_ns, 0, -1, 0.0
        )
        if one.flags & Flag.GPU_TIME:
            # A communicator finishes in order, so the oldest call without an event runs first.
            waiting = (
                call
                for group in self.groups_of(comm)
                if comm.group >= 0
                for call in chain(group.given_up, group.each_call())
                if call.start_ns <= one.start_ns and group.fits(call, event, comm)
            )
            return next((call for call in waiting if call.index not in taken), None)
        found = [call for call, group in self.near(event, comm) if comm.group in (-1, group.index)]
        return found[0] if len(found) == 1 else None
