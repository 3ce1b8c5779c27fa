"""Lines of a plain or gzip file, never more of it in memory than one line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from paceline.errors import InputError
from paceline_service.importers.faults import Faults, place
from paceline_service.importers.opening import UTF8_MARK, open_binary

MAX_LINE_BYTES = 8 << 20
"""The header of 100,000 ranks in five dimensions takes 4 MB; more is no event log."""
MAX_BLANK_BYTES = 64 << 20
"""Blank lines of one file, unpacked; a small gzip file can hold gigabytes of them."""
MAX_UNPACKED_RATIO = 100
"""An event log is 5 to 20 times as long as its gzip file; gigabytes of one line are 150 to 1,000
times."""
_ALWAYS_UNPACKED_BYTES = 64 << 20
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_decode = msgspec.json.Decoder().decode


def read_objects(path: Path, faults: Faults) -> Iterator[tuple[int, object]]:
    """Yield the number (from 1) and the decoded JSON of each line of ``path``.

    What is no JSON is counted in ``faults`` and left out. A file that breaks off, or holds a line
    over ``MAX_LINE_BYTES``, is read up to there.

    Raises:
        InputError: the file cannot be opened.
    """
    number, blank_bytes, unpacked_bytes = 0, 0, 0
    with open_binary(path, faults.advanced) as file:
        most_bytes = max(_ALWAYS_UNPACKED_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size)
        while True:
            number += 1
            try:
                text = file.readline(MAX_LINE_BYTES + 1)
            except (EOFError, OSError, zlib.error) as error:
                faults.add("truncated_file", path, number, f"{_why(error)}; what is before is used")
                return
            if not text:
                return
            if number == 1:
                if text.startswith(_UTF16_MARKS):
                    faults.add("encoding", path, 1, "UTF-16; an event log is UTF-8: convert it")
                    return
                text = text.removeprefix(UTF8_MARK)
            if len(text) > MAX_LINE_BYTES:
                message = f"longer than {MAX_LINE_BYTES} bytes, so it and the rest are left out"
                faults.add("line_too_long", path, number, message)
                return
            unpacked_bytes += len(text)
            if unpacked_bytes > most_bytes:
                message = (
                    f"it unpacks to more than {MAX_UNPACKED_RATIO} times its size, which no event "
                    "log does; what is before is used"
                )
                faults.add("too_long", path, number, message)
                return
            if text.isspace():
                blank_bytes += len(text)
                if blank_bytes > MAX_BLANK_BYTES:
                    message = f"over {MAX_BLANK_BYTES} bytes of blank lines; the rest is left out"
                    faults.add("line_too_long", path, number, message)
                    return
                continue
            try:
                yield number, _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                torn = not text.endswith(b"\n")
                faults.add(
                    "torn_line" if torn else "no_json",
                    path,
                    number,
                    "the file ends within this line" if torn else f"no JSON: {error}",
                )


def first_object(path: Path) -> object:
    """Return the decoded first line that is not blank.

    Raises:
        InputError: the file is empty, or that line is no JSON.
    """
    faults = Faults()
    for _, value in read_objects(path, faults):
        return None if faults.counts else value
    if faults.counts:
        raise InputError(faults.notes()[0])
    raise InputError(f"{place(path, None)} is empty; the first line of an event log is its header")


def _why(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip file is truncated"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return f"the gzip file is corrupt ({error})"
    return f"it cannot be read on ({error})"
