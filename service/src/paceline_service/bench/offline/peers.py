"""Other tools for recorded traces, in an environment of their own, or why they are not there.

What bears the name TraceLens on PyPI is another project: AMD's is taken from its repository, as its
README says, or from a checkout. So is ByteDance's analyzer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TRACELENS_ENV = "PACELINE_TRACELENS"
WHAT_IF_ENV = "PACELINE_STRAGGLER_ANALYSIS"
"""Directories of checkouts, where their repositories cannot be reached."""
HTA = "HolisticTraceAnalysis==0.5.0"
_PACKAGES = (
    HTA, "pandas<3",  # HTA 0.5.0 fails on the types of pandas 3
    "tqdm", "openpyxl", "orjson", "tabulate", "PyYAML", "matplotlib",  # TraceLens
    "scipy", "pyarrow", "seaborn", "ujson",  # ByteDance's
)  # fmt: skip
_REPOSITORIES = {
    TRACELENS_ENV: "https://github.com/AMD-AGI/TraceLens.git",
    WHAT_IF_ENV: "https://github.com/ByteDance-Seed/StragglerAnalysis.git",
}
_PATIENCE_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Where the tools are; None and a reason in ``skipped`` for what could not be had."""

    python: Path | None
    tracelens: Path | None
    what_if: Path | None
    skipped: dict[str, str]


def install(directory: Path) -> Peers:
    """Install what is not there yet into ``directory``."""
    skipped: dict[str, str] = {}
    python = directory / "venv" / "bin" / "python"
    if not (directory / "venv" / ".complete").exists():
        reason = _run([sys.executable, "-m", "venv", str(directory / "venv")]) or _run(
            [str(python), "-m", "pip", "install", "--quiet", *_PACKAGES]
        )
        if reason:
            skipped["packages"] = f"not installed from PyPI: {reason}"
            return Peers(python=None, tracelens=None, what_if=None, skipped=skipped)
        (directory / "venv" / ".complete").touch()
    found = {}
    for variable, repository in _REPOSITORIES.items():
        found[variable] = _checkout(variable, repository, directory, skipped)
    return Peers(
        python=python, tracelens=found[TRACELENS_ENV], what_if=found[WHAT_IF_ENV], skipped=skipped
    )


def version_of(package: str, python: Path) -> str:
    """Return the version of an installed package."""
    done = subprocess.run(
        [str(python), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"],
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def _checkout(
    variable: str, repository: str, directory: Path, skipped: dict[str, str]
) -> Path | None:
    if given := os.environ.get(variable):
        return Path(given).resolve()
    place = directory / repository.rpartition("/")[2].removesuffix(".git")
    if not place.exists():
        reason = _run(["git", "clone", "--quiet", "--depth", "1", repository, str(place)])
        if reason:
            skipped[variable] = f"{repository} cannot be had ({reason}); {variable}=DIR gives one"
            return None
    return place.resolve()


def _run(command: list[str]) -> str:
    """Run a command and return why it failed, empty where it did not."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
    return "" if done.returncode == 0 else (lines or ["unknown"])[-1][:160]
