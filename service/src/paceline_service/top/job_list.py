"""The jobs of a collector as a table in the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from rich.text import Text

from paceline_service.client import Client, types
from paceline_service.export import words
from paceline_service.export.units import format_times

MOST_JOBS = 100
_STYLES = {"healthy": "green", "insufficient_evidence": "yellow"}


def job_list(client: Client, width: int) -> list[Text]:
    """Return the newest jobs as lines: state, verdict, size, and the answer in one sentence."""
    with client:
        rows = list(islice(client.iter_jobs(limit=MOST_JOBS), MOST_JOBS + 1))
    if not rows:
        return [
            Text(f"{client.url} has no jobs yet."),
            Text("paceline run -- torchrun ... train.py   sends it one.", style="dim"),
        ]
    lines = _table(rows[:MOST_JOBS], width)
    if len(rows) > MOST_JOBS:
        lines.append(Text(f"The newest {MOST_JOBS} jobs; there are more.", style="dim"))
    lines += [Text(), Text("paceline top JOB   shows one of them.", style="dim")]
    return lines


def _table(rows: Sequence[types.JobRow], width: int) -> list[Text]:
    name = min(max(len("job"), *(len(words.clean(row["job"])) for row in rows)), 40)
    head = (
        f"{'job':<{name}}  {'state':<8} {'ranks':>6} {'steps':>9} {'slower':>7}  "
        f"{'heard':>7}  verdict"
    )
    lines = [Text(head, style="dim", no_wrap=True)]
    for row in rows:
        text = Text(no_wrap=True)
        text.append(words.clean(row["job"])[:name].ljust(name) + "  ", "bold")
        state = row["state"]
        text.append(f"{state:<8} ", {"silent": "yellow", "running": "green"}.get(state, "dim"))
        slower = format_times(row["slowdown"]) if row["slowdown"] is not None else "-"
        heard = _ago(time.time() - row["last_seen_wall_ns"] / 1e9)
        text.append(f"{row['world_size']:>6,} {row['steps']:>9,} {slower:>7}  {heard:>7}  ")
        text.append(words.clean(row["headline"]), _STYLES.get(row["verdict"], "red"))
        text.truncate(width, overflow="ellipsis")
        lines.append(text)
    return lines


def _ago(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
