"""Resolve constraints.txt for every supported Python at once, with uv (`make constraints`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.10"
HEADER = """\
# Written by `make constraints` (tools/constraints.py). Pins for Python 3.10 to 3.13; torch is
# pinned in tools/install.py, because it is installed first and alone.
"""
TORCH_NEEDS = (
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "setuptools",
    "sympy",
    "typing-extensions",
)
"""What torch's CPU build requires: named here because torch itself is not resolved."""


def requirements() -> str:
    """Return the requirements to resolve, in pip's format."""
    lines = [
        f"-e {ROOT}/agent[sidecar]",
        f"-e {ROOT}/service[nats,oidc,parquet,plots,postgresql]",
        f"-e {ROOT}/dashboards",
        f"-r {ROOT}/requirements-dev.txt",
        *TORCH_NEEDS,
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write constraints.txt; return uv's status."""
    with tempfile.TemporaryDirectory() as directory:
        wanted = Path(directory, "requirements.txt")
        wanted.write_text(requirements(), encoding="utf-8")
        flags = ("--universal", "--python-version", OLDEST_PYTHON, "--no-annotate", "--no-header")
        quiet = ("--no-emit-index-url", "--no-emit-find-links", "--quiet")
        command = ["uv", "pip", "compile", *flags, *quiet, str(wanted)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        except FileNotFoundError:
            print("uv is missing: .venv/bin/pip install uv", file=sys.stderr)
            return 2
    if done.returncode == 0:
        pins = [line for line in done.stdout.splitlines() if not line.startswith("-e ")]
        text = HEADER + "\n".join(pins) + "\n"
        (ROOT / "constraints.txt").write_text(text, encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
