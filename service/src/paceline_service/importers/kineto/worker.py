"""A process that reads traces for another one, which gives it paths and takes pieces.

It ends when nobody gives it paths any more, also because the one that started it has died.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import IO

from paceline.errors import InputError
from paceline_service.importers.kineto.frames import (
    FAILED,
    LAST,
    PIECE,
    REFUSED,
    packed,
    read_frame,
    write_frame,
)
from paceline_service.importers.kineto.pieces import read_pieces

_COLLECT_EVERY = 100_000
"""Objects, instead of 700: events refer to nothing that refers to them."""


def main() -> None:
    """Serve stdin and stdout."""
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Serve until there are no more paths.

    Raises:
        BrokenPipeError: nobody wants the pieces any more.
    """
    gc.set_threshold(_COLLECT_EVERY)
    while (frame := read_frame(source)) is not None:
        _read(Path(os.fsdecode(frame[1])), sink)


def _read(path: Path, sink: IO[bytes]) -> None:
    try:
        for piece in read_pieces(path):
            write_frame(sink, PIECE if piece.metadata is None else LAST, packed(piece))
    except InputError as error:
        write_frame(sink, REFUSED, str(error).encode(errors="replace"))
    except BrokenPipeError:
        raise
    except Exception:
        write_frame(sink, FAILED, traceback.format_exc().encode(errors="replace"))
