"""The table of ranks as CSV (RFC 4180): a line per rank, units in the names of the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from statistics import median

from paceline_service.export.words import Json, clean

COLUMNS = (
    "rank", "node", "steps", "self_s", "wait_s", "exposed_comm_s", "caused_wait_s",
    "blamed_wait_s", "last_arriver_count", "self_to_median_ratio", "blamed_wait_ratio", "finding",
    "cause", "phase", "first_step", "last_step", "slowdown_ratio", "recoverable_ratio",
    "wasted_gpu_s", "confidence_ratio",
)  # fmt: skip
"""docs/cli.md tells what each holds."""
_STEERS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
"""With these a spreadsheet takes a text for a formula, or a command (CWE-1236)."""
_OF_FINDING = ("kind", "cause", "phase", "first_step", "last_step", "slowdown",
               "recoverable_ratio", "wasted_gpu_s", "confidence")  # fmt: skip
_TIMES = ("self_ns", "wait_ns", "exposed_comm_ns", "caused_wait_ns", "blamed_wait_ns")


def rank_lines(
    report: Json, nodes: Mapping[int, str], steps_of_rank: Sequence[int] | None = None
) -> Iterator[str]:
    """Yield the lines of the table, each with its line end; what is not known is empty.

    Args:
        report: a ``paceline.report/1`` object.
        nodes: of ranks, as far as known.
        steps_of_rank: in how many steps each rank has data, where that is known.
    """
    yield _line(COLUMNS)
    rows: Sequence[Json] = report.get("ranks") or ()
    owns = [row["self_ns"] for row in rows if row["self_ns"]]
    middle_ns = median(owns) if owns else 0
    all_blamed_ns = sum(row["blamed_wait_ns"] or 0 for row in rows)
    findings: dict[int, Json] = {}
    for finding in report.get("findings") or ():
        for rank in finding["ranks"]:
            findings.setdefault(rank, finding)
    for row in rows:
        rank = row["rank"]
        finding = findings.get(rank, {})
        yield _line(
            (
                rank,
                _safe(nodes.get(rank, "")),
                steps_of_rank[rank] if steps_of_rank is not None else None,
                *(_seconds(row[name]) for name in _TIMES),
                row["last_arriver"],
                _ratio(row["self_ns"], middle_ns),
                _ratio(row["blamed_wait_ns"], all_blamed_ns),
                *(_cell(finding.get(name)) for name in _OF_FINDING),
            )
        )


def _cell(value: object) -> object:
    return _safe(value) if isinstance(value, str) else value


def _safe(value: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    plain = clean(value)
    return f"'{plain}" if plain.lstrip().startswith(_STEERS) or value.startswith(_STEERS) else plain


def _seconds(time_ns: int | None) -> str | None:
    """Return ns as seconds, exact."""
    if time_ns is None:
        return None
    whole, rest = divmod(abs(time_ns), 10**9)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:09d}"


def _ratio(part: int | None, whole: float) -> str | None:
    return f"{part / whole:.6f}" if part is not None and whole > 0 else None


def _line(cells: Sequence[object]) -> str:
    out = StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()
