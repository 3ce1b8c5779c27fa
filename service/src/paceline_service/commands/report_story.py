"""Asks a collector for what an HTML report shows beside the report: steps, what-if, incidents."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeVar
from urllib.parse import quote

from paceline.ranks import format_ranks
from paceline_service.client import Client, ProblemError, types
from paceline_service.export.html import Story
from paceline_service.export.html.story import Scene
from paceline_service.export.html.tables import TOP_INCIDENTS
from paceline_service.export.step_table import StepTable, step_table
from paceline_service.export.telling import all_lanes, named_ranks, telling_lanes
from paceline_service.export.words import main_finding

SCENE_STEPS = 16
BEFORE_STEPS = 6
"""Of a scene at the beginning of a finding: what was before it."""
HISTORY_STEPS = 5000
WAIT_CELLS = 200_000
MOST_WAIT_STEPS = 2000
LANES = 12
_T = TypeVar("_T")


def tell_story(client: Client, report: types.Report, made_wall_ns: int) -> Story:
    """Return what a collector knows beside a report.

    What it refuses, because it is not kept any more or because it is of an earlier version, is
    left out: a ticket with less in it is better than none.
    """
    job, attempt = report["job"]["name"], report["job"]["attempt"]
    detail = client.job(job, attempt)
    history = _ask(lambda: client.steps(job, attempt, ranks="0", limit=HISTORY_STEPS))
    times = step_table(history) if history is not None and history["steps"] else None
    main = main_finding(report)
    begins = main["first_step"] if main is not None else None
    waits = _waits(client, report, times, begins)
    return Story(
        made_wall_ns=made_wall_ns,
        url=f"{client.url}/#/jobs/{quote(job, safe='')}?attempt={attempt}",
        detail=detail,
        scenes=_scenes(client, report, detail, times, begins, waits),
        history=times,
        waits=waits,
        what_if=_ask(lambda: client.what_if(job, attempt=attempt)),
        incidents=_ask(lambda: list(islice(client.iter_incidents(job, attempt), TOP_INCIDENTS)))
        or (),
        asked=f"paceline report {job} --attempt {attempt} --format html -o {job}.html",
    )


def _waits(
    client: Client, report: types.Report, times: StepTable | None, begins: int | None
) -> StepTable | None:
    """Return steps of all ranks: where the finding begins if it is told, else the newest."""
    if times is None:
        return None
    job, attempt = report["job"]["name"], report["job"]["attempt"]
    count = min(max(WAIT_CELLS // report["job"]["world_size"], SCENE_STEPS), MOST_WAIT_STEPS)
    newest = times.steps[-1]
    chosen: dict[str, object] = {"limit": count}
    if begins is not None and begins < newest - count * 2 // 3:
        chosen["from_"] = max(begins - count // 3, 0)
    asked = _ask(lambda: client.steps(job, attempt, **chosen))
    return step_table(asked) if asked is not None and asked["steps"] else None


def _scenes(
    client: Client,
    report: types.Report,
    detail: types.JobDetail,
    times: StepTable | None,
    begins: int | None,
    waits: StepTable | None,
) -> tuple[Scene, ...]:
    if times is None or waits is None:
        return ()
    nodes = {int(rank): node for rank, node in detail["nodes"].items() if node}
    flagged = named_ranks(report["findings"])
    size = report["job"]["world_size"]
    lanes = all_lanes(size, nodes, flagged)
    if size > LANES:
        lanes = telling_lanes(waits.mean_self_ns(), nodes, flagged, LANES)
    ranks = format_ranks(sorted({rank for lane in lanes for rank in lane.ranks}))
    newest = times.steps[-1]
    windows = []
    if begins is not None and 0 < begins <= newest:
        windows.append(("How it began", max(begins - BEFORE_STEPS, 0)))
    if not windows or windows[0][1] + SCENE_STEPS <= newest:
        windows.append(("The newest steps", max(newest - SCENE_STEPS + 1, 0)))
    scenes = []
    for title, first in windows:
        table = _scene_table(client, report, ranks, first)
        if table is not None:
            told = f"{title}: steps {table.steps[0]:,} to {table.steps[-1]:,}"
            scenes.append(Scene(title=told, lanes=tuple(lanes), table=table))
    return tuple(scenes)


def _scene_table(client: Client, report: types.Report, ranks: str, first: int) -> StepTable | None:
    job, attempt = report["job"]["name"], report["job"]["attempt"]
    last = first + SCENE_STEPS - 1
    asked = _ask(
        lambda: client.steps(
            job, attempt, from_=first, to=last, ranks=ranks, limit=SCENE_STEPS, phases=True
        )
    )
    return step_table(asked) if asked is not None and asked["steps"] else None


def _ask(question: Callable[[], _T]) -> _T | None:
    """Return the answer, None where the collector does not have it."""
    try:
        return question()
    except ProblemError as error:
        if error.status in (401, 403, 429, 503):
            raise
        return None
