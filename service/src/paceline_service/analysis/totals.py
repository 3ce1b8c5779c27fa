"""Running sums over the steps of a job: what the figures of the report are made of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.vocabulary import RecordKind
from paceline_service.analysis.blame.ledger import StepBlame
from paceline_service.analysis.blame.timeline import PHASES, StepRow
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import RankRows


class Sums:
    """Sums over some steps; arrays by global rank, (R,)."""

    def __init__(self, world_size: int) -> None:
        self.steps = 0
        self.duration_ns = 0
        self.ideal_ns = 0
        self.rank_steps = np.zeros(world_size, dtype=np.int64)
        self.self_ns = np.zeros(world_size, dtype=np.int64)
        self.wait_ns = np.zeros(world_size, dtype=np.int64)
        self.comm_ns = np.zeros(world_size, dtype=np.int64)
        self.caused_ns = np.zeros(world_size, dtype=np.int64)
        self.blamed_ns = np.zeros(world_size)
        self.last_count = np.zeros(world_size, dtype=np.int64)
        self.phase_ns = np.zeros((world_size, PHASES), dtype=np.int64)
        self.unattributed_ns = 0.0

    def add(self, row: StepRow, blame: StepBlame) -> None:
        """Add one step."""
        here = row.present
        self.steps += 1
        self.rank_steps += here
        self.duration_ns += row.duration_ns
        if here.any():
            own = row.self_ns[here]
            self.ideal_ns += row.duration_ns - (int(own.max()) - round(float(own.mean())))
        self.self_ns[here] += row.self_ns[here]
        self.wait_ns[here] += row.wait_ns[here]
        self.comm_ns[here] += row.comm_ns[here]
        np.add(self.phase_ns, row.phase_self_ns, out=self.phase_ns, where=here[:, None])
        self.caused_ns += blame.caused_ns
        self.blamed_ns += blame.blamed_ns.sum(axis=1)
        self.last_count += blame.last_count
        self.unattributed_ns += blame.unattributed_ns


class Totals:
    """Sums over the settled steps, and over all of them for jobs too short to settle."""

    def __init__(self, world_size: int, settling_steps: int) -> None:
        self._all = Sums(world_size)
        self._settled = Sums(world_size)
        self._settling_steps = settling_steps
        self.steps = 0
        self.left_out = 0
        """Steps whose collectives were not recorded, as was asked."""
        self.collectives = 0
        self.duplicates = 0
        self.incomplete = 0
        self.mismatched = 0
        self.unreleased_steps = 0
        """Steps with collectives, of none of which every member's release is known."""
        self.phases_seen = False

    def add(self, row: StepRow, table: Table, matches: Matches, blame: StepBlame) -> None:
        """Add one step."""
        self.steps += 1
        self.collectives += len(matches.first)
        if len(matches.first):
            released = np.minimum.reduceat(matches.rows.end_ns, matches.first) > 0
            self.unreleased_steps += not (released & matches.complete).any()
        self.duplicates += matches.duplicates
        self.incomplete += matches.incomplete
        self.mismatched += matches.mismatched
        self.phases_seen = self.phases_seen or bool((table.kind == RecordKind.PHASE).any())
        self._all.add(row, blame)
        if self.steps > self._settling_steps:
            self._settled.add(row, blame)

    @property
    def settled(self) -> Sums:
        """The sums over the settled steps alone, which may be none."""
        return self._settled

    @property
    def _sums(self) -> Sums:
        return self._settled if self._settled.steps else self._all

    @property
    def slowdown(self) -> float | None:
        """Time over the time with every rank at the mean self time of its step."""
        sums = self._sums
        return sums.duration_ns / sums.ideal_ns if sums.ideal_ns > 0 else None

    @property
    def idle_ratio(self) -> float | None:
        """Exposed wait over all time, all ranks together."""
        sums = self._sums
        everything = int((sums.self_ns + sums.wait_ns + sums.comm_ns).sum())
        return float(sums.wait_ns.sum()) / everything if everything else None

    @property
    def gamma(self) -> float | None:
        """Exposed communication over self time, all ranks together."""
        sums = self._sums
        busy = int(sums.self_ns.sum())
        return float(sums.comm_ns.sum()) / busy if busy else None

    @property
    def wasted_gpu_s(self) -> float:
        """Seconds that ranks stood still waiting for others."""
        return float(self._sums.wait_ns.sum()) / 1e9

    @property
    def unattributed_ns(self) -> float:
        """Waits that were charged to nobody, ns."""
        return self._sums.unattributed_ns

    def phase_ns(self) -> Int64Array:
        """Return the own time of each rank by phase, (R, 7), in the order of EXCLUSIVE_PHASES."""
        return self._sums.phase_ns.copy()

    def rank_rows(self, causes: Mapping[int, str]) -> RankRows:
        """Return the totals of each rank, with the causes of those that a finding names."""
        sums = self._sums
        return RankRows(
            {
                "self_ns": sums.self_ns.tolist(),
                "wait_ns": sums.wait_ns.tolist(),
                "exposed_comm_ns": sums.comm_ns.tolist(),
                "caused_wait_ns": sums.caused_ns.tolist(),
                "blamed_wait_ns": np.rint(sums.blamed_ns).astype(np.int64).tolist(),
                "last_arriver": sums.last_count.tolist(),
            },
            causes,
        )
