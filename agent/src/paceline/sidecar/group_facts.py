"""What a rank says of one of its process groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A process group as its rank described it; ``ranks`` is text such as ``0-7``."""

    index: int
    name: str
    ranks: str
    epoch: int
    mesh_dim: str
    backend: str
