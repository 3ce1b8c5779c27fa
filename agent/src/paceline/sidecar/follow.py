"""Following one ring: records, groups, pending collectives and the end of its writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.clock import ClockAnchor, clock_domain
from paceline.ring import InFlight, RingIdentity, RingReader
from paceline.ring import layout as at
from paceline.ring.rows import Rows
from paceline.sidecar.progress import Progress
from paceline.sidecar.telemetry.buffer import Sample, TelemetryBuffer

FLUSH_RECORDS = 2048
FLUSH_S = 1.0
HEARTBEAT_S = 5.0
"""Without records a chunk is made this often: it carries liveness, losses, and what is pending."""
MAX_BUFFERED = 4096
_ALIVE_CHECK_S = 0.5
_MAX_FACTS = 64
_HEADER_COUNTERS = (("hook_errors", at.HOOK_ERRORS_OFFSET), ("meta_full", at.DROPPED_META_OFFSET))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A process group as its rank described it; ``ranks`` is text such as ``0-7``."""

    index: int
    name: str
    ranks: str
    epoch: int
    mesh_dim: str
    backend: str


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

    @property
    def incarnation(self) -> str:
        """The incarnation as 32 hex digits."""
        return self.identity.incarnation.hex()

    @property
    def clock_domain(self) -> str:
        """The name of the clock that all times are on."""
        return clock_domain(self.identity.boot_id, self.identity.time_namespace)


class Follower:
    """Follows one ring from where ``progress`` says."""

    def __init__(self, reader: RingReader, progress: Progress, node: str) -> None:
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
        self._last_alive_check_s = float("-inf")
        self._gone = ""

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

    def poll(self, now_s: float) -> bool:
        """Read what is new.

        Returns:
            Whether more may be there: the buffer is full and is to be taken first.

        Raises:
            RingError: the file was truncated.
        """
        if not self._gone:
            self._gone = self._look_for_end(now_s)
        room = MAX_BUFFERED - self._count
        batch = self._reader.poll(room) if room > 0 else None
        entries, corrupt = self._reader.meta()  # after the records: groups come before their use
        self._meta_corrupt += corrupt
        for entry in entries:
            self._learn(entry)
        if batch is None:
            return True
        self._read += batch.rows.raw
        self.progress.count("ring_overwritten", batch.overwritten)
        self.progress.count("ring_torn", batch.torn)
        full = len(batch.rows) >= room
        if self._gone and not full:
            self.ended = self._gone
        return full

    def due(self, now_s: float) -> bool:
        """Whether a chunk is to be made now."""
        if self.ended or self._count >= FLUSH_RECORDS:
            return True
        # At the same moments for every ring, so that one POST carries them all.
        period_s = FLUSH_S if self._read else HEARTBEAT_S
        return now_s // period_s != self._last_chunk_s // period_s

    def chunk(self) -> Chunk:
        """Return everything read and not yet taken; ``taken`` removes it."""
        pending = self._reader.inflight()
        dropped = dict(self.progress.dropped)
        for reason, offset in _HEADER_COUNTERS:
            if count := self._reader.word(offset):
                dropped[reason] = count
        if self._meta_corrupt:
            dropped["meta_corrupt"] = self._meta_corrupt
        info = dict(self._info)
        if full := self._reader.word(at.DROPPED_INFLIGHT_OFFSET):
            info["inflight_full"] = str(full)  # no record is lost: only its pending state unseen
        if self.telemetry.dropped:
            info["telemetry_dropped"] = str(self.telemetry.dropped)
        return Chunk(
            identity=self._reader.identity,
            node=self._node,
            rows=Rows(bytes(self._read)),
            tail=self._reader.tail,
            groups=self._groups,
            pending=pending,
            anchor=self._reader.anchor(),
            step=self._reader.word(at.STEP_OFFSET),
            dropped=dropped,
            info=info,
            ended=self.ended,
            telemetry=self.telemetry.give(),
        )

    def taken(self, now_s: float) -> None:
        """Forget the records of the last chunk: they are stored."""
        self._read.clear()
        self.telemetry.taken()
        self._last_chunk_s = now_s

    def close(self) -> None:
        """Unmap the ring."""
        self._reader.close()

    @property
    def _count(self) -> int:
        return len(self._read) // at.RECORD_BYTES

    def _look_for_end(self, now_s: float) -> str:
        # In this order: a writer closes, then dies. What it wrote is complete once it is gone.
        if self._reader.closed_by_writer:
            return "closed"
        if now_s - self._last_alive_check_s < _ALIVE_CHECK_S:
            return ""
        self._last_alive_check_s = now_s
        if self._reader.writer_alive():
            return ""
        closed = self._reader.word(at.STATE_OFFSET) == at.STATE_CLOSED
        return "closed" if closed else "killed"

    def _learn(self, entry: dict[str, Any]) -> None:
        if "group" not in entry:
            for key, value in entry.items():
                if len(self._info) < _MAX_FACTS and isinstance(value, (str, int, float)):
                    self._info[str(key)[:64]] = str(value)[:256]
            return
        index, epoch = entry["group"], entry.get("epoch", 0)
        if type(index) is not int or type(epoch) is not int or not 0 <= index < 1 << 16:
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
