"""Lines of a plain or gzip file, never more of it in memory than one line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from paceline.errors import InputError
from paceline_service.importers.faults import Faults, place

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_LINE_BYTES = 8 << 20
"""The header of 100,000 ranks in five dimensions takes 4 MB; more is no event log."""
MAX_BLANK_BYTES = 64 << 20
"""Blank lines of one file, unpacked; a small gzip file can hold gigabytes of them."""
MAX_UNPACKED_RATIO = 100
"""An event log is 5 to 20 times as long as its gzip file; gigabytes of one line are 150 to 1,000
times."""
_ALWAYS_UNPACKED_BYTES = 64 << 20
_COUNTED_BYTES = 1 << 17
"""Of one read that is told; a call for each 8 KiB would cost more than it shows."""
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_decode = msgspec.json.Decoder().decode


@contextmanager
def open_binary(path: Path, advanced: Callable[[int], None] | None = None) -> Iterator[BinaryIO]:
    """Open ``path``, unpacked when its content (not its name) is gzip, behind a mark of UTF-8.

    Args:
        path: a regular file.
        advanced: told of every read how many bytes of the file it took, still packed.

    Raises:
        InputError: it cannot be opened, or is no regular file.
    """
    if not path.is_file():
        # A pipe or a device could block for ever, or never end.
        problem = "is no regular file" if path.exists() else "does not exist"
        raise InputError(f"{path} {problem}")
    try:
        with _opened(path, advanced) as raw:
            begin = raw.peek(len(_UTF8_MARK))
            if not begin.startswith(_GZIP_MAGIC):
                if begin.startswith(_UTF8_MARK):
                    raw.read(len(_UTF8_MARK))
                yield raw
                return
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield cast(BinaryIO, unpacked)
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


class _Counted(io.FileIO):
    """Tells of each read of a file how much it took."""

    def __init__(self, path: Path, advanced: Callable[[int], None]) -> None:
        super().__init__(path, "rb")
        self._advanced = advanced

    def readinto(self, buffer: Buffer) -> int:
        count = super().readinto(buffer)
        self._advanced(count)
        return count


def _opened(path: Path, advanced: Callable[[int], None] | None) -> io.BufferedReader:
    if advanced is None:
        return path.open("rb")
    return io.BufferedReader(_Counted(path, advanced), _COUNTED_BYTES)


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
                text = text.removeprefix(_UTF8_MARK)
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
