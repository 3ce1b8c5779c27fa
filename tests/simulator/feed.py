"""Hands a simulated job to the analysis, at once or bit by bit."""

from __future__ import annotations

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.job import Scenario, Simulated, simulate


def analyse(scenario: Scenario, *, options: Options | None = None, nodes: int = 1) -> JobAnalysis:
    """Simulate and analyse a whole job; its ranks are spread evenly over ``nodes``."""
    analysis, _ = feed(simulate(scenario), options=options, nodes=nodes)
    return analysis


def feed(
    job: Simulated, *, options: Options | None = None, nodes: int = 1, chunk_rows: int = 0
) -> tuple[JobAnalysis, list[StepRow]]:
    """Analyse a job; with ``chunk_rows`` the ranks' rows arrive in turns of so many."""
    size = len(job.rows)
    analysis = JobAnalysis(size, options)
    index = [analysis.declare_group(Group(name=n, ranks=r)) for n, r in job.groups]
    assert index == list(range(len(index)))
    for rank in range(size):
        node = f"node-{rank * nodes // size}"
        analysis.declare_rank(rank, node=node, clock_domain=job.clocks[rank])
    steps: list[StepRow] = []
    chunk = chunk_rows or max(map(len, job.rows))
    for begin in range(0, max(map(len, job.rows)), chunk):
        for rank, rows in enumerate(job.rows):
            analysis.add(records_from_rows(rank, rows[begin : begin + chunk]))
        steps += analysis.advance()
    return analysis, steps + analysis.finish()
