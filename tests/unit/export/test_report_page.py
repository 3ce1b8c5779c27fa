"""docs/report.md tells every field and every word of the report."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from paceline_service.analysis.report import CAUSES, KINDS, Finding, RankRow, Report
from paceline_service.commands.analyze_outputs import form_of
from paceline_service.commands.output import report_format
from paceline_service.importers.faults import HARMLESS


def test_every_field_kind_and_cause_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "report.md").read_text()
    names = {field.name for kind in (Finding, RankRow, Report) for field in fields(kind)}
    words = (names - {"rank"}) | set(KINDS) | set(CAUSES)
    assert sorted(word for word in words if f"{word}`" not in page) == []


def test_every_reason_of_the_importer_is_documented(repository: Path) -> None:
    source = "".join(
        path.read_text()
        for path in (repository / "service/src/paceline_service/importers").glob("*.py")
    )
    pages = ("offline.md", "formats/event-log.md")
    page = "".join((repository / "docs" / name).read_text() for name in pages)
    for reason in (
        "torn_line", "no_json", "invalid", "unknown_group", "not_a_member", "duplicate",
        "contradiction", "truncated_file", "line_too_long", "unusable_file", *HARMLESS,
    ):  # fmt: skip
        assert f'"{reason}"' in source
        assert f"`{reason}`" in page


def test_every_command_is_documented(repository: Path) -> None:
    from paceline.cli import added_commands

    page = (repository / "docs" / "cli.md").read_text()
    assert [name for name in added_commands() if f"| `{name}" not in page] == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.HTML", "html"), ("a.htm", "html"), ("a.json", "json"), ("a.csv", "csv"),
        ("a.trace.json", "perfetto"), ("a.perfetto.json.gz", "perfetto"), ("a.txt", "text"),
        ("a", "text"),
    ],
)  # fmt: skip
def test_the_name_of_a_file_says_its_form(name: str, form: str) -> None:
    assert form_of(Path(name)).value == form
    if form in ("html", "json", "text"):
        assert report_format(None, Path(name)).value == form
