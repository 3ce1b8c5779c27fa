"""Expected against observed step time, and the calibration behind it, as blocks of the report.

Everything is read from sums that the analysis has anyway, when a report is made.
docs/math/calibration.md says what each figure is and why.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline_service.analysis.costs.calibrate_compute import (
    TWO_SIDED,
    ComputeFit,
    compute_fits,
    mean_level,
    typical,
)
from paceline_service.analysis.costs.calibrate_gap import Step, attributed, barrier_ns
from paceline_service.analysis.evidence.episodes import EpisodeTracker
from paceline_service.analysis.expected.found import (
    losses_of,
    part_of_finding,
    spans_of,
    with_transfers,
)
from paceline_service.analysis.expected.steps import StepSample
from paceline_service.analysis.expected.transfers import (
    Transferred,
    transfer_rows,
    transferred,
)
from paceline_service.analysis.network.watch import NetworkWatch
from paceline_service.analysis.records import BoolArray, FloatArray, Group, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.totals import Sums, Totals

LEAST_STEPS = 5
"""Of fewer steps no step is typical."""
LEAST_QUIET = 10
"""So many steps without a finding tell what a typical one takes; all do where nothing was found."""
LEAST_MODELLED = 0.5
MAX_COMPUTE_ROWS = 64
_STEP_KEYS = (
    "steps", "observed_step_s", "expected_step_s", "expected_step_interval_s", "gap_s",
    "gap_ratio", "compute_s", "barrier_s", "communication_s", "gap_parts_s",
    "communication_modelled_ratio",
)  # fmt: skip
_BLIND = (
    "for {:.0%} of the exposed communication payload or time of release are not known: it is "
    "expected to be as in a typical step, and a slow network cannot be told from larger transfers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What of an analysis the answer is read from."""

    totals: Totals
    sample: StepSample
    network: NetworkWatch
    tracker: EpisodeTracker
    peer_groups: Sequence[Int64Array]
    groups: Sequence[Group]


def expected_blocks(
    sources: Sources, findings: Sequence[Finding]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the blocks ``expected`` and ``calibration`` of the report.

    Args:
        sources: the analysis.
        findings: those of the report: a gap is attributed to what the report tells.
    """
    sums = sources.totals.settled
    quiet = _quiet(sources.sample, findings)
    named = {rank for one in findings if one.kind == "straggler" for rank in one.ranks}
    fits = _compute(sources, sums, quiet, named)
    calibration = {
        "compute": [_compute_row(fit) for fit in _largest(fits)],
        "transfers": transfer_rows(sources.network, sources.groups),
        "flops_per_step": None,
        "flops_per_s_per_rank": None,
        "flops_interval_per_s_per_rank": None,
    }
    if sums.steps < LEAST_STEPS or not len(sources.sample.step):
        return _unknown(
            f"{counted(sums.steps, 'step')} of a settled job were seen, and "
            f"{LEAST_STEPS} tell what a step usually takes"
        ), calibration
    observed, count = _observed(sums)
    moved = transferred(sources.network)
    comm_ns = observed.comm_ns - moved.found_ns / count
    modelled = moved.modelled_ns / count / comm_ns if comm_ns > 0 else None
    healthy = _Healthy(sources, findings, sums, quiet, fits, moved)
    return healthy.block(observed, modelled), calibration


class _Healthy:
    """The step that the job would take if nothing had been found."""

    def __init__(
        self, sources: Sources, findings: Sequence[Finding], sums: Sums, quiet: BoolArray | None,
        fits: Sequence[ComputeFit], moved: Transferred,
    ) -> None:  # fmt: skip
        self._sources, self._findings, self._sums = sources, findings, sums
        self._quiet, self._fits, self._moved = quiet, fits, moved
        self._count = float(sums.rank_steps.sum())

    def block(self, observed: Step, modelled: float | None) -> dict[str, Any]:
        """Return the block ``expected``."""
        sources, moved, count = self._sources, self._moved, self._count
        totals = sources.totals
        usual = usual_error = None
        if self._quiet is not None:
            usual, usual_error = typical(sources.sample.wait_ns[self._quiet])
        losses = losses_of(
            self._findings,
            sources.tracker.episodes,
            rank_steps=count,
            kept_ratio=totals.steps / max(totals.steps + totals.left_out, 1),
            network_ns=moved.found_ns,
            behind_network_ns=self._beyond(sources.sample.wait_ns, usual, "communication"),
        )
        compute_ns, compute_error = mean_level(self._fits)
        if self._quiet is None:
            # No step was without it, so the level that was fitted holds it.
            compute_ns -= losses.own_ns.get("slowdown", 0.0)
        baseline = sources.tracker.baseline
        uneven = "imbalance" in losses.waited_ns
        barrier = barrier_ns(
            typical_ns=usual,
            jitter=baseline.jitter if baseline is not None and not uneven else None,
            compute_ns=compute_ns,
            ranks=int((self._sums.rank_steps > 0).sum()),
            not_blamed_ns=observed.wait_ns - sum(losses.waited_ns.values()),
        )
        comm_ns, comm_error, blind = self._communication(observed, modelled)
        expected = Step(compute_ns=compute_ns, wait_ns=barrier, comm_ns=comm_ns)
        slow = [one for one in self._findings if one.kind == "straggler"]
        if blind and slow and self._quiet is not None:
            # Who receives late from a slow rank stands in what looks like a transfer.
            late_ns = self._beyond(sources.sample.comm_ns, comm_ns, "straggler")
            losses = with_transfers(losses, part_of_finding(slow[0]), late_ns)
        error_ns = float(np.sqrt(compute_error**2 + (usual_error or 0.0) ** 2 + comm_error**2))
        parts = attributed(observed, expected, losses)
        low, high = (expected.total_ns + side * TWO_SIDED * error_ns for side in (-1, 1))
        gap_ns = observed.total_ns - expected.total_ns
        values = (
            self._sums.steps, _s(observed.total_ns), _s(expected.total_ns),
            [_s(max(low, 0.0)), _s(high)], _s(gap_ns),
            round(gap_ns / expected.total_ns, 6) if expected.total_ns > 0 else None,
            _s(expected.compute_ns), _s(expected.wait_ns), _s(expected.comm_ns),
            {
                part: None if part == "network" and blind and not lost else _s(lost)
                for part, lost in parts.items()
            },
            round(min(modelled, 1.0), 4) if modelled is not None else None,
        )  # fmt: skip
        why = _BLIND.format(1 - (modelled or 0.0)) if blind else None
        block = dict(zip(_STEP_KEYS, values, strict=True))
        return {**block, "communication_reason": why, "reason": None}

    def _communication(self, observed: Step, modelled: float | None) -> tuple[float, float, bool]:
        """Return the expected exposed communication, its error, and whether no model knows it.

        Transfers whose payload nobody told are expected to take what they take in a typical step.
        """
        moved, count = self._moved, self._count
        if observed.comm_ns > 0 and (modelled or 0.0) < LEAST_MODELLED:
            chosen = slice(None) if self._quiet is None else self._quiet
            return (*typical(self._sources.sample.comm_ns[chosen]), True)
        beside_ns = observed.comm_ns - moved.seen_ns / count
        return max(moved.expected_ns / count + beside_ns, 0.0), moved.error_ns / count, False

    def _beyond(self, times_ns: FloatArray, usual_ns: float | None, kind: str) -> float:
        """Return what steps of one kind of finding alone take beyond the usual, as a mean of all.

        Waits behind a slow place of the network are nobody's by name: who comes late because its
        transfer was slow is blamed for it.
        """
        if usual_ns is None:
            return 0.0
        sample = self._sources.sample
        slow = spans_of(one for one in self._findings if one.kind == kind)
        others = spans_of(one for one in self._findings if one.kind != kind)
        there = sample.within(slow) & ~sample.within(others)
        if not there.any():
            return 0.0
        beyond = float(times_ns[there].mean()) - usual_ns
        return max(beyond, 0.0) * float(there.mean())


def _observed(sums: Sums) -> tuple[Step, float]:
    count = float(sums.rank_steps.sum())
    return Step(
        compute_ns=float(sums.self_ns.sum()) / count,
        wait_ns=float(sums.wait_ns.sum()) / count,
        comm_ns=float(sums.comm_ns.sum()) / count,
    ), count


def _quiet(sample: StepSample, findings: Sequence[Finding]) -> BoolArray | None:
    """Return which sampled steps nothing was found in; None where they are too few."""
    spans = spans_of(findings)
    quiet = ~sample.within(spans)
    enough = LEAST_QUIET if spans else 1
    return quiet if quiet.sum() >= enough else None


def _compute(
    sources: Sources, sums: Sums, quiet: BoolArray | None, named: Collection[int]
) -> list[ComputeFit]:
    """Return what the ranks of each peer group need in a typical step."""
    seen = sums.rank_steps
    if not len(sources.sample.step) or not seen.any():
        return []
    own_ns = np.where(seen > 0, sums.self_ns / np.maximum(seen, 1), np.nan)
    all_ns = sources.sample.self_ns
    chosen = all_ns if quiet is None else all_ns[quiet]
    level, error = typical(chosen)
    if quiet is not None:
        own_ns *= level / max(float(all_ns.mean()), 1.0)
    return compute_fits(own_ns, sources.peer_groups, error / max(level, 1.0), named)


def _largest(fits: Sequence[ComputeFit]) -> list[ComputeFit]:
    """Return the fits of the largest peer groups, by their first rank."""
    kept = sorted(fits, key=lambda fit: -len(fit.ranks))[:MAX_COMPUTE_ROWS]
    return sorted(kept, key=lambda fit: int(fit.ranks[0]))


def _compute_row(fit: ComputeFit) -> dict[str, Any]:
    return {
        "ranks": format_ranks(fit.ranks.tolist()),
        "members": len(fit.ranks),
        "compute_s": _s(fit.level_ns),
        "compute_interval_s": [_s(end) for end in fit.interval_ns],
    }


def _unknown(reason: str) -> dict[str, Any]:
    return {**dict.fromkeys(_STEP_KEYS), "communication_reason": None, "reason": reason}


def _s(time_ns: float) -> float:
    """Return seconds to the nanosecond."""
    return round(time_ns / 1e9, 9)
