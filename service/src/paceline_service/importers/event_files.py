"""Which files are event logs of one attempt of one job: decided by their headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.event_log import SCHEMA
from paceline_service.importers.faults import Faults
from paceline_service.importers.lines import first_object

MOST_FILES = 2 / 3
"""Of the files: when more of them are of one job, the others are taken to be strays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file to read; ``number`` tells it apart in a spool."""

    path: Path
    number: int


def find_event_logs(paths: Sequence[Path], faults: Faults) -> list[Input]:
    """Return the event logs of one attempt of one job among the files at ``paths``, in order.

    What is no log, of another job than over two thirds of the files, or of an attempt before the
    last, is told in ``faults``.

    Raises:
        InputError: there is no event log at all.
    """
    found: list[tuple[Path, dict[str, Any]]] = []
    problems: list[tuple[Path, str]] = []
    for path in paths:
        header, problem = _header(path)
        if problem:
            problems.append((path, problem))
        else:
            found.append((path, header))
    if not found:
        raise InputError("; ".join(f"{path}:1: {problem}" for path, problem in problems[:1]))
    for path, problem in problems:
        faults.add("unusable_file", path, 1, problem)
    logs = _latest_attempt(_of_one_job(found, faults), faults)
    return [Input(path=path, number=number) for number, path in enumerate(logs)]


def _header(path: Path) -> tuple[dict[str, Any], str]:
    """Return the header of a log, or why there is none."""
    try:
        value = first_object(path)
    except InputError as error:
        return {}, str(error).removeprefix(f"{path}:1: ").removeprefix(f"{path} ")
    return value if isinstance(value, dict) else {}, _problem(value)


def _of_one_job(
    logs: list[tuple[Path, dict[str, Any]]], faults: Faults
) -> list[tuple[Path, dict[str, Any]]]:
    """Leave out the logs of other jobs where most are of one; else the reader refuses them."""
    for names in (("job", "run_id"), ("world_size",)):
        told = [tuple(repr(header.get(name)) for name in names) for _, header in logs]
        usual, count = Counter(told).most_common(1)[0]
        if len(logs) > count > MOST_FILES * len(logs):
            for (path, _), values in zip(logs, told, strict=True):
                if values != usual:
                    differs = "; ".join(
                        f"{name} is {mine[:80]}, of the other files {theirs[:80]}"
                        for name, mine, theirs in zip(names, values, usual, strict=True)
                        if mine != theirs
                    )
                    message = f"left out: of another job: {differs}"
                    faults.add("other_job", path, 1, message)
            logs = [one for one, values in zip(logs, told, strict=True) if values == usual]
    return logs


def _latest_attempt(logs: list[tuple[Path, dict[str, Any]]], faults: Faults) -> list[Path]:
    """Leave out the attempts before the last where the files of all of one run are there."""
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
