"""The table of ranks as CSV: a spreadsheet reads it, and runs nothing of it."""

from __future__ import annotations

import csv
from io import StringIO

import pytest

from paceline_service.export.rank_csv import COLUMNS, rank_lines
from tests.unit.export.reports import finding, report


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text, newline=""), strict=True))


def test_every_rank_has_a_line_with_seconds_and_its_finding() -> None:
    lines = list(rank_lines(report(), {2: "node-a"}, [500, 500, 499, 500]))
    assert all(line.endswith("\r\n") for line in lines)
    rows = read("".join(lines))
    assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
    slow = rows[2]
    assert slow["node"] == "node-a"
    assert slow["steps"] == "499"
    assert slow["self_s"] == "12.000000000"
    assert slow["self_to_median_ratio"] == "1.500000"
    assert (slow["finding"], slow["cause"], slow["phase"]) == (
        "straggler", "gpu_throttle", "backward"
    )  # fmt: skip
    assert rows[0]["finding"] == rows[0]["node"] == ""


def test_every_column_of_a_time_or_a_share_has_its_unit_in_its_name() -> None:
    plain = {"rank", "node", "steps", "finding", "cause", "phase", "first_step", "last_step"}
    for name in set(COLUMNS) - plain:
        assert name.endswith(("_s", "_ratio", "_count")), name


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "|cmd", "%0a", "\u200b=1"],
)
def test_no_name_is_a_formula(name: str) -> None:
    told = report(findings=[finding(phase=name)])
    row = read("".join(rank_lines(told, {2: name})))[2]
    for cell in (row["node"], row["phase"]):
        assert cell[0] not in "=+-@\t\r\n|%"
        assert cell.lstrip()[0] not in "=+-@|%"


@pytest.mark.parametrize("name", ['a "b", c', "a,b", "a\nb", "node-é", "'", "x;y"])
def test_a_name_with_quotes_commas_and_line_ends_stays_one_cell(name: str) -> None:
    row = read("".join(rank_lines(report(), {2: name})))[2]
    assert row["node"] == name.replace("\n", "?")
    assert row["rank"] == "2"


def test_what_is_not_known_is_empty() -> None:
    empty = report(findings=[finding(cause=None, slowdown=None, phase=None)])
    empty["ranks"] = [row | {"self_ns": 0, "blamed_wait_ns": 0} for row in empty["ranks"]]
    row = read("".join(rank_lines(empty, {})))[2]
    assert row["cause"] == row["slowdown_ratio"] == row["steps"] == ""
    assert row["self_to_median_ratio"] == row["blamed_wait_ratio"] == ""
