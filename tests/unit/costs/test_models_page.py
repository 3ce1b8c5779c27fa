from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.cli import main
from tests.conftest import ROOT
from tests.unit.costs.reports import calibrated
from tools.model_pictures import PAGE, commands, pictures

TEXT = PAGE.read_text(encoding="utf-8")
PLAN = (ROOT / "docs/plan.md").read_text(encoding="utf-8").replace("\\\n", " ")
COMMANDS = [one for one in (*commands(TEXT), *commands(PLAN)) if "logs/" not in one]
FASTER = {"tax": ["--ranks", "2,8"]}
"""A test needs not all of what the page shows."""


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_of_the_walk_through_works(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibrated(tmp_path / "report.json")
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *FASTER.get(arguments[1], [])]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


def test_every_picture_is_there_and_has_a_command_above_it() -> None:
    shown = list(pictures(TEXT))
    assert len(shown) == TEXT.count("![")
    for _, path, arguments in shown:
        assert path.is_file()
        assert arguments


def test_every_sub_command_is_in_the_walk_through() -> None:
    from paceline_service.commands import plan, simulate

    for verb, table in (("plan", plan.app), ("simulate", simulate.app)):
        for name in table:
            assert f"`{verb} {name}" in TEXT, name


def test_the_chapters_that_the_first_table_names_are_there() -> None:
    heads = {
        re.sub(r"[^\w\- ]", "", line[3:].strip().lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= heads
