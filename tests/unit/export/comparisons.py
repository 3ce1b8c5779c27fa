"""A comparison of two runs for the tests of what is made of it."""

from __future__ import annotations

from typing import Any

from paceline_service.analysis.compare.runs import TOLERANCE
from paceline_service.export.compare_json import Side, compare_sides
from paceline_service.export.html.compare_page import compare_page
from tests.unit.analysis.test_compare import run
from tests.unit.export.reports import healthy, report
from tests.unit.top.moments import table


def sides(ranks: int = 8, *, name: str = "run", node: str = "node-a") -> tuple[Side, Side]:
    """Return a run, and the run with one slower rank."""
    told: dict[str, Any] = {"format": "event log", "nodes": dict.fromkeys(range(ranks), node)}
    before = Side(name=f"{name}-1", report=healthy(ranks=ranks), figures=run(1, ranks=ranks),
                  history=table(ranks), **told)  # fmt: skip
    slow = run(2, ranks=ranks, slow=(3,), factor=1.05)
    after = Side(name=f"{name}-2", report=report(ranks=ranks), figures=slow,
                 history=table(ranks, slow=(3,)), **told)  # fmt: skip
    return before, after


def answer(ranks: int = 8, **named: str) -> dict[str, Any]:
    """Return it as ``paceline.compare/1``."""
    return dict(compare_sides(*sides(ranks, **named), TOLERANCE))


def comparison(ranks: int = 8, **named: str) -> str:
    """Return it as an HTML document."""
    before, after = sides(ranks, **named)
    told = answer(ranks, **named)
    return compare_page(told, before.history, after.history, "paceline analyze --compare", 1)
