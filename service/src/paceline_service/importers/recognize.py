"""Which importer reads a file: decided by its content, never by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline.event_log import SCHEMA
from paceline_service.importers.faults import Faults
from paceline_service.importers.lines import first_object

_LOG_SUFFIXES = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
"""What claims to be a log by its name is reported as broken when it is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file to read; ``number`` tells it apart in a spool."""

    path: Path
    number: int


def find_event_logs(paths: Sequence[Path], faults: Faults) -> list[Input]:
    """Return the event logs among ``paths``, in order; a directory gives those directly in it.

    A named file must be one. Files of a directory that are something else are counted in
    ``faults``; so are its logs whose first line is broken.

    Raises:
        InputError: a path does not exist or is no event log, or a directory holds none.
    """
    found: list[Path] = []
    for path in paths:
        found += _in_directory(path, faults) if path.is_dir() else [_named(path)]
    unique: dict[tuple[int, int], Path] = {}
    for path in found:
        status = path.stat()
        unique.setdefault((status.st_dev, status.st_ino), path)
    return [Input(path=path, number=number) for number, path in enumerate(unique.values())]


def _named(path: Path) -> Path:
    problem = _problem(first_object(path))
    if problem:
        raise InputError(f"{path}:1: {problem}")
    return path


def _in_directory(directory: Path, faults: Faults) -> list[Path]:
    try:
        files = sorted(p for p in directory.iterdir() if not p.name.startswith(".") and p.is_file())
    except OSError as error:
        raise InputError(f"{directory} cannot be read: {error.strerror}") from error
    logs = []
    problems = []
    for path in files:
        header: object = None
        try:
            header = first_object(path)
            problem = _problem(header)
        except InputError as error:
            problem = str(error).removeprefix(f"{path}:1: ")
        if not problem and isinstance(header, dict):
            logs.append((path, header))
        elif path.name.endswith(_LOG_SUFFIXES):
            problems.append(f"{path}:1: {problem}")
            faults.add("unusable_file", path, 1, problem)
        else:
            faults.add("skipped_file", path, None, f"left out: {problem}")
    if not logs:
        first = f" ({problems[0]})" if problems else ""
        raise InputError(
            f"{directory} holds no event log among {len(files)} files{first}; give the directory "
            "that the per-rank files are directly in"
        )
    return _latest_attempt(logs, faults)


def _latest_attempt(logs: list[tuple[Path, dict[str, Any]]], faults: Faults) -> list[Path]:
    """Leave out the attempts before the last where a directory keeps all of one run."""
    runs = {(repr(header.get("job")), repr(header.get("run_id"))) for _, header in logs}
    numbers = [header.get("attempt", 0) for _, header in logs]
    if len(runs) > 1 or not all(type(number) is int for number in numbers):
        return [path for path, _ in logs]  # the importer tells what does not fit together
    latest = max(numbers)
    for (path, _), number in zip(logs, numbers, strict=True):
        if number != latest:
            message = f"left out: of attempt {number}; the latest here, {latest}, is read"
            faults.add("skipped_file", path, 1, message)
    return [path for (path, _), number in zip(logs, numbers, strict=True) if number == latest]


def _problem(header: object) -> str:
    schema = header.get("schema") if isinstance(header, dict) else None
    if schema == SCHEMA:
        return ""
    if isinstance(schema, str) and schema.startswith(SCHEMA.partition("/")[0] + "/"):
        return f"schema {schema[:60]!r}; this version reads {SCHEMA}: update paceline"
    if isinstance(schema, str):
        return f"schema {schema[:60]!r} is no event log; {SCHEMA} is needed"
    return f'no event log: the first line is not its header {{"schema":"{SCHEMA}",...}}'
