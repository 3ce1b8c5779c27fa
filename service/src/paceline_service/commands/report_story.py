"""Asks a collector for what an HTML report shows beside the report: steps, what-if, incidents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import quote

from paceline.ranks import format_ranks
from paceline_service.client import Client, ProblemError, types
from paceline_service.export.html import Story
from paceline_service.export.html.scenes import tell_scenes, wait_steps
from paceline_service.export.html.story import Scene
from paceline_service.export.html.tables import TOP_INCIDENTS
from paceline_service.export.step_table import StepTable, step_table
from paceline_service.export.words import main_finding

HISTORY_STEPS = 5000
_T = TypeVar("_T")


def tell_story(client: Client, report: types.Report, made_wall_ns: int) -> Story:
    """Return what a collector knows beside a report.

    What it refuses, because it is not kept any more or because it is of an earlier version, is
    left out: a ticket with less in it is better than none.
    """
    job, attempt = report["job"]["name"], report["job"]["attempt"]
    detail = client.job(job, attempt)
    steps = _Steps(client, job, attempt)
    history = steps.table(limit=HISTORY_STEPS, ranks=(0,))
    main = main_finding(report)
    begins = main["first_step"] if main is not None else None
    waits, scenes = None, tuple[Scene, ...]()
    if history is not None:
        newest = history.steps[-1]
        waits = wait_steps(steps, report["job"]["world_size"], newest, begins)
    if history is not None and waits is not None:
        nodes = {int(rank): node for rank, node in detail["nodes"].items() if node}
        scenes = tell_scenes(steps, report, nodes, waits, begins, newest=newest)
    return Story(
        made_wall_ns=made_wall_ns,
        url=f"{client.url}/#/jobs/{quote(job, safe='')}?attempt={attempt}",
        detail=detail,
        scenes=scenes,
        history=history,
        waits=waits,
        what_if=_ask(lambda: client.what_if(job, attempt=attempt)),
        incidents=_ask(lambda: list(islice(client.iter_incidents(job, attempt), TOP_INCIDENTS)))
        or (),
        asked=f"paceline report {job} --attempt {attempt} --format html -o {job}.html",
    )


class _Steps:
    """The steps of an attempt, as the collector has them."""

    def __init__(self, client: Client, job: str, attempt: int) -> None:
        self._client = client
        self._job = job
        self._attempt = attempt

    def table(
        self,
        *,
        limit: int,
        first: int | None = None,
        ranks: Sequence[int] | None = None,
        phases: bool = False,
    ) -> StepTable | None:
        """Return up to ``limit`` steps from ``first`` on, else the newest; None: there are none."""
        asked = _ask(
            lambda: self._client.steps(
                self._job,
                self._attempt,
                from_=first,
                ranks=format_ranks(ranks) if ranks is not None else None,
                limit=limit,
                phases=phases or None,
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
