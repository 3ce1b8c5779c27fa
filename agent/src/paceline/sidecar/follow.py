"""Following one ring: records, groups, pending collectives and the end of its writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.clock import ClockAnchor, boot_id, clock_domain, mono_ns, time_namespace
from paceline.ring import InFlight, RingIdentity, RingReader
from paceline.ring import layout as at
from paceline.ring.control import MAX_GENERATION, MAX_STEP
from paceline.ring.rows import Rows
from paceline.sidecar.device import Alone, Joined, counters_of, facts_of
from paceline.sidecar.ended import EndWatch
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.progress import Progress
from paceline.sidecar.replicas import Replicas
from paceline.sidecar.telemetry.buffer import Sample, TelemetryBuffer

FLUSH_RECORDS = 2048
HEARTBEAT_S = 5.0
"""Without records a chunk is made this often: it carries liveness, losses, and what is pending."""
MAX_BUFFERED = 4096
FLUSH_S = 1.0
FLUSH_OF_MANY_S = 2.0
MANY_RANKS = 4096
"""Jobs of more ranks send half as many frames: what a frame costs a collector is for the most part
not its records, and one job is analysed in one process (docs/sizing.md)."""
_MAX_FACTS = 64
_LARGEST_NS = (1 << 62) - 1


def flush_period_s(world_size: int) -> float:
    """Return how often a rank that records makes a chunk."""
    return FLUSH_S if world_size <= MANY_RANKS else FLUSH_OF_MANY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Records of one rank in order, with everything that is needed to understand them."""

    identity: RingIdentity
    node: str
    rows: Rows
    tail: int
    """Index of the first record behind ``rows``."""
    groups: dict[int, GroupFacts]
    pending: list[InFlight]
    anchor: ClockAnchor
    step: int
    dropped: dict[str, int]
    info: dict[str, str]
    ended: str = field(default="")
    telemetry: list[Sample] = field(default_factory=list)
    control_generation: int = 0
    """The setting that the writer follows, and the first step that it holds for."""
    control_step: int = 0
    read_mono_ns: int = 0
    """When this was read, on the clock of the records; 0 where nobody can tell."""
    checkpoint_mono_ns: int = 0
    """Since when the rank has been saving a checkpoint; 0: it does not."""
    also: dict[str, int] = field(default_factory=dict)
    """How far a second ring of the process has been used up, by its incarnation."""

    @property
    def incarnation(self) -> str:
        """The incarnation as 32 hex digits."""
        return self.identity.incarnation.hex()

    @property
    def clock_domain(self) -> str:
        """The name of the clock that all times are on."""
        return clock_domain(self.identity.boot_id, self.identity.time_namespace)


class Follower:
    """Follows one ring from where ``progress`` says.

    Args:
        reader: of the ring.
        progress: how far it was stored.
        node: name of the node; empty: what the ring says.
        alone: it is the ring of a plugin in a process without hooks.
    """

    def __init__(
        self, reader: RingReader, progress: Progress, node: str, *, alone: bool = False
    ) -> None:
        self.progress = progress
        self.telemetry = TelemetryBuffer()
        self.ended = ""
        """``closed`` or ``killed`` once the writer is gone and every record was read."""
        self._reader = reader
        self._node = node or reader.identity.node
        self._read = bytearray()
        self._groups: dict[int, GroupFacts] = {}
        self._info: dict[str, str] = {}
        self._meta_corrupt = 0
        self._last_chunk_s = -HEARTBEAT_S
        identity = reader.identity
        self._flush_s = flush_period_s(identity.world_size)
        self._same_clock = identity.boot_id == boot_id() and (
            identity.time_namespace == time_namespace()
        )
        self._watch = EndWatch(reader)
        self._replicas = Replicas(reader)
        self._device: Joined | Alone = (
            Alone(reader.identity) if alone else Joined(reader.identity, progress, self._groups)
        )

    @property
    def path(self) -> Path:
        """The ring file."""
        return self._reader.path

    @property
    def identity(self) -> RingIdentity:
        """Whose ring it is."""
        return self._reader.identity

    @property
    def info(self) -> Mapping[str, str]:
        """The facts that its writer told."""
        return self._info

    @property
    def control_generation(self) -> int:
        """The setting that the writer was asked to follow last; 0: none."""
        return self._reader.word(at.CONTROL_OFFSET)

    @property
    def step(self) -> int:
        """The step that the rank is in."""
        return self._reader.word(at.STEP_OFFSET)

    def now_ns(self) -> int:
        """Return the time on the clock of the records; 0 where it cannot be told."""
        if self._same_clock:
            return mono_ns()
        heartbeat_ns = self._reader.word(at.HEARTBEAT_OFFSET)  # its writer's last sign of life
        return heartbeat_ns if heartbeat_ns <= _LARGEST_NS else 0

    def poll(self, now_s: float) -> bool:
        """Read what is new.

        Returns:
            Whether more may be there: the buffer is full and is to be taken first.

        Raises:
            RingError: the file was truncated.
        """
        gone = self._watch.look(now_s)
        room = MAX_BUFFERED - self._count
        batch = self._reader.poll(room) if room > 0 else None
        entries, corrupt = self._reader.meta()  # after the records: groups come before their use
        self._meta_corrupt += corrupt
        for entry in entries:
            self._learn(entry)
        self._replicas.tell(self._info, self.now_ns(), self.telemetry)
        self._replicas.look(self._groups, self.telemetry)
        if batch is None:
            return True
        self.progress.count("ring_overwritten", batch.overwritten)
        self.progress.count("ring_torn", batch.torn)
        if batch.overwritten or batch.torn:
            self._device.lost()
        full = len(batch.rows) >= room
        last = bool(gone) and not full
        self._read += self._device.rows(batch.rows.raw, room, now_s, last=last)
        full = full or self._device.more
        if last and not full and self._device.ended:
            self.ended = gone
        return full

    def due(self, now_s: float) -> bool:
        """Whether a chunk is to be made now."""
        if self.ended or self._count >= FLUSH_RECORDS:
            return True
        # At the same moments for every ring, so that one POST carries them all.
        period_s = self._flush_s if self._read else HEARTBEAT_S
        return now_s // period_s != self._last_chunk_s // period_s

    def chunk(self) -> Chunk:
        """Return everything read and not yet taken; ``taken`` removes it."""
        pending = self._device.pending(self._reader.inflight())
        counted = (
            counters_of(self._reader), {"meta_corrupt": self._meta_corrupt}, self._device.dropped()
        )  # fmt: skip
        dropped = Counter(self.progress.dropped)
        for counts in counted:
            dropped.update(counts)
        info = self._info | self._device.info()
        if full := self._reader.word(at.DROPPED_INFLIGHT_OFFSET):
            info["inflight_full"] = str(full)  # no record is lost: only its pending state unseen
        if self.telemetry.dropped:
            info["telemetry_dropped"] = str(self.telemetry.dropped)
        if lost := self._replicas.lost:
            info["replica_digests_lost"] = str(lost)
        if refused := self._reader.word(at.CONTROL_REFUSED_OFFSET):
            info["control_refused"] = str(refused)
        return Chunk(
            identity=self._reader.identity,
            node=self._node,
            rows=Rows(bytes(self._read)),
            tail=self._device.tail(self._reader.tail),
            groups=self._groups | self._device.groups(),
            pending=pending,
            anchor=self._reader.anchor(),
            step=self._reader.word(at.STEP_OFFSET),
            dropped={reason: count for reason, count in dropped.items() if count},
            info=info,
            ended=self.ended,
            telemetry=self.telemetry.give(),
            control_generation=min(self._reader.word(at.APPLIED_GENERATION_OFFSET), MAX_GENERATION),
            control_step=min(self._reader.word(at.APPLIED_STEP_OFFSET), MAX_STEP),
            read_mono_ns=self.now_ns(),
            checkpoint_mono_ns=min(self._reader.word(at.CHECKPOINT_OFFSET), _LARGEST_NS),
            also=self._device.also(),
        )

    def taken(self, now_s: float) -> None:
        """Forget the records of the last chunk: they are stored."""
        self._read.clear()
        self.telemetry.taken()
        self._last_chunk_s = now_s

    def close(self) -> None:
        """Unmap the rings."""
        self._device.close()
        self._reader.close()

    def attach(self, plugin: RingReader) -> bool:
        """Take the ring of the plugin of the same process; False where it has one, or is one."""
        if not isinstance(self._device, Joined) or self._device.has_plugin:
            return False
        self._device.attach(plugin)
        return True

    def second_rings(self) -> list[tuple[Path, str]]:
        """Return the rings that are used up with this one, and their incarnations."""
        return self._device.paths()

    @property
    def _count(self) -> int:
        return len(self._read) // at.RECORD_BYTES

    def _learn(self, entry: dict[str, Any]) -> None:
        if "comm" in entry:
            self._meta_corrupt += not self._device.learn(entry)
            return
        if "group" not in entry:
            for key, value in facts_of(entry).items():
                if len(self._info) < _MAX_FACTS:
                    self._info[key] = value
            return
        index, epoch = entry["group"], entry.get("epoch", 0)
        whole = type(index) is int and type(epoch) is int
        if not (whole and 0 <= index < 1 << 16 and 0 <= epoch < 1 << 32):
            self._meta_corrupt += 1
            return
        self._groups[index] = GroupFacts(
            index=index,
            name=str(entry.get("name", "")),
            ranks=str(entry.get("ranks", "")),
            epoch=epoch,
            mesh_dim=str(entry.get("mesh_dim", "")),
            backend=str(entry.get("backend", "")),
        )
