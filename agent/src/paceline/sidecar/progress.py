"""How far the records of one ring have come: what a restarted sidecar goes on from."""

from __future__ import annotations

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

    def count(self, reason: str, records: int) -> None:
        """Add ``records`` to the losses for ``reason``."""
        if records:
            self.dropped[reason] = self.dropped.get(reason, 0) + records
