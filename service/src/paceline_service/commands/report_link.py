"""The link that a report tells of, for every model that is given one (docs/math/calibration.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPS = ("all_reduce", "reduce_scatter", "all_gather")
"""Whose alpha and bandwidth are taken, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLink:
    """What the transfers of a job say of its links.

    Attributes:
        collective_s: a collective of nothing: alpha of the fit.
        alpha_s: of a message.
        bytes_per_s: out of a rank.
        ranks: of the group.
    """

    collective_s: float
    alpha_s: float
    bytes_per_s: float
    ranks: int


def fitted_link(
    transfers: Sequence[Mapping[str, Any]], ops: Sequence[str] = OPS
) -> FittedLink | None:
    """Return the link by the job's largest group that has one; None where no line was fitted.

    Args:
        transfers: rows of the report's calibration; between equal groups and operations the one
            that exposes most comes first.
        ops: whose rows are taken, the best first.
    """
    for row in _in_order(transfers, ops):
        ranks = int(row.get("members") or 0)
        if ranks > 1 and row.get("bandwidth_bytes_per_s"):
            # A line through noise may cross zero below it; nothing takes less than no time.
            return FittedLink(
                collective_s=max(float(row.get("alpha_s") or 0), 0.0),
                alpha_s=max(float(row.get("latency_s") or 0), 0.0),
                bytes_per_s=float(row["bandwidth_bytes_per_s"]),
                ranks=ranks,
            )
    return None


def why_no_link(transfers: Sequence[Mapping[str, Any]]) -> str:
    """Return why no line was fitted."""
    rows = _in_order(transfers, OPS)
    return next((str(row["reason"]) for row in rows if row.get("reason")), "it has no transfers")


def _in_order(
    transfers: Sequence[Mapping[str, Any]], ops: Sequence[str]
) -> list[Mapping[str, Any]]:
    rows = [row for row in transfers if row.get("op") in ops and not row.get("links")]
    return sorted(rows, key=lambda row: (-int(row.get("members") or 0), ops.index(row["op"])))
