"""``paceline analyze --compare BEFORE AFTER``: one answer about two runs."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import InputError
from paceline_service.analysis.compare.runs import TOLERANCE
from paceline_service.analysis.options import Options
from paceline_service.commands.analyze_outputs import AnalyzeFormat, Output
from paceline_service.commands.analyze_story import StepsSeen
from paceline_service.commands.analyzed import analyzed
from paceline_service.commands.output import ANY, replacing
from paceline_service.commands.run import EXIT_FINDINGS, EXIT_INSUFFICIENT, EXIT_OK
from paceline_service.export.compare_json import Side, compare_sides
from paceline_service.export.compare_text import compare_text
from paceline_service.export.run_figures import run_figures
from paceline_service.export.words import Json

REGRESSION = "regression"
"""Beside the kinds of ``--fail-on``: the second run is slower."""


def compare(
    paths: Sequence[Path],
    outputs: Sequence[Output],
    *,
    fail_on: frozenset[str] | None,
    tolerance: float | None,
    strict: bool,
) -> int:
    """Compare two runs, write the answer, and return the exit status.

    Args:
        paths: the run before and the run after, each a file or a directory of any format.
        outputs: text, JSON, HTML.
        fail_on: kinds, or None.
        tolerance: differences that are smaller do not count; None for the usual.
        strict: refuse input of which anything is unusable.

    Raises:
        InputError: there are not two paths, or one of them has no timed steps.
    """
    if len(paths) != 2:
        raise InputError(
            f"--compare takes two paths, BEFORE and AFTER, not {len(paths)}; put the files of each "
            "run into a directory of its own"
        )
    for output in outputs:
        if output.form in (AnalyzeFormat.CSV, AnalyzeFormat.PERFETTO):
            raise InputError(f"--compare writes text, JSON or HTML, not {output.form.value}")
    before, after = (_side(path, strict=strict) for path in paths)
    answer = compare_sides(before, after, TOLERANCE if tolerance is None else tolerance)
    for output in outputs:
        _write(answer, before, after, output)
    return _status(answer, fail_on)


def _side(path: Path, *, strict: bool) -> Side:
    seen = StepsSeen()
    try:
        with analyzed([path], verb="analyze", strict=strict, see=seen.see) as answer:
            log = answer.log
            if log is None:
                raise InputError(
                    f"{path} has no timed steps, so it cannot be compared; analyze it alone"
                )
            settling = (log.options or Options()).settling_steps
            return Side(
                name=str(path),
                format=log.format,
                report=answer.report,
                figures=run_figures(seen.steps, settling),
                history=seen.steps.history(),
                nodes=dict(log.nodes),
            )
    finally:
        seen.close()


def _write(answer: Json, before: Side, after: Side, output: Output) -> None:
    if output.form is AnalyzeFormat.JSON:
        text = json.dumps(answer, indent=2) + "\n"
    elif output.form is AnalyzeFormat.HTML:
        from paceline_service.export.html.compare_page import compare_page

        paths = " ".join(shlex.quote(side.name) for side in (before, after))
        asked = f"paceline analyze --compare {paths} -o {shlex.quote(str(output.path))}"
        text = compare_page(answer, before.history, after.history, asked, time.time_ns())
    else:
        text = compare_text(answer)
    if output.path is None:
        sys.stdout.write(text)
        return
    with replacing(output.path) as file:
        file.write(text.encode())


def _status(answer: Json, fail_on: frozenset[str] | None) -> int:
    """Return 1 where the second run is worse, 3 where nothing can be said, else 0."""
    came = {finding["kind"] for finding in answer["findings"]["came"]}
    slower = answer["verdict"] == "slower"
    if fail_on is not None:
        failed = (
            (slower and bool(fail_on & {REGRESSION, ANY}))
            or (bool(came) and ANY in fail_on)
            or bool(fail_on & {*came, answer["verdict"]})
        )
        return EXIT_FINDINGS if failed else EXIT_OK
    if slower or came:
        return EXIT_FINDINGS
    return EXIT_INSUFFICIENT if answer["verdict"] == "insufficient_evidence" else EXIT_OK
