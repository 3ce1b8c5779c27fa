"""What the bundles of a stream begin with alike: it is stored once, and left out of each of them.

A bundle begins with who its members are (``Body.origin``), and that is a quarter of a small one.
The sidecar ends a block of the zlib stream behind it, so the same members are the same bytes. They
are compared as bytes: nothing is unpacked for it, and a sidecar that packs otherwise loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline_service.store.frames import HEAD_AT

LEAST_BYTES = 64
"""A shorter head is not worth its row."""
MOST_BYTES = 8192
SPARE_BYTES = 8
"""What follows the members may be alike in two bundles, by chance and for some bytes."""
MOST_HEADS = 64
"""Of one stream: who changes more often gains nothing by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A head that is stored, or is about to be."""

    frame_id: int
    """Of the first bundle that it was left out of."""
    content: bytes

    def begins(self, packed: bytes) -> bool:
        """Whether ``packed`` (its header included) begins with it."""
        return packed.startswith(self.content, HEAD_AT)


class Beginnings:
    """How the bundles of one stream have begun so far."""

    __slots__ = ("_found", "_last")

    def __init__(self) -> None:
        self._last = b""
        self._found = 0

    def find(self, packed: bytes, frame_id: int) -> Head | None:
        """Return a head that ``packed`` shares with the bundle that this was asked for before."""
        if self._found >= MOST_HEADS:
            return None
        last, self._last = self._last, packed[HEAD_AT : HEAD_AT + MOST_BYTES]
        pairs = enumerate(zip(last, self._last, strict=False))
        shortest = min(len(last), len(self._last))
        alike = next((place for place, (a, b) in pairs if a != b), shortest) - SPARE_BYTES
        if alike < LEAST_BYTES:
            return None
        self._found += 1
        return Head(frame_id=frame_id, content=self._last[:alike])
