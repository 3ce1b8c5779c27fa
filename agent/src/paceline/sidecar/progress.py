"""How far the records of one ring have come: what a restarted sidecar goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Progress:
    """What was stored of one incarnation. It changes only together with what it describes."""

    next_seq: int = 0
    """Sequence number of the next frame."""
    ring_tail: int = 0
    """Index of the first record of the ring that is not stored yet."""
    ended: bool = False
    """Whether the last frame of the incarnation is stored."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Records that the sidecar saw lost, by reason (cumulative)."""
    also: dict[str, int] = field(default_factory=dict)
    """How far a second ring of the same process has been used up, by its incarnation."""

    def move(self, frame_seq: int, ring_tail: int, *, ended: bool, also: Mapping[str, int]) -> None:
        """Note that frame number ``frame_seq`` is stored, which ends before ``ring_tail``."""
        self.next_seq = frame_seq + 1
        self.ring_tail = ring_tail
        self.ended = ended
        self.also = dict(also)

    def count(self, reason: str, records: int) -> None:
        """Add ``records`` to the losses for ``reason``."""
        if records:
            self.dropped[reason] = self.dropped.get(reason, 0) + records
