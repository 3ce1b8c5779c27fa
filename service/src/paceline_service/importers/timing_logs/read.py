"""Training logs of text as the log of a job, with what they tell beside records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.dataclass import dataclass
from paceline_service.analysis.kinds.uniform_cause import ACTIONS
from paceline_service.analysis.report import Finding, RankRows, Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.log import EventLog
from paceline_service.importers.timing_logs.detector import Named, named_by
from paceline_service.importers.timing_logs.facts import Change, Facts, facts_of
from paceline_service.importers.timing_logs.job import Job, read_job
from paceline_service.importers.timing_logs.records import Recorder
from paceline_service.importers.timing_logs.resolved import about_records, told_by_records, unplaced
from paceline_service.importers.timing_logs.summary import timings
from paceline_service.importers.timing_logs.timers import phase_of
from paceline_service.importers.timing_logs.told import (
    OWN_PHASES,
    about_change,
    about_changes,
    about_named,
    about_outliers,
    about_phases,
    about_spreads,
    about_steps,
    about_tables,
    all_grew,
)

_CAUSES = {"input": "input", "forward": "compute", "backward": "compute", "optimizer": "compute"}
MATERIAL_RATIO = 0.005
"""A finding must cost the job at least this share of its time (DETECTION section 4)."""


def read_timing_logs(paths: Sequence[Path], faults: Faults) -> EventLog:
    """Read the logs of one job.

    Where they hold the times of every rank these become records. Otherwise the log has none, and
    what its report says comes from ``finish`` and ``facts``.

    Raises:
        InputError: they hold no times of training, or are of several jobs.
    """
    recorder = Recorder()
    try:
        return _log(read_job(paths, faults, recorder), faults)
    except BaseException:
        recorder.spool.close()
        raise


def _log(job: Job, faults: Faults) -> EventLog:
    facts = facts_of(job.latest) if job.latest else None
    if facts is not None:
        facts.resolved = job.recorder.any
    told = _Told(
        job=job,
        facts=facts,
        named=named_by(job.detected, job.places),
        resolved=job.recorder.any,
    )
    if told.resolved:
        log = job.recorder.log(job.places.world_size, faults)
    else:
        job.recorder.spool.close()
        log = EventLog(world_size=job.places.world_size, faults=faults)
    log.world_size_told = "world_size" in job.settings
    log.finish = told.finish
    log.facts = lambda: {"timings": timings(job, told.facts, told.named, told.resolved)}
    return log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Puts what a log tells into the report."""

    job: Job
    facts: Facts | None
    named: Named | None
    resolved: bool

    def finish(self, report: Report) -> Report:
        """Return the report with what the log tells besides records."""
        if self.resolved:
            notes = self._notes()
            findings = [
                one for one in told_by_records(report, self.job) if not self._is_more_work(one)
            ]
            verdict = report.verdict
            if len(findings) < len(report.findings) and verdict == "uniform_slowdown":
                verdict = findings[0].kind if findings else "insufficient_evidence"
            return replace(
                report, verdict=verdict, findings=findings, notes=[*report.notes, *notes]
            )
        findings = [*self._uniform(), *self._convicted()]
        said = {sentence for finding in findings for sentence in finding.evidence}
        notes = [note for note in self._notes() if note not in said]
        if "world_size" not in self.job.settings:
            notes.append("the log does not say how many ranks the job has")
        verdict = findings[0].kind if findings else "insufficient_evidence"
        if self.job.recorder.unplaced:
            notes.insert(0, unplaced(self.job.recorder.unplaced))
        if self.job.recorder.partial:
            notes.insert(
                0,
                f"{self.job.recorder.partial:,} reports have times of all ranks, but not of their "
                "own work: forward-compute and backward-compute need --timing-log-level 2",
            )
        return replace(
            report,
            verdict=verdict,
            findings=findings,
            ranks=RankRows.none(),
            wasted_gpu_s=None,
            complete=False,
            notes=notes,
        )

    def _notes(self) -> list[str]:
        facts, places = self.facts, self.job.places
        notes: list[str] = []
        if facts is not None:
            notes += about_steps(facts, len(self.job.attempts))
            notes += about_changes(facts)
            if not self.resolved:
                notes += about_spreads(facts, places)
                notes += about_phases(facts) if not facts.spreads else []
        if self.named is not None:
            notes += about_named(self.named, places)
        notes += about_tables(self.job.tables)
        if facts is not None:
            notes += about_outliers(facts)
        if self.resolved:
            notes += about_records(self.job)
        return notes

    def _is_more_work(self, finding: Finding) -> bool:
        """Whether all ranks take longer because each iteration has more to do since then."""
        if finding.kind != "uniform_slowdown" or finding.first_step is None or self.facts is None:
            return False
        near = 3 * self.facts.each
        return any(
            change.work is not None and abs(change.iteration - finding.first_step) <= near
            for change in self.facts.changes
        )

    def _uniform(self) -> list[Finding]:
        """Return a finding where the last change made even the fastest rank slower."""
        if self.facts is None or not self.facts.changes:
            return []
        change = self.facts.changes[-1]
        ratio = 1 - change.before_ms / change.after_ms
        if change.work is not None or ratio < MATERIAL_RATIO or not all_grew(change):
            return []
        return [self._slowdown(change, ratio, self.facts)]

    def _slowdown(self, change: Change, ratio: float, facts: Facts) -> Finding:
        grown = [one for one in change.least if phase_of(one.timer) in OWN_PHASES]
        top = max(grown, key=lambda one: one.grown_ms)
        main = top.grown_ms >= 0.5 * sum(max(one.grown_ms, 0.0) for one in grown)
        phase = phase_of(top.timer) if main else None
        cause = _CAUSES.get(phase or "", "unknown")
        after = [r for r in self.job.latest if change.iteration <= r.iteration]
        lost_s = sum(r.covers * change.grown_ms for r in after) / 1e3
        size = self.job.places.world_size if "world_size" in self.job.settings else 0
        before_ms = sum(one.before_ms for one in grown)
        return Finding(
            kind="uniform_slowdown",
            ranks=[],
            nodes=[],
            cause=cause,
            phase=phase,
            first_step=change.iteration,
            last_step=change.last_iteration,
            slowdown=sum(one.after_ms for one in grown) / before_ms,
            recoverable_ratio=ratio,
            wasted_gpu_s=lost_s * size if size else None,
            confidence=1 - change.chance,
            evidence=[
                *about_change(change, facts),
                f"{top.timer} of the fastest rank went from {top.before_ms:,.1f} ms to "
                f"{top.after_ms:,.1f} ms per iteration: no rank is as fast as before",
            ],
            action=ACTIONS[cause],
        )

    def _convicted(self) -> list[Finding]:
        """Return a finding where the straggler detector's lines suffice to name a rank."""
        named, places = self.named, self.job.places
        if named is None or not named.convicts(places):
            return []
        evidence = about_named(named, places)
        cause = "unknown"
        action = (
            f"paceline doctor  # on the node of rank {named.rank}: its GPU, its host, its links"
        )
        if named.clock_hz is not None:
            low, high = named.clock_hz
            cause = "gpu_throttle"
            action = f"nvidia-smi -q -d PERFORMANCE,CLOCK  # on the node of rank {named.rank}"
            evidence.append(f"its clock was {low / 1e9:.2f} GHz against {high / 1e9:.2f} GHz")
        elif named.data_ms is not None:
            most, least = named.data_ms
            cause = "input"
            action = f"iostat -x 1 3  # on the node of rank {named.rank}: its data comes late"
            evidence.append(f"it waited {most:,.1f} ms for data, the fastest {least:,.1f} ms")
        evidence.append("the detector times the forward pass; backward and optimizer are not in it")
        return [
            Finding(
                kind="straggler", ranks=[named.rank], nodes=[], cause=cause,
                phase="input" if cause == "input" else "forward", first_step=named.first,
                last_step=named.last,
                slowdown=1 + named.excess if named.excess is not None else named.ratio,
                recoverable_ratio=None, wasted_gpu_s=None, confidence=1 - named.chance,
                evidence=evidence, action=action,
            )
        ]  # fmt: skip
