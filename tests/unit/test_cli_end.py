"""A command that leaves nothing behind ends its process at once, and says all it had to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline import cli

_AFTER = (
    "import atexit, sys; atexit.register(print, 'taken apart'); from paceline.cli import main; "
)


def run(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _AFTER + code, *map(str, words)]
    return subprocess.run(command, text=True, capture_output=True)


def test_a_plain_answer_is_whole_and_ends_the_process_with_its_status(tmp_path: Path) -> None:
    done = run("sys.exit(main())", "analyze", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in done.stderr


def test_who_gives_the_words_goes_on(tmp_path: Path) -> None:
    done = run("print(main(['analyze', sys.argv[1]]))", tmp_path / "none")
    assert (done.returncode, done.stdout) == (0, "2\ntaken apart\n")


def test_other_commands_end_as_python_does() -> None:
    done = run("sys.exit(main())", "--version")
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "taken apart")


def test_a_profiler_sees_the_end(tmp_path: Path) -> None:
    code = "sys.setprofile(lambda *of: None); sys.exit(main())"
    done = run(code, "analyze", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "taken apart\n")


def test_what_nobody_reads_is_no_reason_to_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told by Python at its end, which is not cut short then."""

    class Full:
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli.sys, "stdout", Full())
    monkeypatch.setattr(cli.os, "_exit", lambda status: pytest.fail("it ended at once"))
    cli._end_at_once(1)
