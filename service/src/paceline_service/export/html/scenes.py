"""Which steps of which ranks an HTML report draws, wherever the steps come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from paceline_service.export.html.story import Scene
from paceline_service.export.step_table import StepTable
from paceline_service.export.telling import all_lanes, named_ranks, telling_lanes

SCENE_STEPS = 16
BEFORE_STEPS = 6
"""Of a scene at the beginning of a finding: what was before it."""
LEAST_NEW = SCENE_STEPS // 2
"""Steps behind the first scene from which a second one is worth its place."""
WAIT_CELLS = 200_000
MOST_WAIT_STEPS = 2000
LANES = 12
Json = Mapping[str, Any]


class StepReader(Protocol):
    """Gives steps of a run: a collector's client, or the archive of an offline analysis."""

    def table(
        self,
        *,
        limit: int,
        first: int | None = None,
        ranks: Sequence[int] | None = None,
        phases: bool = False,
    ) -> StepTable | None:
        """Return up to ``limit`` steps from ``first`` on, else the newest; None: there are none."""


def wait_steps(
    steps: StepReader, world_size: int, newest: int, begins: int | None
) -> StepTable | None:
    """Return steps of all ranks: where the finding begins if it is told, else the newest.

    Args:
        steps: the run.
        world_size: R.
        newest: its last step.
        begins: first step of the finding.
    """
    count = min(max(WAIT_CELLS // world_size, SCENE_STEPS), MOST_WAIT_STEPS)
    first = None
    if begins is not None and begins < newest - count * 2 // 3:
        first = max(begins - count // 3, 0)
    return steps.table(limit=count, first=first)


def tell_scenes(
    steps: StepReader,
    report: Json,
    nodes: Mapping[int, str],
    waits: StepTable,
    begins: int | None,
    *,
    newest: int,
    is_over: bool = False,
) -> tuple[Scene, ...]:
    """Return the sawtooths: how the finding began, and the newest steps.

    Args:
        steps: the run.
        report: the answer about it.
        nodes: of ranks.
        waits: steps of all ranks, by which the telling ones are chosen.
        begins: first step of the main finding.
        newest: the last step.
        is_over: the run is of yesterday: nothing in it is new.
    """
    flagged = named_ranks(report["findings"])
    size = report["job"]["world_size"]
    lanes = all_lanes(size, nodes, flagged)
    if size > LANES:
        lanes = telling_lanes(waits.mean_self_ns(), nodes, flagged, LANES)
    ranks = sorted({rank for lane in lanes for rank in lane.ranks})
    scenes: list[Scene] = []

    def add(title: str, first: int | None) -> None:
        table = steps.table(limit=SCENE_STEPS, first=first, ranks=ranks, phases=True)
        if table is not None:
            scenes.append(Scene(title=_told(title, table), lanes=tuple(lanes), table=table))

    if begins is not None and 0 < begins <= newest:
        add("How it began", max(begins - BEFORE_STEPS, 0))
    if not scenes or newest - scenes[0].table.steps[-1] >= LEAST_NEW:
        add("The last steps" if is_over else "The newest steps", None)
    return tuple(scenes)


def _told(title: str, table: StepTable) -> str:
    first, last = table.steps[0], table.steps[-1]
    return f"Step {first:,}" if first == last else f"{title}: steps {first:,} to {last:,}"
