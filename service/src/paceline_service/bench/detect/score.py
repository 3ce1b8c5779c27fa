"""From outcomes to the figures that the project set itself limits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from paceline_service.bench.detect.baselines import RULES
from paceline_service.bench.detect.limits import MATERIAL_RATIO
from paceline_service.bench.detect.outcome import FaultOutcome, Outcome


def score(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return all figures about ``outcomes``; null where nothing was there to measure."""
    counted = [fault for fault in _faults(outcomes) if _counts(fault)]
    found = [fault for fault in counted if fault.found]
    right = sum(outcome.right_findings for outcome in outcomes)
    false = sum(len(outcome.false) for outcome in outcomes)
    healthy = [outcome for outcome in outcomes if not outcome.faults]
    causes = Counter(
        (fault.true_cause, fault.named_cause or "none") for fault in found if fault.cause_scored
    )
    cause_right = sum(n for (true, named), n in causes.items() if true == named)
    return {
        "scenarios": len(outcomes),
        "precision": _ratio(right, right + false),
        "right_findings": right,
        "false_findings": false,
        "false_in_passing": sum(len(outcome.false_passing) for outcome in outcomes),
        "recall": _ratio(len(found), len(counted)),
        "faults_counted": len(counted),
        "faults_found": len(found),
        "apart": _apart(outcomes),
        "delay": delays(outcomes),
        "cause_right": _ratio(cause_right, causes.total()),
        "causes": _nested(causes),
        "kinds": _nested(Counter((outcome.expected[0], outcome.verdict) for outcome in outcomes)),
        "verdict_right": _ratio(
            sum(outcome.verdict in outcome.expected for outcome in outcomes), len(outcomes)
        ),
        "healthy_jobs": len(healthy),
        "healthy_jobs_with_somebody_named": sum(bool(outcome.false) for outcome in healthy),
        "culprit": culprits(outcomes),
        "blame_error": _errors(
            (fault.named_wasted_gpu_s, fault.true_wasted_gpu_s) for fault in found
        ),
        "recoverable_error": _errors(
            (fault.named_recoverable, fault.true_recoverable) for fault in found
        ),
        "severity": severity(outcomes),
        "baselines": {rule: baseline(outcomes, rule) for rule in RULES},
        "records_per_s": _ratio(
            sum(outcome.records for outcome in outcomes),
            sum(outcome.analysis_s for outcome in outcomes),
        ),
        "errors": [f"{o.family} {o.seed}: {o.error}" for o in outcomes if o.error],
    }


def by_family(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Return how each family fares."""
    found: dict[str, dict[str, Any]] = {}
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.family == family]
        counted = [fault for fault in _faults(own) if _counts(fault)]
        found[family] = {
            "scenarios": len(own),
            "counted": len(counted),
            "found": sum(fault.found for fault in counted),
            "false": sum(len(outcome.false) for outcome in own),
            "verdict_right": sum(outcome.verdict in outcome.expected for outcome in own),
            "cause_right": sum(
                fault.found and fault.named_cause == fault.true_cause for fault in counted
            ),
            "delay": delays(own),
        }
    return found


def delays(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    """Return delay over its bound; a fault that was not found in time waits for ever."""
    scored = [
        fault for fault in _faults(outcomes)
        if _counts(fault) and fault.delay_scored and fault.delay_bound
    ]  # fmt: skip
    ratios = [_delay_ratio(fault, fault.delay_bound) for fault in scored]
    plain = [_delay_ratio(fault, fault.plain_delay_bound) for fault in scored]
    return {
        "faults": len(scored),
        "median": quantile(ratios, 0.5),
        "p95": quantile(ratios, 0.95),
        "median_without_autocorrelation": quantile(plain, 0.5),
        "p95_without_autocorrelation": quantile(plain, 0.95),
        "not_found": sum(fault.delay_steps is None for fault in scored),
    }


def quantile(ratios: Sequence[float], level: float) -> float | None:
    """Return the value below which ``level`` of the ratios lie; null where it is infinite."""
    if not ratios:
        return None
    ordered = sorted(ratios)
    value = ordered[min(int(np.ceil(level * len(ordered))) - 1, len(ordered) - 1)]
    return value if np.isfinite(value) else None


def culprits(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Return, of the jobs with a slow rank that counts, in how many it is named and no victim.

    Beside it whether the rank with the largest blamed wait is a culprit, and the one with the
    largest caused wait, who may be a victim. Jobs in which lateness is inherited (TP, PP) apart.
    """
    found = {}
    for name, parallel in (("tp_pp", True), ("others", False)):
        cases = [
            outcome
            for outcome in outcomes
            if outcome.parallel is parallel
            and outcome.blamed_rank is not None
            and any(_counts(fault) for fault in outcome.faults)
        ]
        found[name] = {
            "cases": len(cases),
            "named": sum(
                all(fault.found for fault in o.faults if _counts(fault)) and not o.false
                for o in cases
            ),
            "victims_named": sum(bool(o.false) for o in cases),
            "most_blamed": sum(o.blamed_rank in o.culprits for o in cases),
            "most_waited_for": sum(o.victim_rank in o.culprits for o in cases),
        }
    return found


def severity(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Return recall and precision with each fault counted by the GPU-seconds it wastes."""
    faults = [fault for fault in _faults(outcomes) if not fault.apart]
    total = sum(fault.true_wasted_gpu_s for fault in faults)
    found = sum(fault.true_wasted_gpu_s for fault in faults if fault.found)
    right = sum(outcome.right_wasted_gpu_s for outcome in outcomes)
    false = sum(outcome.false_wasted_gpu_s for outcome in outcomes)
    recall, precision = _ratio(found, total), _ratio(right, right + false)
    both = (recall or 0.0) + (precision or 0.0)
    return {
        "recall": recall,
        "precision": precision,
        "score": 2 * (recall or 0.0) * (precision or 0.0) / both if both else None,
    }


def baseline(outcomes: Sequence[Outcome], rule: str) -> dict[str, float | int | None] | None:
    """Return precision and recall of a simple rule where ranks are at fault, or nobody is."""
    named = right = culprits_all = found = alarms = healthy = 0
    asked = False
    for outcome in outcomes:
        answer = outcome.baselines.get(rule)
        ranked = bool(outcome.culprits) and outcome.expected[0] == "straggler"
        if answer is None or not (ranked or not outcome.faults):
            continue
        asked = True
        guilty = set(outcome.culprits)
        named += len(answer)
        right += len(guilty & set(answer))
        if not outcome.faults:
            healthy += 1
            alarms += bool(answer)
        elif any(_counts(fault) for fault in outcome.faults):
            culprits_all += len(guilty)
            found += len(guilty & set(answer))
    if not asked:
        return None
    return {
        "precision": _ratio(right, named),
        "recall": _ratio(found, culprits_all),
        "healthy_jobs_with_somebody_named": alarms,
        "healthy_jobs": healthy,
    }


def _faults(outcomes: Iterable[Outcome]) -> list[FaultOutcome]:
    return [fault for outcome in outcomes for fault in outcome.faults]


def _counts(fault: FaultOutcome) -> bool:
    return not fault.apart and fault.cost_ratio >= MATERIAL_RATIO


def _apart(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    groups: dict[str, list[FaultOutcome]] = {}
    for fault in _faults(outcomes):
        if not _counts(fault):
            groups.setdefault(fault.apart or "costs less than 0.5 %", []).append(fault)
    return {
        why: {"faults": len(faults), "found": sum(fault.found for fault in faults)}
        for why, faults in groups.items()
    }


def _delay_ratio(fault: FaultOutcome, bound: float | None) -> float:
    if fault.delay_steps is None or not bound:
        return float("inf")
    return max(fault.delay_steps, 0) / bound


def _errors(pairs: Iterable[tuple[float | None, float]]) -> dict[str, float | int | None]:
    errors = [abs(named / true - 1) for named, true in pairs if named is not None and true > 0]
    return {
        "faults": len(errors),
        "median": quantile(errors, 0.5),
        "p95": quantile(errors, 0.95),
    }


def _nested(pairs: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (true, named), count in sorted(pairs.items()):
        table.setdefault(true, {})[named] = count
    return table


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
