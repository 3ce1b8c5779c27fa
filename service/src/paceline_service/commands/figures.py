"""``--html FILE`` and ``--png FILE`` of the verbs that compute from models."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import InputError
from paceline_service.commands.output import replacing

if TYPE_CHECKING:
    from paceline_service.export.plots import Section

HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write plots, as one self-contained file."),
]
PngOption = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE", help="Also write the plots as a picture (Pillow)."),
]


def write_figures(
    title: str,
    sections: Callable[[], Sequence[Section]],
    *,
    lead: str,
    html: Path | None,
    png: Path | None,
) -> None:
    """Write the plots where files are asked for; nothing is drawn, or imported, otherwise.

    Args:
        title: of the document.
        sections: makes what is shown.
        lead: what the reader should take away.
        html: the file, None where none is asked for.
        png: likewise; it has the drawings alone.

    Raises:
        InputError: a file cannot be written.
        ConfigError: a PNG is asked for and Pillow is not installed.
    """
    if html is None and png is None:
        return
    for option, file_path in (("--html", html), ("--png", png)):
        if file_path is not None and file_path.is_dir():
            raise InputError(f"{option} is {str(file_path)!r}, a folder: give the name of a file")
    from paceline_service.export.plots import Drawing, page

    shown = sections()
    if html is not None:
        asked = shlex.join(["paceline", *sys.argv[1:]])
        text = page(title, shown, lead=lead, asked=asked, made_wall_ns=time.time_ns())
        with replacing(html) as file:
            file.write(text.encode())
    if png is not None:
        from paceline_service.export.plots.png import png as picture

        drawings = [plot for one in shown for plot in one.plots if isinstance(plot, Drawing)]
        if not drawings:
            raise InputError(f"--png {png}: there is no plot in this answer; --html has the table")
        with replacing(png) as file:
            file.write(picture(drawings))
