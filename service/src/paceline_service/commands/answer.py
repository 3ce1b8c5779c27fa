"""An answer of ``paceline plan`` and ``paceline simulate``: what is assumed, tables, what it means.

One object, written as text, as JSON (docs/plan.md) and, with its plots, as HTML or PNG.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline_service.commands.figures import write_figures
from paceline_service.commands.output import Format
from paceline_service.commands.run import EXIT_OK

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing, Section

PLAN = "paceline.plan/1"
SIMULATE = "paceline.simulate/1"
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
_WIDTH = 80
_WIDEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under heads; aligned right from the second column on.

    Attributes:
        title: above it; may be empty.
        heads: of the columns, with their units; a line break makes them narrow in a terminal.
        rows: as many cells each.
        marked: numbers of rows that stand out.
        plots: makes the drawings that HTML shows above the table.
        sentences: that HTML shows below it.
        text_only: numbers of columns that HTML leaves out: bars, which its plots have.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[int] = frozenset()
    plots: Callable[[], Sequence[Drawing]] = tuple
    sentences: Sequence[str] = ()
    text_only: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model says.

    Attributes:
        schema: PLAN or SIMULATE.
        model: the sub-command.
        title: one line.
        input: the arguments as they were understood: names with units, base units.
        given: the same in words, a line each, so that a mistaken unit is seen.
        values: what JSON has besides, by name.
        tables: of the text, and of HTML.
        meaning: what a newcomer should take away, a sentence or two each.
    """

    schema: str
    model: str
    title: str
    input: Mapping[str, Any]
    given: Sequence[str]
    values: Mapping[str, Any]
    tables: Sequence[Table]
    meaning: Sequence[str] = field(default=())


def give(
    answer: Answer, form: Format, *, html: Path | None = None, png: Path | None = None
) -> int:  # fmt: skip
    """Write the answer to stdout, and its plots where files are asked for; return the status.

    Raises:
        InputError: a file cannot be written.
    """
    lead = answer.meaning[0] if answer.meaning else ""
    write_figures(answer.title, lambda: _sections(answer), lead=lead, html=html, png=png)
    if form is Format.JSON:
        told = {"schema": answer.schema, "model": answer.model, "input": answer.input}
        told |= {**answer.values, "meaning": list(answer.meaning)}
        print(json.dumps(told, indent=2, allow_nan=False))
        return EXIT_OK
    _print(answer)
    return EXIT_OK


def _shown(table: Table, cells: Sequence[str]) -> list[str]:
    return [cell for place, cell in enumerate(cells) if place not in table.text_only]


def _sections(answer: Answer) -> list[Section]:
    from paceline_service.export.plots import Section

    shown = [
        Section(title=table.title or answer.title, plots=table.plots(),
                heads=[head.replace("\n", " ") for head in _shown(table, table.heads)],
                rows=[_shown(table, row) for row in table.rows], sentences=table.sentences)
        for table in answer.tables
    ]  # fmt: skip
    # The first sentence stands at the top.
    meaning = Section(title="What it means", sentences=answer.meaning[1:])
    return [*shown, *([meaning] if meaning.sentences else []),
            Section(title="What was assumed", sentences=answer.given)]  # fmt: skip


def _print(answer: Answer) -> None:
    if not sys.stdout.isatty():
        print("\n".join(text for text, _ in _lines(answer, _WIDTH)))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for text, style in _lines(answer, min(max(console.width, 60), _WIDEST)):
        console.print(Text(text, style=style))


def _lines(answer: Answer, width: int) -> Iterator[tuple[str, str]]:
    """Return lines and the style that each has in a terminal."""
    yield answer.title, "bold"
    for given in answer.given:
        for line in textwrap.wrap(given, width, initial_indent="  ", subsequent_indent="    "):
            yield line, "dim"
    for table in answer.tables:
        yield "", ""
        if table.title:
            yield table.title, "bold"
        yield from _table(table)
    for sentence in answer.meaning:
        yield "", ""
        for line in textwrap.wrap(sentence, width):
            yield line, "cyan" if sentence is answer.meaning[0] else ""


def _table(table: Table) -> Iterator[tuple[str, str]]:
    split = [head.split("\n") for head in table.heads]
    deep = max(len(parts) for parts in split)
    heads = [[parts[line] if line < len(parts) else "" for parts in split] for line in range(deep)]
    widths = [max(map(len, column)) for column in zip(*heads, *table.rows, strict=True)]
    for number, row in enumerate([*heads, *table.rows], start=-deep):
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{wide}}" for cell, wide in zip(row[1:], widths[1:], strict=True)]
        style = "dim" if number < 0 else "yellow" if number in table.marked else ""
        yield "  " + "  ".join(cells).rstrip(), style
