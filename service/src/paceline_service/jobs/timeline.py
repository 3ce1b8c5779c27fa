"""``/timeline``: some steps of an attempt as a Chrome trace, made from its stored frames.

Frames are stored before they are analysed, so the store holds all that memory holds.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from paceline.errors import InputError
from paceline.ranks import format_ranks
from paceline_service.errors import NotKeptError
from paceline_service.export.perfetto import trace_chunks
from paceline_service.export.timeline.choice import telling_ranks
from paceline_service.export.timeline.drawing import draw
from paceline_service.jobs.feed import DecodeRecords
from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.service import JobService
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.jobs.source import FrameSource
from paceline_service.jobs.timeline_window import Window, read_window
from paceline_service.store.models import RankIncarnation

DEFAULT_STEPS = 20
MAX_STEPS = 1000
MAX_CELLS = 20_000
"""Steps times ranks of one timeline."""
MAX_RANKS = 1024
CHUNK_BYTES = 1 << 16
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which steps and ranks a timeline is asked for."""

    first: int | None = None
    last: int | None = None
    ranks: tuple[int, ...] | None = None
    limit: int = DEFAULT_STEPS


class Timelines:
    """Makes timelines, one at a time: each takes memory for half a million records."""

    def __init__(self, service: JobService, source: FrameSource, decode: DecodeRecords) -> None:
        self._service = service
        self._source = source
        self._decode = decode
        self._turn = asyncio.Semaphore(1)

    async def make(self, row: AttemptRow, asked: Asked) -> bytes:
        """Return the trace as gzipped JSON.

        Raises:
            InputError: the steps are not of this attempt, or too many ranks are asked for.
            NotKeptError: of these steps no raw frames are kept.
        """
        snapshot = await self._service.snapshot(row)
        ranks = _ranks(asked, snapshot)
        first, last, wanted = _steps(asked, snapshot, len(ranks))
        async with self._turn:
            window = await read_window(
                row.ref,
                self._source.page,
                self._decode,
                first=first,
                last=last,
                newest_frame_id=row.last_frame_id,
                restarted=await self._has_restarted(row),
                run=_in_thread,
            )
            if not window.records:
                raise NotKeptError(
                    f"of steps {first} to {last} of job {row.ref.job!r} no raw frames are kept: "
                    "retention deleted them, or nothing was recorded; ask for newer steps"
                )
            return await asyncio.to_thread(_render, window, ranks, wanted)

    async def _has_restarted(self, row: AttemptRow) -> bool:
        """Whether some rank had more than one process in this attempt."""
        query = (
            select(func.count())
            .where(RankIncarnation.attempt_id == row.ref.id)
            .group_by(RankIncarnation.rank, RankIncarnation.producer)
            .having(func.count() > 1)
            .limit(1)
        )
        async with self._service.database.read() as connection:
            return (await connection.execute(query)).first() is not None


async def _in_thread(work: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(work)


def unpacked(packed: bytes) -> Iterator[bytes]:
    """Yield the JSON of a timeline for a client that does not take gzip."""
    unpacker = zlib.decompressobj(31)
    data = packed
    while data:
        if chunk := unpacker.decompress(data, CHUNK_BYTES):
            yield chunk
        data = unpacker.unconsumed_tail
    if chunk := unpacker.flush():
        yield chunk


def _render(window: Window, ranks: Sequence[int], wanted: tuple[int, int]) -> bytes:
    drawing, told = draw(window.job, window.steps, ranks, window.first)
    attempt = window.attempt
    cut = told["last_step"] < wanted[1] or len(ranks) < attempt.world_size
    other: Json = {
        "schema": "paceline.timeline/1",
        "job": attempt.job,
        "attempt": attempt.ordinal,
        "world_size": attempt.world_size,
        "ranks": format_ranks(list(ranks)),
        "asked": {"from": wanted[0], "to": wanted[1]},
        "cut": cut,
        "next_from": told["last_step"] + 1 if told["last_step"] < wanted[1] else None,
        **told,
        "records": window.records,
        "unusable": window.unusable,
        "lagging": format_ranks(window.lagging),
    }
    packer = zlib.compressobj(3, zlib.DEFLATED, 31)
    parts = [packer.compress(chunk) for chunk in trace_chunks(drawing, other)]
    return b"".join([*parts, packer.flush()])


def _steps(asked: Asked, snapshot: Snapshot, ranks: int) -> tuple[int, int, tuple[int, int]]:
    """Return the first and the last step to read, and those that were asked for."""
    newest = snapshot.last_step
    if newest < 0:
        raise NotKeptError("no step of this attempt is analysed yet; ask again when there are some")
    if asked.first is not None and asked.first > newest:
        raise InputError(f"from={asked.first}: the newest step is {newest}")
    last = newest if asked.last is None else min(asked.last, newest)
    first = asked.first
    if first is None:
        first = max(last - asked.limit + 1, 0)
    elif asked.last is None:
        last = min(first + asked.limit - 1, newest)
    if first > last:
        raise InputError(f"from={first} is behind to={last}; give from <= to")
    most = max(min(asked.limit, MAX_CELLS // ranks), 1)
    return first, min(last, first + most - 1), (first, last)


def _ranks(asked: Asked, snapshot: Snapshot) -> tuple[int, ...]:
    """Return the ranks to draw, ascending."""
    size = snapshot.attempt.world_size
    if asked.ranks is not None:
        if len(asked.ranks) > MAX_RANKS:
            raise InputError(
                f"{len(asked.ranks)} ranks; a timeline draws at most {MAX_RANKS}: name fewer in "
                "ranks="
            )
        return tuple(sorted(set(asked.ranks)))
    return telling_ranks(snapshot.report, size)
