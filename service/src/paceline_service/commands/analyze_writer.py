"""Writes the answer about files in each form that is asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.ranks import format_ranks, parse_ranks
from paceline_service.commands.analyze_outputs import AnalyzeFormat, Output
from paceline_service.commands.analyze_story import StepsSeen, asked_again, tell_story
from paceline_service.commands.output import ReportFormat, replacing, write_report
from paceline_service.commands.run import warn
from paceline_service.importers.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user wants of ``paceline analyze``.

    ``steps`` and ``ranks`` are those that a Perfetto file draws, None where they are not chosen.
    """

    paths: Sequence[Path]
    outputs: Sequence[Output]
    steps: tuple[int, int] | None
    ranks: tuple[int, ...] | None

    @classmethod
    def of(
        cls, paths: Sequence[Path], outputs: Sequence[Output], steps: str | None, ranks: str | None
    ) -> Asked:
        """Return what the words of the command line mean.

        Raises:
            InputError: steps or ranks cannot be read, or are for a file that is not asked for.
        """
        drawn = any(output.form is AnalyzeFormat.PERFETTO for output in outputs)
        for name, value in (("--steps", steps), ("--ranks", ranks)):
            if value is not None and not drawn:
                raise InputError(f"{name} is for a Perfetto file: give -o FILE.perfetto.json.gz")
        return cls(
            paths=paths,
            outputs=outputs,
            steps=_steps(steps) if steps is not None else None,
            ranks=tuple(parse_ranks(ranks)) if ranks is not None else None,
        )

    @property
    def needs_steps(self) -> bool:
        """Whether some output shows more than the report."""
        return any(output.needs_steps for output in self.outputs)


def write_all(answer: Answer, seen: StepsSeen, asked: Asked) -> None:
    """Write every output; what became of files is told on stderr.

    Raises:
        InputError: a trace is asked for, and there is nothing to draw.
    """
    for output in asked.outputs:
        if output.form is AnalyzeFormat.PERFETTO and (answer.log is None or seen.analysis is None):
            raise InputError(
                f"{output.path}: nothing to draw: files of this format have no timed records of "
                "steps"
            )
    for output in asked.outputs:
        if output.form is AnalyzeFormat.CSV:
            _write_csv(answer, seen, output.path)
        elif output.form is AnalyzeFormat.PERFETTO:
            assert output.path is not None
            _write_trace(answer, seen, output.path, asked)
        else:
            story = None
            if output.form is AnalyzeFormat.HTML:
                command = asked_again(asked.paths, output.path) if output.path is not None else ""
                story = tell_story(answer, seen, command, time.time_ns())
            write_report(answer.report, ReportFormat(output.form.value), output.path, story)


def _write_csv(answer: Answer, seen: StepsSeen, path: Path | None) -> None:
    from paceline_service.export.rank_csv import rank_lines

    nodes = answer.log.nodes if answer.log is not None else {}
    steps = seen.steps.steps_of_rank.tolist() if len(seen.steps) else None
    lines = rank_lines(answer.report, nodes, steps)
    if path is None:
        # Only a file or a pipe wants the line ends of RFC 4180.
        plain = sys.stdout.isatty()
        sys.stdout.writelines(line.replace("\r", "") if plain else line for line in lines)
        return
    with replacing(path) as file:
        file.writelines(line.encode() for line in lines)


def _write_trace(answer: Answer, seen: StepsSeen, path: Path, asked: Asked) -> None:
    from paceline_service.commands.analyze_trace import write_trace

    assert seen.analysis is not None
    drawn = write_trace(answer, seen.analysis, path, steps=asked.steps, ranks=asked.ranks)
    size = path.stat().st_size / 1e6
    warn(
        f"{path}: steps {drawn.first_step} to {drawn.last_step}, ranks "
        f"{format_ranks(list(drawn.ranks))}, {counted(drawn.events, 'event')}, {size:.1f} MB; open "
        "it in https://ui.perfetto.dev (it stays on your machine)"
    )
    if drawn.steps < drawn.all_steps and asked.steps is None:
        warn(
            f"{path}: {drawn.steps:,} of {counted(drawn.all_steps, 'step')}; others with --steps "
            "FIRST-LAST"
        )


def _steps(value: str) -> tuple[int, int]:
    first, dash, last = value.partition("-")
    if not (first.isascii() and first.isdigit()) or (dash and not last.isdigit()):
        raise InputError(f"--steps {value!r} is no range of steps; give FIRST-LAST, like 200-260")
    found = int(first), int(last) if dash else int(first)
    if found[0] > found[1] or found[1] >= 1 << 62:
        raise InputError(f"--steps {value!r} ends before it begins, or is too large")
    return found
