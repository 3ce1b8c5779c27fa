"""A report as JSON, given to a model: ``--report FILE``, or a file of ``--ranks-from``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from paceline.errors import InputError

_SCHEMA = "paceline.report/1"
_MOST_BYTES = 256 << 20
"""A file that may be something else is not read to its end to find that out."""


def read_report(path: Path) -> dict[str, Any]:
    """Return the report of a file; ``-`` is stdin.

    Raises:
        InputError: the file cannot be read, or is no report.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        report = json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"--report {path}: cannot be read as JSON: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != _SCHEMA:
        raise InputError(
            f"--report {path}: is no {_SCHEMA}; make one by `paceline analyze PATH --format json`"
        )
    return report


def report_in(path: Path) -> dict[str, Any] | None:
    """Return the report of a file, None where the file is something else."""
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    try:
        return read_report(path)
    except InputError:
        return None
