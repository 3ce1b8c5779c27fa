"""No option of any model takes nonsense: a message names it, whatever the model is."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import typer

from paceline.cli import main
from paceline_service.commands import plan, simulate

FILES = {"--html", "--png", "--ranks-from", "--job", "--report"}
NONSENSE = ("-1", "inf")
MORE_NONSENSE = ("nan", "1e400", "x", "--", "0x10", "1/2")
ALLOWED = {("--seed", "-1"), ("--bounds", "inf")}


def options() -> Iterator[tuple[str, str, str]]:
    """Yield every option that takes a value: verb, sub-command, option."""
    for verb, table in (("plan", plan.app), ("simulate", simulate.app)):
        for name, sub in table.items():
            app = typer.Typer(add_completion=False)
            app.command()(getattr(importlib.import_module(sub.module), sub.function))
            for parameter in typer.main.get_command(app).params:
                option = parameter.opts[-1]
                if not getattr(parameter, "is_flag", False) and option not in FILES:
                    yield verb, name, option


@pytest.mark.parametrize(("verb", "name", "option"), list(options()))
def test_nonsense_is_refused_by_a_line_that_names_the_option(
    verb: str, name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in NONSENSE:
        refused(verb, name, option, value, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "name", "option"), list(options()))
def test_more_nonsense_is_refused_likewise(
    verb: str, name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in MORE_NONSENSE:
        refused(verb, name, option, value, capsys)


def refused(
    verb: str, name: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (option, value) in ALLOWED:
        return
    assert main([verb, name, f"{option}={value}"]) == 2, value
    out = capsys.readouterr()
    assert not out.out
    assert option in out.err
    assert "Traceback" not in out.err
