"""The file that says up to where a spool is delivered; wrong or missing, frames are sent twice."""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

_log = logging.getLogger("paceline.sidecar")
NAME = "ack"
_ACK = struct.Struct("<QQI")
"""Segment, offset behind the last acknowledged entry, CRC-32 of both."""


class AckFile:
    """Holds one place in the spool ``directory``.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, sizes: Mapping[int, int]) -> tuple[int, int]:
        """Return the place, or where the spool of these segments begins."""
        raw = os.pread(self._fd, _ACK.size, 0)
        if len(raw) == _ACK.size:
            segment, offset, crc = _ACK.unpack(raw)
            if crc == zlib.crc32(raw[:16]) and offset <= sizes.get(segment, -1):
                return segment, offset
        return min(sizes, default=0), 0

    def write(self, segment: int, offset: int) -> None:
        """Keep a place."""
        raw = _ACK.pack(segment, offset, zlib.crc32(_ACK.pack(segment, offset, 0)[:16]))
        try:
            os.pwrite(self._fd, raw, 0)
        except OSError as error:  # then a restart sends again what the collector knows
            _log.error("cannot note what was acknowledged: %s", error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
