"""A process that reads traces for another one, which gives it paths and takes pieces.

Both ways go frames: four bytes of length, then a letter and what it stands for. The process ends
when nobody gives it paths any more, also because the one that started it has died.
"""

from __future__ import annotations

import os
import struct
import sys
import traceback
from pathlib import Path
from typing import IO, Any

import msgspec

from paceline.errors import InputError
from paceline_service.importers.kineto.pieces import Piece, read_pieces

PATH, PIECE, LAST, REFUSED, FAILED = b"F", b"P", b"L", b"R", b"X"
_LENGTH = struct.Struct("<I")
_MAX_INT = 1 << 63


def main() -> None:
    """Serve until there are no more paths."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        while (frame := read_frame(source)) is not None:
            _read(Path(os.fsdecode(frame[1])), sink)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())


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


def _read(path: Path, sink: IO[bytes]) -> None:
    try:
        for piece in read_pieces(path):
            write_frame(sink, PIECE if piece.metadata is None else LAST, _encoded(piece))
    except InputError as error:
        write_frame(sink, REFUSED, str(error).encode(errors="replace"))
    except BrokenPipeError:
        raise
    except Exception:
        write_frame(sink, FAILED, traceback.format_exc().encode(errors="replace"))


def _encoded(piece: Piece) -> bytes:
    try:
        return msgspec.msgpack.encode(piece)
    except (OverflowError, UnicodeEncodeError):
        return msgspec.msgpack.encode(_sendable(msgspec.to_builtins(piece, builtin_types=(bytes,))))


def _sendable(value: Any) -> Any:
    """Return a value without numbers and letters that no other process understands."""
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if not isinstance(value, int) or abs(value) < _MAX_INT else None
