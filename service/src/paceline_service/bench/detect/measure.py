"""The whole benchmark: the suite, the volume of healthy steps, the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from paceline_service.bench.detect import volume
from paceline_service.bench.detect.outcome import Outcome
from paceline_service.bench.detect.peer_rules import MISSING, nvrx_report
from paceline_service.bench.detect.score import by_family, score
from paceline_service.bench.detect.suite import FAMILIES, run_suite

QUICK_RANK_STEPS = {8: 80_000, 64: 200_000, 1000: 500_000}


def measure(
    *,
    quick: bool,
    families: Sequence[str] = (),
    seeds: str = "scored",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, object]:
    """Run everything, or the suite's ``families`` only, and return the result for JSON.

    Raises:
        ConfigError: a family is unknown.
    """
    outcomes: list[Outcome] = []
    for outcome in run_suite(families or FAMILIES, quick=quick, seeds=seeds):
        if not outcomes or outcome.family != outcomes[-1].family:
            progress(f"  {outcome.family}")
        outcomes.append(outcome)
    result: dict[str, Any] = {
        "seeds": seeds,
        "score": score(outcomes),
        "families": by_family(outcomes),
        "peer_rules": "" if nvrx_report() is not None else MISSING,
    }
    if not families:
        progress("  volume of healthy steps")
        result["volume"] = [
            volume.measure(
                ranks,
                rank_steps=QUICK_RANK_STEPS[ranks] if quick else volume.FULL_RANK_STEPS,
                seeds=seeds,
            )
            for ranks in volume.SIZES
        ]
    result["outcomes"] = [asdict(outcome) for outcome in outcomes]
    return result
