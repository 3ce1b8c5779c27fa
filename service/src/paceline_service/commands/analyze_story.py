"""What the outputs of ``paceline analyze`` show beside the report: its steps, kept as they came."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.job import JobAnalysis
from paceline_service.export.html import Story
from paceline_service.export.html.scenes import tell_scenes, wait_steps
from paceline_service.export.html.story import Scene
from paceline_service.export.step_archive import StepArchive
from paceline_service.export.what_if import candidates
from paceline_service.export.words import Json, main_finding
from paceline_service.importers.answer import Answer

_MOST_ASKED = 300
"""Characters of the command that is told; a shell can expand a pattern to a thousand files."""


class StepsSeen:
    """Keeps the steps that an offline analysis shows, and the analysis itself."""

    def __init__(self) -> None:
        self.steps = StepArchive()
        self.analysis: JobAnalysis | None = None

    def see(self, analysis: JobAnalysis, rows: Sequence[StepRow]) -> None:
        """Take the next steps."""
        self.analysis = analysis
        self.steps.add(rows)

    def close(self) -> None:
        """Let go of them."""
        self.steps.close()


def tell_story(answer: Answer, seen: StepsSeen, command: str, made_wall_ns: int) -> Story:
    """Return what is known of files beside the report on them."""
    report = answer.report
    nodes = answer.log.nodes if answer.log is not None else {}
    main = main_finding(report)
    begins = main["first_step"] if main is not None else None
    history, waits, scenes = seen.steps.history(), None, tuple[Scene, ...]()
    if history is not None:
        newest, size = history.steps[-1], int(report["job"]["world_size"])
        waits = wait_steps(seen.steps, size, newest, begins)
        if waits is not None:
            scenes = tell_scenes(
                seen.steps, report, nodes, waits, begins, newest=newest, is_over=True
            )
    return Story(
        made_wall_ns=made_wall_ns,
        detail=_detail(answer),
        scenes=scenes,
        history=history,
        waits=waits,
        what_if=_what_if(report, seen.analysis),
        asked=command,
    )


def _what_if(report: Json, analysis: JobAnalysis | None) -> Json | None:
    """Return who would give back most; one slow step is no reason to leave somebody out."""
    if analysis is None or report["verdict"] == "insufficient_evidence":
        return None
    return {"candidates": candidates(analysis.drain())}


def asked_again(paths: Sequence[object], output: object) -> str:
    """Return the command that makes a file again, as far as it is short."""
    words = ["paceline", "analyze", *(shlex.quote(str(path)) for path in paths), "-o"]
    told = " ".join([*words, shlex.quote(str(output))])
    return told if len(told) <= _MOST_ASKED else ""


def _detail(answer: Answer) -> Json:
    log = answer.log
    if log is None:
        return {}
    return {
        "nodes": {str(rank): node for rank, node in log.nodes.items()},
        "run_id": log.run_id,
    }
