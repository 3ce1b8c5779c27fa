"""Runs one scenario: simulate, analyse step by step, compare with the truth."""

from __future__ import annotations

from time import process_time

from paceline_service.analysis.report import Finding, Report
from paceline_service.bench.detect.baselines import Baselines
from paceline_service.bench.detect.feed import Feed
from paceline_service.bench.detect.match import Matched, match
from paceline_service.bench.detect.outcome import FaultOutcome, Outcome
from paceline_service.bench.detect.scenario import Scenario
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.job import Simulation
from paceline_service.bench.detect.simulate.spec import Chunk
from paceline_service.bench.detect.truth import Cost, costs

CALM_STEPS = 16
"""How often the report is looked at when nothing is awaited; each step while a fault is."""
PATIENCE = 4.0
"""A fault is awaited step by step for so many times its least delay; then a delay is coarse."""


def run(scenario: Scenario) -> Outcome:
    """Return what the analysis made of ``scenario``."""
    watch = _Watch(scenario)
    baselines = Baselines(scenario.spec.layout.world_size, scenario.spec.steps // 2)
    feed = Feed(Simulation(scenario.spec))
    records, analysis_s = 0, 0.0
    chunks = feed.simulation.chunks(CALM_STEPS)
    chunk: Chunk | None = next(chunks, None)
    while chunk is not None:
        records += len(chunk.columns["rank"])
        baselines.add(chunk)
        began = process_time()
        feed.push(chunk)
        watch.look(feed.analysis.report(), feed.judged_step)
        analysis_s += process_time() - began
        try:
            chunk = chunks.send(watch.steps_until_next(chunk.first_step + chunk.steps))
        except StopIteration:
            chunk = None
    began = process_time()
    feed.finish()
    report = feed.analysis.report()
    watch.look(report, feed.judged_step)
    analysis_s += process_time() - began
    return watch.outcome(report, baselines, records, analysis_s)


class _Watch:
    """Reads the report as the job goes on."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.faults = scenario.spec.faults
        self.found_at: list[int | None] = [None] * len(self.faults)
        self._false: dict[tuple[str, tuple[int, ...]], Finding] = {}

    def look(self, report: Report, judged_step: int) -> None:
        """Note which faults are found by now, and what is said falsely."""
        matched = match(self.scenario, report.findings)
        for number, fault in enumerate(self.faults):
            if self.found_at[number] is None and matched.found(number, fault):
                self.found_at[number] = judged_step
        for finding in matched.false:
            self._false.setdefault((finding.kind, tuple(finding.ranks)), finding)

    def steps_until_next(self, step: int) -> int:
        """Return after how many steps to look again: each one while something is awaited."""
        awaited = [
            fault.first
            for fault, found in zip(self.faults, self.found_at, strict=True)
            if found is None and self.scenario.delay_scored
            if step - fault.first < PATIENCE * self.scenario.delay_bound(fault) + CALM_STEPS
        ]
        if not awaited:
            return CALM_STEPS
        until = min(awaited) - step
        return 1 if until <= 0 else min(until, CALM_STEPS)

    def outcome(
        self, report: Report, baselines: Baselines, records: int, analysis_s: float
    ) -> Outcome:
        """Return the result, given the report at the end."""
        scenario = self.scenario
        matched = match(scenario, report.findings)
        final = {(finding.kind, tuple(finding.ranks)) for finding in matched.false}
        right = [f for f in report.findings if f not in matched.false]
        blamed = [row.blamed_wait_ns for row in report.ranks]
        caused = [row.caused_wait_ns for row in report.ranks]
        culprits = sorted({rank for fault in self.faults for rank in fault.ranks})
        single = bool(culprits) and all(fault.kind == "rank" for fault in self.faults)
        layout = scenario.spec.layout
        return Outcome(
            family=scenario.family,
            seed=scenario.seed,
            layout=layout.name,
            noise=_noise(scenario),
            steps=scenario.spec.steps,
            expected=list(scenario.verdicts),
            verdict=report.verdict,
            parallel=layout.tp > 1 or layout.pp > 1,
            faults=[
                self._fault(number, fault, cost, matched)
                for number, (fault, cost) in enumerate(
                    zip(self.faults, costs(scenario), strict=True)
                )
            ],
            findings=[describe(finding) for finding in report.findings],
            false=[describe(finding) for finding in matched.false],
            false_passing=[
                describe(finding) for key, finding in self._false.items() if key not in final
            ],
            right_findings=len(right),
            right_wasted_gpu_s=sum(f.wasted_gpu_s or 0.0 for f in right),
            false_wasted_gpu_s=sum(f.wasted_gpu_s or 0.0 for f in matched.false),
            culprits=culprits,
            blamed_rank=blamed.index(max(blamed)) if single and blamed else None,
            victim_rank=caused.index(max(caused)) if single and caused else None,
            baselines=baselines.named(),
            notes=report.notes[:3],
            records=records,
            analysis_s=analysis_s,
        )

    def _fault(self, number: int, fault: Fault, cost: Cost, matched: Matched) -> FaultOutcome:
        scenario = self.scenario
        reason = scenario.reason_apart(fault)
        findings = matched.of_fault[number]
        found = matched.found(number, fault)
        first = findings[0] if findings else None
        at = self.found_at[number]
        scored = scenario.delay_scored and not reason
        period = first.period_steps if first is not None else None
        one_each = len(findings) == 1 and len(self.faults) == 1 and bool(fault.ranks)
        return FaultOutcome(
            what=_what(fault),
            cost_ratio=cost.ratio,
            apart=reason,
            found=found,
            true_cause=fault.cause,
            named_cause=first.cause if first is not None else None,
            cause_scored=fault.kind != "rotating",
            delay_scored=scored,
            delay_bound=scenario.delay_bound(fault) if scored else None,
            plain_delay_bound=scenario.plain_delay_bound(fault) if scored else None,
            delay_steps=at - fault.first + 1 if scored and at is not None else None,
            onset_error=first.first_step - fault.first
            if first is not None and first.first_step is not None
            else None,
            true_wasted_gpu_s=cost.wasted_gpu_s,
            named_wasted_gpu_s=first.wasted_gpu_s if first is not None and one_each else None,
            true_recoverable=cost.recoverable,
            named_recoverable=first.recoverable_ratio if first is not None and one_each else None,
            period_error=abs(period / fault.period_steps - 1)
            if period is not None and fault.period_steps
            else None,
        )


def describe(finding: Finding) -> str:
    """Return a finding in short."""
    who = f"ranks {finding.ranks[:8]}" if finding.ranks else ""
    where = f"links {finding.links[:4]}" if finding.links else ""
    nodes = f"nodes {finding.nodes}" if finding.nodes and not finding.ranks else ""
    named = " ".join(part for part in (who, nodes, where) if part)
    return f"{finding.kind} {named or 'of the job'} ({finding.cause})"


def _what(fault: Fault) -> str:
    who = f"ranks {list(fault.ranks[:8])}" if fault.ranks else f"nodes {list(fault.nodes)}"
    shape = f" every {fault.period_steps} steps" if fault.period_steps else ""
    return f"{fault.kind} {who} +{fault.slowdown:.1%} from step {fault.first}{shape}"


def _noise(scenario: Scenario) -> str:
    n = scenario.spec.noise
    return (
        f"cv {n.jitter:.1%} {n.tail}, spread {n.spread:.1%}, rho {n.autocorrelation:.1f}, "
        f"common {n.common:.1%}"
    )
