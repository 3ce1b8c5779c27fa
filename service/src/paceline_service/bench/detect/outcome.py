"""What came out of one scenario, as plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """One fault, and what was said of it.

    ``delay_bound`` and ``delay_steps`` are null where the delay does not count; a fault that was
    not found has no delay though its bound is there.
    """

    what: str
    cost_ratio: float
    apart: str
    found: bool
    true_cause: str
    named_cause: str | None
    cause_scored: bool
    delay_scored: bool
    delay_bound: float | None
    plain_delay_bound: float | None
    delay_steps: int | None
    onset_error: int | None
    true_wasted_gpu_s: float
    named_wasted_gpu_s: float | None
    true_recoverable: float
    named_recoverable: float | None
    period_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario.

    Attributes:
        parallel: whether lateness is inherited in it (TP, PP).
        findings: what the report names at the end, in short.
        false: those of them that are about no fault.
        false_passing: what was said at some time, is not said at the end, and was false.
        blamed_rank: the rank with the largest blamed wait; null without a fault of one rank.
        victim_rank: the one with the largest caused wait.
        baselines: whom simple rules name, by rule; null where a rule could not be run.
    """

    family: str
    seed: int
    layout: str
    noise: str
    steps: int
    expected: list[str]
    verdict: str
    parallel: bool
    faults: list[FaultOutcome] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    false_passing: list[str] = field(default_factory=list)
    right_findings: int = 0
    false_wasted_gpu_s: float = 0.0
    right_wasted_gpu_s: float = 0.0
    culprits: list[int] = field(default_factory=list)
    blamed_rank: int | None = None
    victim_rank: int | None = None
    baselines: dict[str, list[int] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    records: int = 0
    analysis_s: float = 0.0
    error: str = ""
