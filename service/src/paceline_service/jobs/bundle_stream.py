"""The bundles of one sidecar and launch, and the streams of the ranks in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.wire.bundles import Bundle, Origin
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.stream import Stream
from paceline_service.store.frames import CommittedFrame


@dataclass(slots=True, kw_only=True)
class BundleStream:
    """What is known about one sequence of bundles. Gaps in it are waited for, as in a ring's."""

    stream: str
    buffer: ReorderBuffer[CommittedFrame]
    first_seq: int
    """Where it begins: retention has deleted what was before."""
    origin: Origin | None = None
    """Of the newest bundle: as long as it is the same object, ``members`` are its members."""
    members: list[Stream | None] = field(default_factory=list)
    """None: the bundle says another rank of that process than was told before."""
    anchors: tuple[list[int], list[int]] | None = None
    """As the newest bundle has them."""
    reporting: set[int] = field(default_factory=set)
    """Places of the members that told of losses."""

    def tell_clocks(self, bundle: Bundle, members: list[Stream]) -> list[Stream]:
        """Give members the anchors of ``bundle``; return those whose wall clock went back."""
        sent = (bundle.body.anchor_mono_ns, bundle.body.anchor_ahead_ns)
        if sent == self.anchors:
            return []
        self.anchors = sent
        set_back = []
        for stream, mono_ns, wall_ns in zip(members, *bundle.anchors(), strict=True):
            jumps = stream.clock.jumps_back
            stream.clock.anchor(mono_ns, wall_ns)
            if stream.clock.jumps_back > jumps == 0:
                set_back.append(stream)
        return set_back


@dataclass(frozen=True, slots=True)
class Batched:
    """A frame or bundle whose records the sink does not have yet, and who wrote them."""

    streams: list[Stream]
    committed: CommittedFrame
    of: BundleStream | None = None
