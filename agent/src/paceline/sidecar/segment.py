"""The entries of a spool segment: a frame and the progress it stands for (docs/sidecar.md)."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.sidecar.progress import Progress

MAGIC = b"PLSE"
VERSION = 1
FRAME = 1
CHECKPOINT = 2
SECOND_RINGS = 3
"""How far second rings were used up by the frame behind it; as JSON, by incarnation."""
BUNDLE = 4
"""Frames of several rings in one; before it, as JSON, the progress of each that it stands for."""
ENDED = 1
ENTRY = struct.Struct("<4sBBHII16sQQII")
"""magic, version, kind, 0, body bytes, CRC-32 of all that follows; incarnation, frame_seq,
ring tail behind the frame, records in it, flags (1 = last frame of its incarnation)."""
_CRC_FROM = 16
MAX_BODY_BYTES = 8 << 20
_LENGTH = struct.Struct("<I")
_NAME = re.compile(r"(\d{16})\.seg\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far one ring has come with an entry."""

    incarnation: str
    frame_seq: int
    ring_tail: int
    records: int
    ended: bool
    also: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry and where it lies in its segment."""

    kind: int
    start: int
    end: int
    incarnation: str
    frame_seq: int
    ring_tail: int
    records: int
    ended: bool
    body: bytes
    marks: tuple[Mark, ...] = ()
    """Of a bundle: the rings in it. Its ``incarnation`` is that of its stream."""

    @property
    def is_sent(self) -> bool:
        """Whether it goes to the collector."""
        return self.kind in (FRAME, BUNDLE)

    @property
    def losses(self) -> list[tuple[str, int]]:
        """Return the incarnations, and the records of each, that are lost with it."""
        if self.kind == BUNDLE:
            return [(mark.incarnation, mark.records) for mark in self.marks]
        return [(self.incarnation, self.records)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A stretch of a segment in which no whole entry lies; at the end of data it may be a tail."""

    start: int
    end: int


def segment_name(number: int) -> str:
    """Return the file name of segment ``number``."""
    return f"{number:016d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """Return the numbers of the segments in ``directory``, ascending."""
    return sorted(int(match[1]) for p in directory.iterdir() if (match := _NAME.match(p.name)))


def frame_entry(
    frame: bytes,
    *,
    incarnation: str,
    frame_seq: int,
    ring_tail: int,
    records: int,
    ended: bool,
    also: Mapping[str, int],
) -> bytes:
    """Return the entry of one encoded frame, behind one for its second rings if there are any."""
    flags = ENDED if ended else 0
    fields = (bytes.fromhex(incarnation), frame_seq, ring_tail, records, flags)
    before = b""
    if also:
        body = json.dumps(also, separators=(",", ":")).encode()
        before = _entry(SECOND_RINGS, body, (fields[0], 0, 0, 0, 0))
    return before + _entry(FRAME, frame, fields)


def bundle_entry(bundle: bytes, *, stream: str, seq: int, marks: Sequence[Mark]) -> bytes:
    """Return the entry of one encoded bundle."""
    table = json.dumps(
        [[m.incarnation, m.frame_seq, m.ring_tail, m.records, m.ended, m.also] for m in marks],
        separators=(",", ":"),
    ).encode()
    records = sum(mark.records for mark in marks)
    body = _LENGTH.pack(len(table)) + table + bundle
    return _entry(BUNDLE, body, (bytes.fromhex(stream), seq, 0, records, 0))


def checkpoint_entry(progress: dict[str, Progress]) -> bytes:
    """Return an entry that says how far every followed ring has come."""
    table = {
        incarnation: [p.next_seq, p.ring_tail, p.ended, p.dropped, p.also]
        for incarnation, p in progress.items()
    }
    body = json.dumps(table, separators=(",", ":")).encode()
    return _entry(CHECKPOINT, body, (bytes(16), 0, 0, 0, 0))


def read_checkpoint(body: bytes) -> dict[str, Progress]:
    """Return what ``checkpoint_entry`` wrote."""
    return {
        incarnation: Progress(
            next_seq=next_seq,
            ring_tail=tail,
            ended=ended,
            dropped=dict(dropped),
            also=dict(also[0]) if also else {},
        )
        for incarnation, (next_seq, tail, ended, dropped, *also) in json.loads(body).items()
    }


def entries(data: bytes, base: int = 0) -> Iterator[Entry | Damage]:
    """Yield what lies in ``data``, which begins at offset ``base`` of its segment.

    What is no whole entry is yielded as ``Damage``, and the next entry behind it is searched.
    """
    at = 0
    while at < len(data):
        entry = _read(data, at, base)
        if entry is not None:
            yield entry
            at = entry.end - base
            continue
        resume = data.find(MAGIC, at + 1)
        while resume >= 0 and _read(data, resume, base) is None:
            resume = data.find(MAGIC, resume + 1)
        end = resume if resume >= 0 else len(data)
        yield Damage(start=base + at, end=base + end)
        at = end


def _entry(kind: int, body: bytes, fields: tuple[bytes, int, int, int, int]) -> bytes:
    head = ENTRY.pack(MAGIC, VERSION, kind, 0, len(body), 0, *fields)
    crc = zlib.crc32(body, zlib.crc32(head[_CRC_FROM:]))
    return ENTRY.pack(MAGIC, VERSION, kind, 0, len(body), crc, *fields) + body


def _read(data: bytes, at: int, base: int) -> Entry | None:
    if len(data) - at < ENTRY.size:
        return None
    magic, version, kind, _, body_bytes, crc, incarnation, seq, tail, records, flags = (
        ENTRY.unpack_from(data, at)
    )
    end = at + ENTRY.size + body_bytes
    if magic != MAGIC or version != VERSION or body_bytes > MAX_BODY_BYTES or end > len(data):
        return None
    body = data[at + ENTRY.size : end]
    if zlib.crc32(body, zlib.crc32(data[at + _CRC_FROM : at + ENTRY.size])) != crc:
        return None
    marks: tuple[Mark, ...] = ()
    if kind == BUNDLE:
        marks, body = _split_marks(body)
    return Entry(
        kind=kind,
        start=base + at,
        end=base + end,
        incarnation=incarnation.hex(),
        frame_seq=seq,
        ring_tail=tail,
        records=records,
        ended=bool(flags & ENDED),
        body=body,
        marks=marks,
    )


def _split_marks(body: bytes) -> tuple[tuple[Mark, ...], bytes]:
    """Return the marks and the bundle of an entry; its checksum was right."""
    (size,) = _LENGTH.unpack_from(body)
    first = _LENGTH.size + size
    marks = tuple(
        Mark(
            incarnation=incarnation,
            frame_seq=seq,
            ring_tail=tail,
            records=records,
            ended=ended,
            also=also,
        )
        for incarnation, seq, tail, records, ended, also in json.loads(body[_LENGTH.size : first])
    )
    return marks, body[first:]
