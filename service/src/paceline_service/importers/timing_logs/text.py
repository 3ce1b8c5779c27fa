"""Lines of a log of text as somebody wrote them: without colours, launchers and progress bars.

Launchers put a label before each line: ``[rank3]:`` and ``[default3]:`` (torchrun), ``3: `` (srun
-l), ``node-7: `` (pdsh). Lines of several processes come mixed; the label tells them apart.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from paceline.dataclass import dataclass
from paceline_service.importers.faults import Faults
from paceline_service.importers.opening import open_binary

MAX_LINE_BYTES = 64 << 10
"""The rest of a longer line is left out: no statement about times is so long."""
_CHUNK_BYTES = 1 << 20
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BREAKS = re.compile(rb"[\r\n]+")
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_TELLING = (
    b"elapsed time per iteration", b"time (ms)", b"across ranks (ms)", b"train_step_timing in s",
    b"Rtt/Rnk", b"Etpt(TF)", b"Step Time :", b"iter time (s)", b"CurrSamplesPerSec=", b" ....",
    b"skipped=",
    b"world", b"Comm. Op", b"saving checkpoint", b"saved checkpoint", b"save-checkpoint",
    b"Saving model checkpoint", b"validation loss", b"evaluat", b"Evaluating",
)  # fmt: skip
"""Lines with none of these are parts of blocks, or of no interest; most lines of a log are such."""
_LABEL = re.compile(
    r"\s*(?:"
    r"\[(?:rank|Rank |RANK )(?P<rank>\d{1,7})\]: ?"
    r"|\[default(?P<local>\d{1,4})\]:"
    r"|(?P<task>\d{1,7}): "
    r"|(?P<host>(?!steps: )[A-Za-z][A-Za-z0-9._-]{0,62}): "
    r"|(?P<stamp>\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,:Z+-]*\]?\s)"
    r")"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; ``rank`` is the global rank that a launcher gave, else -1.

    ``stamp`` is the time of day before it, as it was written; empty where there is none.
    """

    number: int
    label: str
    rank: int
    text: str
    stamp: str = ""


class LogLines:
    """The lines of a log that may tell times.

    Args:
        path: the log.
        faults: what is wrong with it.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        self.all = False
        """Whether to give every line from the next one on: within a block the lines tell what they
        are by where they stand."""
        self._path = path
        self._faults = faults

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines; numbers count from 1."""
        number = 1
        for text in self._pieces():
            at = 0
            hits = _Hits(text)
            while at < len(text):
                if not self.all:
                    hit = hits.next(at)
                    begin = max(text.rfind(b"\n", at, hit), text.rfind(b"\r", at, hit), at - 1) + 1
                    number += text.count(b"\n", at, begin)
                    at = begin
                    if hit == len(text):
                        number += text.count(b"\n", at)
                        break
                found = _BREAKS.search(text, at)
                end, after = found.span() if found else (len(text), len(text))
                if end > at:
                    yield _labelled(number, text[at : min(end, at + MAX_LINE_BYTES)])
                number += text.count(b"\n", end, after)
                at = after

    def _pieces(self) -> Iterator[bytes]:
        """Yield the file in pieces that end with a line."""
        rest = b""
        with open_binary(self._path, self._faults.advanced) as file:
            first = True
            while True:
                try:
                    # Not read: of a damaged gzip file it would keep what is sound to itself.
                    chunk = file.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]
                except (EOFError, OSError, zlib.error) as error:
                    message = f"it breaks off or is damaged ({error}); what is before is used"
                    self._faults.add("truncated_file", self._path, None, message)
                    chunk = b""
                if first and chunk.startswith(_UTF16_MARKS):
                    message = "UTF-16; a log is read as UTF-8: convert it"
                    self._faults.add("encoding", self._path, 1, message)
                    return
                first = False
                if not chunk:
                    break
                joined = rest + chunk
                last = max(joined.rfind(b"\n"), joined.rfind(b"\r")) + 1
                if not last and len(joined) > MAX_LINE_BYTES:
                    rest = joined[:MAX_LINE_BYTES]  # one line beyond all measure
                    continue
                yield joined[:last]
                rest = joined[last:]
        if rest:
            yield rest


class _Hits:
    """Where the next telling word of a piece is; each word is looked for once."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._next = dict.fromkeys(_TELLING, -1)

    def next(self, at: int) -> int:
        """Return the first place from ``at`` on, the end where there is none."""
        first = len(self._text)
        for word, place in self._next.items():
            if place < at:
                found = self._text.find(word, at)
                place = self._next[word] = len(self._text) if found < 0 else found
            first = min(first, place)
        return first


def _labelled(number: int, raw: bytes) -> Line:
    """Take the labels of launchers off a line, one after the other."""
    text = _COLOURS.sub("", raw.decode("utf-8", "replace")).replace("\0", "")
    label, rank, stamp = "", -1, ""
    for _ in range(4):
        found = _LABEL.match(text)
        if found is None:
            break
        if found["stamp"] is None:
            label += found[0].strip()
        else:
            stamp = found["stamp"]
        if found["rank"] is not None:
            rank = int(found["rank"])
        text = text[found.end() :]
    return Line(number=number, label=label, rank=rank, text=text, stamp=stamp)
