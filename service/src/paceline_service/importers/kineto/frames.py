"""What goes between a process that reads traces and the one that wants them.

Both ways go frames: four bytes of length, then a letter and what it stands for.
"""

from __future__ import annotations

import marshal
import struct
from typing import IO

from paceline_service.importers.kineto.piece import Piece

PATH, PIECE, LAST, REFUSED, FAILED = b"F", b"P", b"L", b"R", b"X"
_LENGTH = struct.Struct("<I")


def write_frame(sink: IO[bytes], letter: bytes, content: bytes) -> None:
    """Write one frame."""
    sink.write(_LENGTH.pack(len(content) + 1) + letter)
    sink.write(content)
    sink.flush()


def read_frame(source: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return letter and content of the next frame; None when there is no whole one any more."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    frame = source.read(length)
    return (frame[:1], frame[1:]) if len(frame) == length else None


def packed(piece: Piece) -> bytes:
    """Return a piece as bytes, for a process of the same Python."""
    return marshal.dumps(piece.plain())


def unpacked(content: bytes) -> Piece:
    """Return the piece that ``packed`` packed; only for what a process of one's own has sent."""
    return Piece(*marshal.loads(content))
