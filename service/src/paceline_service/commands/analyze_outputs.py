"""Which forms of an answer ``paceline analyze`` is asked for, and where each goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from paceline.dataclass import dataclass
from paceline.errors import InputError

_BY_NAME = (
    (".html", "html"), (".htm", "html"), (".csv", "csv"),
    (".perfetto.json", "perfetto"), (".perfetto.json.gz", "perfetto"),
    (".trace.json", "perfetto"), (".trace.json.gz", "perfetto"), (".json", "json"),
)  # fmt: skip


class AnalyzeFormat(str, Enum):
    """How an answer about files is written."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    CSV = "csv"
    PERFETTO = "perfetto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One form of the answer; ``path`` None is stdout."""

    form: AnalyzeFormat
    path: Path | None

    @property
    def needs_steps(self) -> bool:
        """Whether it shows more than the report."""
        return self.form in (AnalyzeFormat.HTML, AnalyzeFormat.CSV, AnalyzeFormat.PERFETTO)


def chosen_outputs(form: AnalyzeFormat | None, files: Sequence[Path]) -> list[Output]:
    """Return what is to be written: each file in the form that ``form``, else its name says.

    Raises:
        InputError: the forms contradict each other, or one is for files only.
    """
    if not files:
        chosen = form or AnalyzeFormat.TEXT
        if chosen is AnalyzeFormat.PERFETTO:
            raise InputError("--format perfetto is written to a file: give -o FILE.perfetto.json")
        if chosen is AnalyzeFormat.HTML and sys.stdout.isatty():
            raise InputError("--format html is for a file, not a terminal: give -o FILE.html")
        return [Output(form=chosen, path=None)]
    if form is not None and len(files) > 1:
        raise InputError(
            f"--format {form.value} for {len(files)} files; leave it out, and the name of each "
            "says its form (.html, .json, .csv, .perfetto.json.gz, else text)"
        )
    doubled = [str(path) for path in files if files.count(path) > 1]
    if doubled:
        raise InputError(f"-o {doubled[0]} is given twice")
    return [Output(form=form or form_of(path), path=path) for path in files]


def form_of(path: Path) -> AnalyzeFormat:
    """Return the form that the name of a file says; text where it says none."""
    name = path.name.lower()
    return AnalyzeFormat(next((form for end, form in _BY_NAME if name.endswith(end)), "text"))
