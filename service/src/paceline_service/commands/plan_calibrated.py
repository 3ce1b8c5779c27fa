"""What a job's report tells the models: compute and network as they were fitted from it.

The blocks ``calibration`` and ``expected`` of docs/report.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline_service.analysis.costs.alpha_beta import Link
from paceline_service.analysis.costs.scaling import Point
from paceline_service.analysis.costs.words import duration_of
from paceline_service.commands.report_file import read_report
from paceline_service.commands.report_link import fitted_link, why_no_link


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A job.

    Attributes:
        path: of its report.
        ranks: of the job.
        compute_s: of a healthy rank and step; of the slowest peer group.
        transfers: rows of the calibration.
        observed_s: a step as it was seen; None where the report does not tell.
        expected_s: a step of healthy ranks, likewise.
    """

    path: Path
    ranks: int
    compute_s: float
    transfers: tuple[Mapping[str, Any], ...]
    observed_s: float | None
    expected_s: float | None

    def link(self) -> Link:
        """Return alpha and bandwidth of the job's largest group.

        Raises:
            InputError: the job's transfers do not tell them.
        """
        found = fitted_link(self.transfers)
        if found is None:
            why = why_no_link(self.transfers)
            raise InputError(f"--report {self.path} tells no bandwidth: {why}; give --bandwidth")
        return Link(alpha_s=found.alpha_s, bytes_per_s=found.bytes_per_s)

    def beside(self, modelled: Point) -> str:
        """Return the measured step beside the modelled one, in words."""
        if self.observed_s is None or self.expected_s is None:
            return "The report tells no expected step, so nothing measured is compared here."
        told = (
            f"The job's {self.ranks:,} ranks took {duration_of(self.observed_s)} a step; healthy "
            f"ranks would take {duration_of(self.expected_s)}, by its own steps. This model says "
            f"{duration_of(modelled.hidden_step_s)} with overlap at best and "
            f"{duration_of(modelled.step_s)} with none"
        )
        if self.expected_s > 1.05 * modelled.step_s:
            return f"{told}: there is more in a step than compute and one all-reduce of gradients."
        if self.observed_s > 1.05 * self.expected_s:
            return f"{told}. What is over the expected step is no arithmetic: see the findings."
        return f"{told}."


def read_calibrated(path: Path) -> Calibrated:
    """Return what the report of a file tells.

    Raises:
        InputError: the file is no report, or has no calibration.
    """
    report = read_report(path)
    try:
        return _calibrated(path, report)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"--report {path}: its calibration is not understood: {error}") from error


def _calibrated(path: Path, report: Mapping[str, Any]) -> Calibrated:
    calibration, expected = report.get("calibration") or {}, report.get("expected") or {}
    computes = [float(row["compute_s"]) for row in calibration.get("compute") or ()]
    ranks = int((report.get("job") or {}).get("world_size") or 0)
    if not computes or ranks < 2:
        why = expected.get("reason") or "it is of an older version, or of too few steps"
        raise InputError(f"--report {path} has no calibration: {why}; give --compute")
    return Calibrated(
        path=path, ranks=ranks, compute_s=max(computes),
        transfers=tuple(dict(row) for row in calibration.get("transfers") or ()),
        observed_s=expected.get("observed_step_s"), expected_s=expected.get("expected_step_s"),
    )  # fmt: skip
