"""The plain words of ``paceline analyze`` mean what typer makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline_service.commands import analyze
from paceline_service.commands.analyze_plain import Plain, plain_words
from paceline_service.commands.run import run_command


def by_typer(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> dict[str, Any]:
    """Return what typer gives the verb's function for a command line."""
    import functools

    found: dict[str, Any] = {}

    @functools.wraps(analyze._analyze)
    def keep(*args: Any, **options: Any) -> int:
        assert not args
        found.update(options)
        return 0

    assert run_command(keep, "analyze", words) == 0
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["a.json"],
        ["a.json", "some dir/b"],
        ["--format", "json", "a"],
        ["a", "--format=json"],
        ["a", "--format", "text", "--strict", "b"],
        ["--format", "json", "--format", "text", "a"],
    ],
)
def test_both_understand_the_same(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    plain, full = plain_words(words), by_typer(monkeypatch, words)
    assert plain is not None
    assert list(plain.paths) == full.pop("paths")
    form = full.pop("form")
    assert plain.form == (form.value if form is not None else "text")
    assert plain.strict == full.pop("strict")
    # Whatever else there is stays as it is when nobody asks for it.
    assert not any(full.values())


@pytest.mark.parametrize(
    "words",
    [
        [], ["--strict"], ["--format", "json"], ["a", "--format"], ["a", "--format", "html"],
        ["a", "--format", "csv"], ["a", "-o", "b.html"], ["a", "--output=b"], ["--help"],
        ["a", "-h"], ["a", "--fail-on", "any"], ["--", "a"], ["-"], ["a", ""],
        ["a", "--steps", "1-2"],
    ],
)  # fmt: skip
def test_whatever_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert plain_words(words) is None


def test_what_takes_long_to_import_is_not_there_before_a_file_is_known() -> None:
    code = (
        "import sys, paceline_service.commands.analyze_plain, paceline_service.commands.analyzed\n"
        "print([m for m in ('typer', 'pydantic', 'numpy', 'rich', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_plain_words_are_read_in_any_order() -> None:
    assert plain_words(["--strict", "a", "--format", "json", "b"]) == Plain(
        paths=(Path("a"), Path("b")), form="json", strict=True
    )
