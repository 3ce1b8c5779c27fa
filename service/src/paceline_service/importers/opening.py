"""Files as bytes: plain or unpacked, counted as they are read, never more than is honest."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from paceline.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_UNPACKED_RATIO = 300
"""Of whatever is read; formats have lower limits of their own. A bomb is 1,000 times its size."""
_ALWAYS_UNPACKED_BYTES = 128 << 20
_PIECE_BYTES = 1 << 17
"""Of one read that is told; a call for each 8 KiB would cost more than it shows."""
GZIP_MAGIC = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"


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
            begin = raw.peek(len(UTF8_MARK))
            if not begin.startswith(GZIP_MAGIC):
                if begin.startswith(UTF8_MARK):
                    raw.read(len(UTF8_MARK))
                yield raw
                return
            with _Unpacked(raw, path.stat().st_size) as unpacked:
                yield io.BufferedReader(unpacked, _PIECE_BYTES)
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


class _Unpacked(io.RawIOBase):
    """What a gzip file holds; reading raises ``OSError`` where that is a bomb."""

    def __init__(self, packed: BinaryIO, packed_bytes: int) -> None:
        self._file = gzip.GzipFile(fileobj=packed)
        self._left_bytes = max(_ALWAYS_UNPACKED_BYTES, MOST_UNPACKED_RATIO * packed_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        # Bit by bit, so that what comes before a damaged place is not lost with it.
        piece = self._file.read1(len(view))
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise OSError(f"it unpacks to over {MOST_UNPACKED_RATIO} times its size")
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(path: Path, advanced: Callable[[int], None] | None) -> io.BufferedReader:
    if advanced is None:
        return path.open("rb")
    return io.BufferedReader(_Counted(path, advanced), _PIECE_BYTES)
