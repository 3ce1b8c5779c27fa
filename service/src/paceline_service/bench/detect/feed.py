"""Hands a simulated job to the analysis, as a collector would: the one place that knows both."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import COLUMNS, Group, Records
from paceline_service.bench.detect.simulate.job import Simulation
from paceline_service.bench.detect.simulate.spec import Chunk, Sample


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:03d}"


class Feed:
    """Feeds one simulation to one analysis.

    Args:
        simulation: the job; its records are handed on chunk by chunk.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        layout = simulation.spec.layout
        self.analysis = JobAnalysis(layout.world_size)
        self.judged_step = -1
        """The newest step that the analysis has judged."""
        self._declared = 0
        domains = simulation.clock_domains
        for rank in range(layout.world_size):
            self.analysis.declare_rank(
                rank, node=node_name(rank // layout.node_size), clock_domain=f"clock{domains[rank]}"
            )

    def push(self, chunk: Chunk) -> None:
        """Take what some steps left behind, and analyse what is complete."""
        for info in self.simulation.groups[self._declared :]:
            self.analysis.declare_group(
                Group(name=info.name, ranks=info.ranks, epoch=info.epoch, mesh_dim=info.dimension)
            )
            self._declared += 1
        for rank in chunk.left:
            self.analysis.rank_ended(rank, "closed")
        samples: dict[int, list[Sample]] = {}
        for sample in chunk.samples:
            samples.setdefault(sample.rank, []).append(sample)
        for rank, own in samples.items():
            self.analysis.add_telemetry(rank, own)
        of_row = chunk.columns["rank"]
        begin = np.flatnonzero(np.append(True, np.diff(of_row) != 0))[: len(of_row)]
        for start, end in zip(begin, np.append(begin[1:], len(of_row)), strict=True):
            columns = {name: chunk.columns[name][start:end] for name in COLUMNS}
            self.analysis.add(Records(rank=int(of_row[start]), **columns))
        self._note(self.analysis.advance())

    def finish(self) -> None:
        """No more records will come."""
        self._note(self.analysis.finish())

    def _note(self, rows: list[StepRow]) -> None:
        if rows:
            self.judged_step = rows[-1].step
