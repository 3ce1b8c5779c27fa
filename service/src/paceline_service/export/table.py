"""The small per-rank table of the text report, readable for 4 and for 10,000 ranks."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_service.export.units import in_unit, time_unit
from paceline_service.export.words import Json

MAX_ROWS = 16
"""As many ranks are all shown; of more only the top ones."""
TOP_ROWS = 10
_BAR_WIDTH = 10
_TIMES = (
    ("self_ns", "own work"),
    ("wait_ns", "waiting"),
    ("exposed_comm_ns", "transfer"),
    ("blamed_wait_ns", "blamed"),
)


def rank_table(report: Json) -> list[tuple[str, bool]]:
    """Return the lines of the table, each with whether it is of a rank that a finding names."""
    rows: Sequence[Json] = report.get("ranks") or ()
    if not rows:
        return []
    named = {rank for finding in report.get("findings") or () for rank in finding["ranks"]}
    shown = _shown(rows, named)
    units = {key: time_unit(max(abs(row[key] or 0) for row in rows)) for key, _ in _TIMES}
    heads = [f"{title} {units[key][0]}" for key, title in _TIMES]
    lines = [(f"  {'rank':>6}  {'busy':<{_BAR_WIDTH}}  {'  '.join(heads)}  last in", False)]
    for row in shown:
        lines.append((_line(row, units, heads, f"{row['rank']:,}"), row["rank"] in named))
    if len(shown) < len(rows):
        middle = {key: _middle([row[key] for row in rows]) for key, _ in _TIMES}
        middle["last_arriver"] = _middle([row["last_arriver"] for row in rows])
        lines.append((_line(middle, units, heads, "median"), False))
        lines.append((f"  {len(rows) - len(shown):,} more ranks; --format json has all.", False))
    return lines


def title(report: Json) -> str:
    """Return the heading: which ranks the table shows."""
    rows: Sequence[Json] = report.get("ranks") or ()
    if len(rows) <= MAX_ROWS:
        return "Ranks"
    return (
        f"Ranks: those named, then those that most waiting is due to ({TOP_ROWS} of {len(rows):,})"
    )


def _shown(rows: Sequence[Json], named: set[int]) -> list[Json]:
    if len(rows) <= MAX_ROWS:
        return list(rows)
    by_blame = sorted(
        rows, key=lambda row: (row["rank"] not in named, -row["blamed_wait_ns"], row["rank"])
    )
    return by_blame[:TOP_ROWS]


def _line(row: Json, units: dict[str, tuple[str, int]], heads: list[str], name: str) -> str:
    whole_ns = row["self_ns"] + row["wait_ns"] + row["exposed_comm_ns"]
    filled = round(_BAR_WIDTH * row["self_ns"] / whole_ns) if whole_ns > 0 else 0
    filled = min(max(filled, 0), _BAR_WIDTH)
    bar = (
        "#" * filled + "." * (_BAR_WIDTH - filled) if whole_ns > 0 else "no data".ljust(_BAR_WIDTH)
    )
    cells = [
        in_unit(row[key], units[key][1]).rjust(len(head))
        for (key, _), head in zip(_TIMES, heads, strict=True)
    ]
    return f"  {name:>6}  {bar}  {'  '.join(cells)}  {row['last_arriver']:>7,}"


def _middle(values: Sequence[float]) -> float:
    """Return the middle value, the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]
