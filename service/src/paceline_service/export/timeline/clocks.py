"""One time axis for ranks on many clocks, for drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline_service.analysis.matching.clocks import ClockOffsets
from paceline_service.analysis.records import Int64Array
from paceline_service.export.timeline.drawn_job import DrawnJob

Json = dict[str, Any]


class Clocks:
    """Puts the times of all ranks on one axis, which begins at 0.

    Ranks that share a clock, or that were compared through collectives, keep their distance;
    others are placed by their wall clocks. For drawing only.
    """

    def __init__(self, job: DrawnJob, offsets: ClockOffsets, ranks: Sequence[int]) -> None:
        self._offsets = offsets
        size = job.world_size
        known = offsets.known
        self._reference = np.where(known, offsets.reference_rank, np.arange(size))
        wall = np.array([job.wall_offsets_ns.get(rank, -1) for rank in range(size)])
        self._base = wall[self._reference]
        self._known = known
        self._ranks = ranks
        self.origin_ns = 0

    def place(self, rank: Int64Array, time_ns: Int64Array) -> Int64Array:
        """Return (N,) times of ranks on the common axis; 0 (unknown) stays below it."""
        offsets = self._offsets
        since_s = (time_ns - offsets.at_ns[rank]) / 1e9
        drift = np.rint(offsets.drift_ns_per_s[rank] * since_s).astype(np.int64)
        shift = np.where(self._known[rank], offsets.offset_ns[rank] + drift, 0)
        base = np.maximum(self._base[rank], 0)
        return np.asarray(time_ns - shift + base - self.origin_ns)

    def begin(self, rank: Int64Array, time_ns: Int64Array) -> None:
        """Let the axis begin at the earliest of these; who has no wall clock begins there too."""
        if not len(rank):
            return
        placed = self.place(rank, time_ns)
        anchored = self._base[rank] >= 0
        start = int(placed[anchored].min()) if anchored.any() else 0
        for reference in np.unique(self._reference[rank[~anchored]]).tolist():
            of_it = self._reference[rank] == reference
            self._base[self._reference == reference] = max(start - int(placed[of_it].min()), 0)
        self.origin_ns = int(self.place(rank, time_ns).min())

    def told(self) -> list[Json]:
        """Return what is known of the clock of each drawn rank, for the metadata."""
        offsets = self._offsets
        rows = []
        for rank in self._ranks:
            known = bool(self._known[rank])
            rows.append(
                {
                    "rank": rank,
                    "how": "collectives" if known else "wall clock",
                    "reference_rank": int(self._reference[rank]),
                    "offset_ns": int(offsets.offset_ns[rank]) if known else None,
                    "uncertainty_ns": int(offsets.uncertainty_ns[rank]) if known else None,
                    "drift_ns_per_s": float(offsets.drift_ns_per_s[rank]) if known else None,
                }
            )
        return rows

    def label(self, rank: int) -> str:
        """Return how well the rank is placed, in words."""
        if not self._known[rank]:
            return "placed by its wall clock"
        uncertainty_ns = int(self._offsets.uncertainty_ns[rank])
        if not uncertainty_ns:
            return f"clock of rank {int(self._reference[rank])}"
        return f"clock known to ±{uncertainty_ns / 1e6:.2f} ms"
