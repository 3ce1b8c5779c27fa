"""What NCCL did for somebody who never went through torch: a library with its own communicator."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from paceline.ring import Record
from paceline.ring import layout as at
from paceline.ring.rows import pack_record
from paceline.sidecar.join.facts import Communicator, Event
from paceline.vocabulary import Flag, RecordKind

STRAYS = 8
"""So many events without a call make a communicator a foreign one, if none was ever in a call."""
_LAST_GROUP = 0xFFFF
_KIND_OFFSET = 58
_FLAGS_OFFSET = 60
_MAX_HELD = 4096
_GPU_TIME = int(Flag.GPU_TIME)
_UNTIMED = bytes(byte for byte in range(256) if not byte & _GPU_TIME)


class _Step(NamedTuple):
    step: int
    start_ns: int
    end_ns: int


class Foreign:
    """Gives a communicator of all ranks that torch knows nothing of a group of its own.

    Args:
        rank: the global rank.
        world_size: ranks of the job.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.events = 0
        """Events of foreign communicators that no group could be made for."""
        self.groups: dict[int, str] = {}
        """By index in the hooks' records: the names of the groups made here."""
        self._rank = rank
        self._world_size = world_size
        self._names: dict[int, str] = {}
        self._steps: deque[_Step] = deque(maxlen=64)
        self._held: deque[Event] = deque()
        self._hooks_time = False

    def learn(self, index: int, entry: Mapping[str, Any]) -> None:
        """Take the description of a communicator."""
        name, full = str(entry.get("name", "")), str(entry.get("hash", ""))
        label = f"nccl:{name or full}"[:256]
        if label in self._names.values():
            label = f"{label}:{full}"
        self._names[index] = label

    def count(self, comm: Communicator) -> None:
        """Count an event outside every call, of a communicator that was in none yet."""
        comm.strays += 1
        whole = comm.size == self._world_size and comm.rank == self._rank
        # Where the hooks time calls themselves, they leave nothing to be joined with.
        comm.foreign = (
            comm.strays >= STRAYS
            and whole
            and comm.index <= _LAST_GROUP // 2
            and not self._hooks_time
        )
        self.events += 1

    def watch(self, raw: bytes) -> None:
        """Learn from the hooks' records when the newest steps were, and who timed collectives."""
        kinds = raw[_KIND_OFFSET :: at.RECORD_BYTES]
        if not self._hooks_time:
            # One look at a column: most often no record at all is timed.
            flags = raw[_FLAGS_OFFSET :: at.RECORD_BYTES]
            if flags.translate(None, _UNTIMED):
                self._hooks_time = any(
                    kind == RecordKind.COLLECTIVE and flag & _GPU_TIME
                    for kind, flag in zip(kinds, flags, strict=True)
                )
        number = kinds.find(RecordKind.STEP)
        while number >= 0:
            start, end, _, _, _, _, step, *_ = at.RECORD.unpack_from(raw, number * at.RECORD_BYTES)
            self._steps.append(_Step(step, start, end))
            number = kinds.find(RecordKind.STEP, number + 1)

    def take(self, event: Event) -> None:
        """Keep an event of a foreign communicator until its step is known."""
        self.groups[_LAST_GROUP - event.comm] = self._names[event.comm]
        self._held.append(event)

    def give(self, *, final: bool) -> bytes:
        """Return what lies within known steps as records of the rank."""
        known_ns = self._steps[-1].end_ns if self._steps else 0
        given = []
        while self._held and (
            final or self._held[0].issue_ns <= known_ns or len(self._held) > _MAX_HELD
        ):
            event = self._held.popleft()
            given.append(pack_record(record_of(event, _LAST_GROUP - event.comm, self._step(event))))
        return b"".join(given)

    def _step(self, event: Event) -> int:
        """Return the step that ``event`` was issued in."""
        found = self._steps[-1].step + 1 if self._steps else 0
        for step in reversed(self._steps):
            if step.end_ns < event.issue_ns:
                break
            found = step.step
        return found


def record_of(event: Event, group: int, step: int) -> Record:
    """Return an event as a record of a group whose ranks are all ranks of the job, in order."""
    return Record(
        RecordKind.COLLECTIVE, event.op, group, event.seq, step, event.peer, event.payload_bytes,
        event.start_ns, event.end_ns, 0, event.issue_ns, event.flags,
    )  # fmt: skip
