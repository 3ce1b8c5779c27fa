"""``paceline settings JOB``: what a job records, from which step on, and who follows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from paceline_service.client import Client
from paceline_service.commands.output import Format
from paceline_service.commands.remote import (
    DEFAULT_URL,
    AttemptOption,
    JobArgument,
    UrlOption,
    job_path,
)
from paceline_service.commands.run import run_command

Json = dict[str, Any]


class Level(str, Enum):
    """What is recorded; each brings what those before it bring."""

    OFF = "off"
    STEPS = "steps"
    COLLECTIVES = "collectives"
    FULL = "full"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_settings, "settings", argv)


def _settings(
    job: JobArgument,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    level: Annotated[Level | None, typer.Option(help="What is recorded.")] = None,
    stride: Annotated[
        int | None, typer.Option(metavar="K", help="Keep every K-th step whole.")
    ] = None,
    on: Annotated[
        bool | None, typer.Option("--on/--off", help="Record again, or nothing for now.")
    ] = None,
    telemetry_interval_s: Annotated[
        float | None,
        typer.Option("--telemetry-interval-s", metavar="S", help="0: none; -1: the sidecars' own."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to write the answer.")] = (
        Format.TEXT
    ),
) -> int:
    """Show what a job records, or change it at one step of all its ranks.

    Exit status: 0 when it was shown or changed, 2 when not.
    """
    asked: Json = {
        "level": level.value if level is not None else None,
        "stride": stride,
        "enabled": on,
        "telemetry_interval_s": telemetry_interval_s,
    }
    change = {name: value for name, value in asked.items() if value is not None}
    if telemetry_interval_s == -1:
        change["telemetry_interval_s"] = None
    client = Client(url)
    if change:
        shown = client.put_json(job_path(job, "settings", None), change)
    else:
        shown = client.get_json(job_path(job, "settings", attempt))
    print(json.dumps(shown, indent=2) if form is Format.JSON else _text(shown))
    return 0


def _text(shown: Json) -> str:
    if not shown["generation"]:
        return f"{shown['job']}: nobody asked for anything; ranks do what PACELINE_LEVEL says"
    lines = [f"{shown['job']}, attempt {shown['attempt']}: {_recorded(shown)}"]
    interval_s = shown["telemetry_interval_s"]
    if interval_s is not None:
        lines.append(f"telemetry every {interval_s:g} s" if interval_s else "no telemetry")
    if shown["effective_step"] is None:
        lines.append("no step is agreed yet: not all ranks of a running attempt were heard")
        return "\n".join(lines)
    lines.append(f"from step {shown['effective_step']} on")
    ranks = shown["ranks"]
    for word, text in (
        ("follow", ranks["follows"]),
        ("have not come to it yet", ranks["waits"]),
        ("are past it and do not follow: their agent or sidecar is too old, or silent",
         ranks["silent"]),
    ):  # fmt: skip
        if text:
            lines.append(f"  ranks {text} {word}")
    lines += [
        f"  rank {rank} heard of it too late and follows from step {step} on"
        for rank, step in ranks["missed"].items()
    ]
    return "\n".join(lines)


def _recorded(shown: Json) -> str:
    if not shown["enabled"]:
        return f"off (level {shown['level']} when it is on again)"
    stride = shown["stride"]
    if shown["level"] == "off" or stride == 1:
        return f"level {shown['level']}"
    return f"level {shown['level']}, one step in {stride}"
