from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap, install


def test_bootstrap_parses_on_old_pythons_so_that_they_are_told(repository: Path) -> None:
    source = (repository / "tools/bootstrap.py").read_text()
    ast.parse(source, feature_version=(3, 7))
    assert "from __future__" not in source


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_supported_python_has_no_problem(version: tuple[int, int]) -> None:
    assert bootstrap.version_problem(version) == ""


@pytest.mark.parametrize(("version", "word"), [((3, 9), "too old"), ((3, 14), "too new")])
def test_unsupported_python_is_named_with_the_remedy(version: tuple[int, int], word: str) -> None:
    message = bootstrap.version_problem(version)
    assert f"Python {version[0]}.{version[1]} is {word}" in message
    assert "make setup PYTHON=" in message


def test_missing_compiler_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    problems = "\n".join(bootstrap.missing_tools())
    assert "A C compiler is missing" in problems
    assert "apt-get install gcc" in problems
    assert "make is missing" in problems


def test_bootstrap_lists_every_problem_at_once_and_fails(repository: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "CC": ""}
    done = subprocess.run(
        [sys.executable, str(repository / "tools/bootstrap.py")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "C compiler" in done.stderr
    assert "make is missing" in done.stderr
    assert "Traceback" not in done.stderr


def log_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "LOG", tmp_path / "setup.log")
    (tmp_path / "setup.log").write_text(text)


def test_offline_failure_says_that_no_index_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_of(monkeypatch, tmp_path, "\n$ pip install x\n...Temporary failure in name resolution')\n")
    assert "no package index can be reached" in install.failure_advice("torch")


def test_failure_advice_speaks_of_the_last_command_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_of(
        monkeypatch,
        tmp_path,
        "\n$ pip one\nConnection refused\n\n$ pip two\nERROR: No matching distribution found\n",
    )
    advice = install.failure_advice("x")
    assert "no package index" not in advice
    assert "No matching distribution found" in advice


def test_constraints_pin_every_package_exactly_and_not_torch(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.match(r"[a-z0-9.-]+==[0-9][^ ]*( ; .*)?$", pin) for pin in pins)
    assert not any(pin.startswith("torch==") for pin in pins)


def test_every_development_requirement_is_pinned(repository: Path) -> None:
    pins = (repository / "constraints.txt").read_text()
    for line in (repository / "requirements-dev.txt").read_text().splitlines():
        name = re.match(r"[a-z0-9-]+", line)
        if name:
            assert f"\n{name[0]}==" in pins, name[0]


def test_no_pip_lock_records_a_place_of_one_machine(repository: Path) -> None:
    assert not (repository / "uv.lock").exists()
    assert "://" not in (repository / "constraints.txt").read_text()


def test_readme_names_only_make_targets_that_exist(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in (repository / "README.md", *sorted((repository / "docs").rglob("*.md"))):
        for target in re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z-]+)", page.read_text()):
            assert target in targets, f"{page.name}: make {target}"
