"""The control block of a ring: what the sidecar asks of its writer (docs/control.md).

The sidecar maps the header page alone, and stores the generation last. The writer looks at the
generation when a step ends, and reads the rest only when that word has changed.
"""

from __future__ import annotations

import mmap
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import RingError
from paceline.ring import layout as at
from paceline.settings import LEVELS

CONTROL_BYTES = at.CONTROL_CRC_OFFSET + at.U32.size - at.CONTROL_OFFSET
MAX_STRIDE = 10_000
MAX_STEP = (1 << 32) - 1
"""The step of a record has 32 bits."""
MAX_GENERATION = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is recorded from ``effective_step`` on."""

    generation: int
    """Tells settings of one job apart, and is never 0."""
    effective_step: int
    level: str
    stride: int
    """Steps whose number it divides are kept whole; of the others only their times."""

    @property
    def is_sound(self) -> bool:
        """Whether every value is in its range."""
        return (
            1 <= self.generation <= MAX_GENERATION
            and 0 <= self.effective_step <= MAX_STEP
            and self.level in LEVELS
            and 1 <= self.stride <= MAX_STRIDE
        )


def pack_control(setting: Setting) -> bytes:
    """Return ``setting`` as a control block, checksum included."""
    fields = at.CONTROL.pack(
        setting.generation, setting.effective_step, LEVELS.index(setting.level), setting.stride
    )
    return fields + at.U32.pack(zlib.crc32(fields))


def unpack_control(block: bytes) -> Setting | None:
    """Return what a control block says; None where it is torn, or out of range."""
    fields = block[: at.CONTROL.size]
    if at.U32.unpack_from(block, at.CONTROL.size)[0] != zlib.crc32(fields):
        return None
    generation, effective_step, level, stride = at.CONTROL.unpack(fields)
    if level >= len(LEVELS):
        return None
    setting = Setting(
        generation=generation, effective_step=effective_step, level=LEVELS[level], stride=stride
    )
    return setting if setting.is_sound else None


def write_control(path: Path, incarnation: bytes, setting: Setting) -> None:
    """Ask the writer of a ring to follow ``setting``; from another process than the writer's.

    Args:
        path: of the ring.
        incarnation: of the ring that is meant: another one may have taken its name.
        setting: what to ask for.

    Raises:
        RingError: the file cannot be written by this user, or is not that ring.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RingError(f"cannot write to the ring {path}: {error}") from error
    try:
        page = _map_header(file, path)
    finally:
        os.close(file)
    with page:
        if not _is_ring(page[: at.STATIC_CRC_OFFSET + at.U32.size], incarnation):
            raise RingError(f"{path} is not the ring that a setting was meant for")
        block = pack_control(setting)
        with memoryview(page) as whole, whole.cast("Q") as words:
            rest = at.CONTROL_OFFSET + at.U64.size
            whole[rest : at.CONTROL_OFFSET + CONTROL_BYTES] = block[at.U64.size :]
            words[at.CONTROL_OFFSET // 8] = setting.generation


def _map_header(file: int, path: Path) -> mmap.mmap:
    try:
        if os.fstat(file).st_size < at.HEADER_BYTES:
            raise RingError(f"{path} is shorter than the header of a ring")
        return mmap.mmap(file, at.HEADER_BYTES)
    except (OSError, ValueError) as error:
        raise RingError(f"cannot map the header of {path}: {error}") from error


def _is_ring(header: bytes, incarnation: bytes) -> bool:
    fields = at.STATIC.unpack_from(header)
    stored = at.U32.unpack_from(header, at.STATIC_CRC_OFFSET)[0]
    return (
        fields[:2] == (at.MAGIC, at.VERSION)
        and stored == zlib.crc32(header[: at.STATIC_CRC_OFFSET])
        and incarnation in fields
    )
