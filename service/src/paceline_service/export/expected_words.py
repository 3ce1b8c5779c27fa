"""Expected against observed step time in sentences (docs/math/calibration.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline_service.analysis.costs.words import bandwidth_of, duration_of, flops_of
from paceline_service.export.units import format_ratio
from paceline_service.export.words import clean

Json = Mapping[str, Any]

PARTS = {
    "straggler": "slow ranks",
    "network": "a slow network",
    "imbalance": "uneven work",
    "host": "late hosts and input",
    "slowdown": "all ranks slower than before",
    "unexplained": "unexplained",
}
"""In the order of the report, in words."""
LEAST_SHARE = 0.002
"""A part that is less of the expected step is left out of a sentence."""
SHOWN_TRANSFERS = 3
STANDING = ("hang", "desync")


def expected_sentence(report: Json) -> str:
    """Return what the step takes against what it should; empty where there is nothing to say."""
    block: Json = report.get("expected") or {}
    expected_s = block.get("expected_step_s")
    if not expected_s:
        if not block.get("reason") or report.get("verdict") == "insufficient_evidence":
            return ""
        return f"Expected step time: not known, for {block['reason']}."
    observed_s, gap_s = block["observed_step_s"], block["gap_s"]
    low_s, high_s = block["expected_step_interval_s"]
    more = "longer" if gap_s >= 0 else "shorter"
    began = "Step until the job stood still" if report.get("verdict") in STANDING else "Step"
    return (
        f"{began}: {duration_of(observed_s)} observed against {duration_of(expected_s)} expected "
        f"of healthy ranks ({duration_of(low_s)} to {duration_of(high_s)}), "
        f"{format_ratio(abs(gap_s) / expected_s)} {more}. Expected are "
        f"{duration_of(block['compute_s'])} of compute, {duration_of(block['communication_s'])} "
        f"of transfers and {duration_of(block['barrier_s'])} of waiting for each other."
    )


def gap_sentence(report: Json) -> str:
    """Return where the gap comes from; empty where there is none worth the word."""
    block: Json = report.get("expected") or {}
    if not block.get("expected_step_s"):
        return ""
    told = [
        f"{words} {signed(block['gap_parts_s'][part])}"
        for part, words in PARTS.items()
        if abs(block["gap_parts_s"][part] or 0.0) >= LEAST_SHARE * block["expected_step_s"]
    ]
    return f"The difference is: {', '.join(told)}." if told else ""


def calibration_sentences(report: Json) -> list[str]:
    """Return R where FLOP are known, and alpha and beta of the costliest transfers."""
    block: Json = report.get("calibration") or {}
    told = []
    if block.get("flops_per_s_per_rank"):
        low, high = block["flops_interval_per_s_per_rank"]
        told.append(
            f"a rank computes at {flops_of(block['flops_per_s_per_rank'])} ({flops_of(low)} to "
            f"{flops_of(high)}), at {flops_of(block['flops_per_step'])[:-2]} per step of the job"
        )
    alike: dict[tuple[str, int], list[Json]] = {}
    rows: Sequence[Json] = block.get("transfers") or ()
    for row in rows:
        if row.get("alpha_s") is not None:
            alike.setdefault((row["op"], row["members"]), []).append(row)
    for (op, members), same in list(alike.items())[:SHOWN_TRANSFERS]:
        first = same[0]
        others = f" and {len(same) - 1} like it" if len(same) > 1 else ""
        sent = first.get("bandwidth_bytes_per_s")
        rate = f", then {bandwidth_of(sent)} out of a rank" if sent else ""
        told.append(
            f"{op} of {clean(first['group'])} ({members} ranks){others}: "
            f"{duration_of(first['alpha_s'])} to start{rate}"
        )
    return told


def signed(seconds: float) -> str:
    """Return a time with its sign where it is negative."""
    return duration_of(seconds) if seconds >= 0 else f"-{duration_of(-seconds)}"
