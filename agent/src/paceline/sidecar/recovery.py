"""What a spool directory holds when a sidecar starts: sizes, and how far each ring had come."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import WireError
from paceline.sidecar.progress import Progress
from paceline.sidecar.segment import (
    BUNDLE,
    CHECKPOINT,
    FRAME,
    SECOND_RINGS,
    Damage,
    Entry,
    entries,
    read_checkpoint,
    segment_name,
    segment_numbers,
)
from paceline.wire.bundle_codec import decode_any
from paceline.wire.bundles import Bundle

_log = logging.getLogger("paceline.sidecar")
SIDECAR_REASONS = frozenset(
    {
        "ring_overwritten",
        "ring_torn",
        "unencodable",
        "spool_full",
        "collector_refused",
        "nccl_unjoined",
    }
)
"""Losses that the sidecar counts itself; the others are read from the ring each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The segments of a spool and the progress that they stand for."""

    sizes: dict[int, int]
    progress: dict[str, Progress]


def recover(directory: Path) -> Recovered:
    """Read every segment of ``directory``; a damaged tail is cut off and reported."""
    sizes: dict[int, int] = {}
    progress: dict[str, Progress] = {}
    newest: dict[str, bytes] = {}
    for number in segment_numbers(directory):
        path = directory / segment_name(number)
        data = path.read_bytes()
        sizes[number] = len(data)
        for entry in entries(data):
            if isinstance(entry, Damage):
                _log.warning(
                    "%d bytes of the spool segment %s are damaged; the frames in them are lost",
                    entry.end - entry.start,
                    path.name,
                )
                if entry.end == len(data):
                    os.truncate(path, entry.start)
                    sizes[number] = entry.start
            elif entry.kind == CHECKPOINT:
                progress = read_checkpoint(entry.body)
                newest.clear()
            elif entry.kind == SECOND_RINGS:
                progress.setdefault(entry.incarnation, Progress()).also = json.loads(entry.body)
            elif entry.kind == BUNDLE:
                for mark in entry.marks:
                    one = progress.setdefault(mark.incarnation, Progress())
                    one.move(mark.frame_seq, mark.ring_tail, ended=mark.ended, also=mark.also)
                    newest[mark.incarnation] = entry.body
            elif entry.kind == FRAME:
                _move(progress, entry)
                newest[entry.incarnation] = entry.body
    for incarnation, packed in newest.items():
        _restore_losses(progress[incarnation], packed, incarnation)
    return Recovered(sizes=sizes, progress=progress)


def _move(progress: dict[str, Progress], entry: Entry) -> None:
    one = progress.setdefault(entry.incarnation, Progress())
    one.next_seq = entry.frame_seq + 1
    one.ring_tail = entry.ring_tail
    one.ended = entry.ended


def _restore_losses(progress: Progress, packed: bytes, incarnation: str) -> None:
    try:
        told = decode_any(packed)
    except WireError as error:
        _log.warning("cannot read back the losses so far: %s", error)
        return
    dropped = _dropped_of(told, incarnation) if isinstance(told, Bundle) else told.dropped
    for reason in SIDECAR_REASONS & dropped.keys():
        progress.dropped[reason] = max(dropped[reason], progress.dropped.get(reason, 0))


def _dropped_of(bundle: Bundle, incarnation: str) -> dict[str, int]:
    if incarnation not in bundle.origin.incarnations:
        return {}
    extra = bundle.body.extras.get(bundle.origin.incarnations.index(incarnation))
    return extra.dropped if extra is not None else {}
