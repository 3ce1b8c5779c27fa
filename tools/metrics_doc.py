"""Writes the tables of docs/metrics.md from the catalogue: ``make metrics-doc``.

The text around them is written by hand; what stands between the two marks is not.
``python -m tools.metrics_doc --check`` writes nothing and exits 1 where the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline import metrics
from paceline.metrics import Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
BEGIN = "<!-- made by `make metrics-doc` from agent/src/paceline/metrics.py: do not edit -->"
END = "<!-- end of what is made -->"
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Jobs", ("paceline_job_", "paceline_step_")),
    ("Nodes", ("paceline_node_",)),
    ("Ranks", ("paceline_rank_", "paceline_inflight_")),
    ("Network", ("paceline_collective_", "paceline_link_")),
    ("Messages", ("paceline_notifications_",)),
    ("Streams (scale-out)", ("paceline_bus_",)),
    ("The collector itself", ("paceline_",)),
)
"""Heading, and how the names of its metrics begin; the first that fits."""


def section_of(metric: Metric) -> str:
    """Return the heading that a metric stands under."""
    return next(title for title, prefixes in SECTIONS if metric.name.startswith(prefixes))


def tables() -> str:
    """Return what stands between the marks."""
    parts = []
    for title, _ in SECTIONS:
        rows = [_row(metric) for metric in metrics.ALL if section_of(metric) == title]
        parts.append("\n".join([f"### {title}", "", *_HEAD, *rows]))
    return "\n\n".join(parts)


def page(text: str) -> str:
    """Return ``text``, a page with both marks, with new tables.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the line {BEGIN!r} or {END!r}; put it back")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write or check the page; return the exit status."""
    present = PAGE.read_text(encoding="utf-8")
    wanted = page(present)
    if "--check" in arguments:
        if wanted != present:
            print(f"{PAGE.name} is out of date: run `make metrics-doc` and commit", file=sys.stderr)
        return int(wanted != present)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


_HEAD = ("| name | kind | unit | labels | what it is |", "|---|---|---|---|---|")


def _row(metric: Metric) -> str:
    cells: Iterable[str] = (
        f"`{metric.name}`",
        metric.kind,
        metric.unit or "-",
        ", ".join(metric.labels) or "-",
        metric.help,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
