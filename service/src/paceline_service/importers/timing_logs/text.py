"""Lines of a log of text as somebody wrote them: without colours, launchers and progress bars.

Launchers put a label before each line: ``[rank3]:`` and ``[default3]:`` (torchrun), ``3: `` (srun
-l), ``node-7: `` (pdsh). Lines of several processes come mixed; the label tells them apart.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline_service.importers.faults import Faults
from paceline_service.importers.lines import open_binary

MAX_LINE_BYTES = 64 << 10
"""The rest of a longer line is left out: no statement about times is so long."""
_CHUNK_BYTES = 1 << 20
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BREAKS = re.compile(rb"[\r\n]+")
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_TELLING = re.compile(
    rb"iteration|time|rank |Rank |rank=|step|\.\.\.|: \(|world|Rtt/|Etpt|[Ll]atency|straggler|"
    rb"-[a-z]+:\s*$|optimizer:\s*$|[KMGT]?B  |checkpoint|validation|[Cc]omm|_size|^\s*(?:\S+: )?"
    rb"[a-z_]*(?:reduce|gather|scatter|cast|send|recv|barrier|all_to_all)"
)
"""Lines with none of this are of no interest; most lines of a log are such."""
_LABEL = re.compile(
    r"\s*(?:"
    r"\[(?:rank|Rank |RANK )(?P<rank>\d{1,7})\]: ?"
    r"|\[default(?P<local>\d{1,4})\]:"
    r"|(?P<task>\d{1,7}): "
    r"|(?P<host>[A-Za-z][A-Za-z0-9._-]{0,62}): (?=[\s\[]|\w+ time|iteration)"
    r"|(?P<stamp>\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,:Z+-]*\]?\s)"
    r")"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; ``rank`` is the global rank that a launcher gave, else -1."""

    number: int
    label: str
    rank: int
    text: str


def read_lines(path: Path, faults: Faults) -> Iterator[Line]:
    """Yield the lines of ``path`` that may tell times; numbers count from 1."""
    number = 0
    for raw, ended in _segments(path, faults):
        if raw and _TELLING.search(raw):
            text = _COLOURS.sub("", raw.decode("utf-8", "replace")).replace("\0", "")
            yield _labelled(number + 1, text)
        number += ended


def _labelled(number: int, text: str) -> Line:
    """Take the labels of launchers off a line, one after the other."""
    label, rank = "", -1
    for _ in range(4):
        found = _LABEL.match(text)
        if found is None:
            break
        if found["stamp"] is None:
            label += found[0].strip()
        if found["rank"] is not None:
            rank = int(found["rank"])
        text = text[found.end() :]
    return Line(number=number, label=label, rank=rank, text=text)


def _segments(path: Path, faults: Faults) -> Iterator[tuple[bytes, int]]:
    """Yield what is between line breaks, and how many lines end with it."""
    rest, number = b"", 1
    with open_binary(path) as file:
        first = True
        while True:
            try:
                chunk = file.read(_CHUNK_BYTES)
            except (EOFError, OSError, zlib.error) as error:
                message = f"it breaks off or is damaged ({error}); what is before is used"
                faults.add("truncated_file", path, number, message)
                chunk = b""
            if first and chunk.startswith(_UTF16_MARKS):
                faults.add("encoding", path, 1, "UTF-16; a log is read as UTF-8: convert it")
                return
            first = False
            if not chunk:
                break
            start, joined = 0, rest + chunk
            for found in _BREAKS.finditer(joined):
                ended = found[0].count(b"\n")
                yield joined[start : found.start()][:MAX_LINE_BYTES], ended
                start, number = found.end(), number + ended
            rest = joined[start:][:MAX_LINE_BYTES]
    if rest:
        yield rest, 1
