"""An imported job through the analysis: the same code that judges live jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import Group
from paceline_service.analysis.report import Report
from paceline_service.importers.answer import Answer
from paceline_service.importers.faults import HARMLESS
from paceline_service.importers.log import EventLog

See = Callable[[JobAnalysis, Sequence[StepRow]], None]
"""Is shown the steps as they are judged, with the analysis that judged them."""


def answer_log(log: EventLog, see: See | None = None) -> Answer:
    """Return the answer for an imported job; it holds ``log``, which stays open."""
    log.faults.progress.judging()
    report = analyze_log(log, see).to_dict()
    if log.job:
        report["job"]["name"] = log.job
    if log.facts is not None:
        report["data"].update(log.facts())
    return Answer(report=report, faults=log.faults, log=log, world_size_told=log.world_size_told)


def analyze_log(log: EventLog, see: See | None = None) -> Report:
    """Return the report on an imported job; what was wrong with its files is in its data."""
    analysis = JobAnalysis(log.world_size, log.options)
    for rank in log.ranks:
        analysis.declare_rank(
            rank, node=log.nodes.get(rank, ""), clock_domain=log.clock_domains.get(rank, "")
        )
    for group in log.groups:
        # A fresh analysis numbers groups in the order in which they are declared.
        analysis.declare_group(
            Group(name=group.name, ranks=group.ranks, epoch=group.epoch, mesh_dim=group.mesh_dim)
        )
    for index, noise_ns in log.noise_ns.items():
        analysis.assume_noise(index, noise_ns)
    for sample in log.telemetry:
        analysis.add_telemetry(sample.rank, [sample])
    for records in log.rounds():
        for part in records:
            analysis.add(part)
        rows = analysis.advance()
        if see is not None:
            see(analysis, rows)
    for rank, how in log.ended.items():
        if how:
            analysis.rank_ended(rank, how)
    for rank, dropped in log.dropped.items():
        analysis.note_dropped(rank, dropped)
    for rank, now_ns in log.alive_ns.items():
        analysis.standstill.alive_at(rank, now_ns)
    analysis.log_ends(ages_known=bool(log.run_id))
    rows = analysis.finish()
    if see is not None:
        see(analysis, rows)
    report = analysis.report()
    return _with_faults(log.finish(report) if log.finish is not None else report, log)


def _with_faults(report: Report, log: EventLog) -> Report:
    dropped = dict(report.dropped)
    for reason, count in log.faults.counts.items():
        if reason not in HARMLESS:
            dropped[reason] = dropped.get(reason, 0) + count
    notes = [*report.notes, *log.faults.notes()]
    if log.telemetry_left_out:
        notes.append(f"{log.telemetry_left_out:,} telemetry samples were left out")
    return replace(
        report,
        complete=report.complete and not log.faults.lossy,
        dropped=dropped,
        notes=notes,
    )
