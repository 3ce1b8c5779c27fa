"""``--ranks-from FILE``: ranks as they were measured, from a report or from files of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from paceline.counted import counted
from paceline.errors import InputError
from paceline_service.analysis.options import Options
from paceline_service.commands.report_file import report_in
from paceline_service.simulate.noise import Floats, Noise
from paceline_service.simulate.profile import Profile, Ranks, Recorded

if TYPE_CHECKING:
    from paceline_service.analysis.blame.timeline import StepRow
    from paceline_service.analysis.job import JobAnalysis

RanksFromOption = Annotated[
    Path | None,
    typer.Option(
        "--ranks-from",
        metavar="FILE",
        help="Ranks as measured: a report (JSON), an event log, whatever `analyze` reads.",
    ),
]
_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a file tells.

    Attributes:
        ranks: the global rank of each column.
        mean_s: (R,), own work of a step.
        compute_s: (N, R), of every step, None where only averages are known.
        communication_s: exposed transfer of a step, the median of the ranks.
        step_s: the mean step as it was measured, None where it is not known.
    """

    ranks: tuple[int, ...]
    mean_s: Floats
    compute_s: Floats | None
    communication_s: float
    step_s: float | None

    def profile(self, noise: Noise | None, *, in_order: bool) -> Ranks:
        """Return the ranks to simulate: the steps themselves, or averages with some noise."""
        if self.compute_s is not None and noise is None:
            return Recorded(compute_s=self.compute_s, in_order=in_order)
        return Profile(mean_s=self.mean_s, noise=noise or Noise())


def measured(path: Path) -> Measured:
    """Return what the file at ``path`` tells of the ranks.

    Raises:
        InputError: it cannot be read, or tells of no two ranks.
    """
    report = report_in(path)
    found = _of_report(report, path) if report is not None else _of_files(path)
    if len(found.ranks) < 2:
        raise InputError(
            f"--ranks-from {path}: it tells of {counted(len(found.ranks), 'rank')}, not 2 or more"
        )
    if not (found.mean_s > 0).all():
        idle = found.ranks[int(found.mean_s.argmin())]
        raise InputError(f"--ranks-from {path}: rank {idle} has no own work in it")
    return found


def _of_report(report: dict[str, Any], path: Path) -> Measured:
    try:
        steps = _judged_steps(report)
        rows = [
            (int(row["rank"]), float(row["self_ns"]), float(row["wait_ns"]),
             float(row["exposed_comm_ns"]))
            for row in report["ranks"]
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"--ranks-from {path}: the report lacks {error}") from error
    if steps < 1 or not rows:
        raise InputError(f"--ranks-from {path}: the report tells of no step, or of no rank")
    own, wait, sent = (np.array([row[place] for row in rows]) * _NS / steps for place in (1, 2, 3))
    return Measured(
        ranks=tuple(row[0] for row in rows),
        mean_s=own,
        compute_s=None,
        communication_s=float(np.median(sent)),
        step_s=float(np.median(own + wait + sent)),
    )


def _judged_steps(report: dict[str, Any]) -> int:
    """Return how many steps the times of a report are of: the first ones settle."""
    told = (report.get("expected") or {}).get("steps")
    steps = int(report["job"]["steps"])
    settling = Options().settling_steps
    return int(told) if told else steps - settling if steps > 2 * settling else steps


def _of_files(path: Path) -> Measured:
    from paceline_service.commands.analyzed import analyzed

    own: list[Floats] = []
    sent: list[Floats] = []
    durations: list[int] = []

    def see(analysis: JobAnalysis, rows: Sequence[StepRow]) -> None:
        for row in rows:
            own.append(np.where(row.present, row.self_ns, np.nan))
            sent.append(np.where(row.present, row.comm_ns, np.nan))
            durations.append(row.duration_ns)

    with analyzed([path], verb="simulate", see=see) as answer:
        options = (answer.log.options if answer.log is not None else None) or Options()
    if not own:
        raise InputError(f"--ranks-from {path}: there are no timed steps in it; a report has them")
    # The first steps compile and allocate; of a few steps all are taken.
    skip = options.settling_steps if len(own) > 2 * options.settling_steps else 0
    own_s, sent_s = np.array(own[skip:]) * _NS, np.array(sent[skip:]) * _NS
    ranks = np.flatnonzero(~np.isnan(own_s).all(axis=0))
    whole = ~np.isnan(own_s[:, ranks]).any(axis=1)
    if not whole.any():
        raise InputError(f"--ranks-from {path}: no step has data of every rank")
    own_s, sent_s = own_s[whole][:, ranks], sent_s[whole][:, ranks]
    return Measured(
        ranks=tuple(int(rank) for rank in ranks),
        mean_s=own_s.mean(axis=0),
        compute_s=own_s,
        communication_s=float(np.median(np.nan_to_num(sent_s), axis=1).mean()),
        step_s=float(np.array(durations[skip:])[whole].mean()) * _NS,
    )
