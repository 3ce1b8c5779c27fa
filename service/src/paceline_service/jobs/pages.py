"""Pages of ranks and of steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from paceline_service.answers import tag_of
from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.service import JobService
from paceline_service.jobs.steps import Step, columns
from paceline_service.paging import pack_cursor, unpack_cursor

Json = dict[str, Any]
MAX_CELLS = 4_000_000
"""Steps times ranks of one page: 100 MB of JSON. With phases a cell counts three times."""
LARGE_CELLS = 250_000
LARGE_AT_ONCE = 2


def ranks_page(
    rows: Sequence[Json], chosen: Sequence[int] | None, limit: int, cursor: str | None
) -> Json:
    """Return the rows of ranks behind ``cursor``, in the order of ranks.

    Args:
        rows: of all ranks, ascending.
        chosen: only these ranks; None for all.
        limit: how many at most.
        cursor: of the page before.

    Raises:
        InputError: the cursor is not of this list.
    """
    key = unpack_cursor(cursor, tuple[int])
    after = key[0] if key is not None else -1
    wanted = frozenset(chosen) if chosen is not None else None
    left = [
        row for row in rows if row["rank"] > after and (wanted is None or row["rank"] in wanted)
    ]
    shown = left[:limit]
    following = pack_cursor(shown[-1]["rank"]) if len(left) > limit else None
    return {"ranks": shown, "next": following}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPage:
    """Steps as columns, in JSON."""

    body: bytes
    tag: str
    following: str | None
    """The cursor of the next page."""


class StepPages:
    """Makes pages of steps; large ones, which take half a gigabyte each, only a few at a time."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self._turns = asyncio.Semaphore(LARGE_AT_ONCE)

    async def make(
        self,
        row: AttemptRow,
        first: int | None,
        last: int | None,
        ranks: Sequence[int],
        *,
        limit: int,
        cursor: str | None,
        phases: bool,
    ) -> StepsPage:
        """Return steps as columns, with a cursor that leads on in the same direction.

        With ``first`` pages go to later steps, else to earlier ones.

        Raises:
            InputError: the cursor is not of this list.
        """
        key = unpack_cursor(cursor, tuple[Literal["from", "to"], int])
        if key is not None:
            first, last = (key[1], last) if key[0] == "from" else (None, key[1])
        width = len(ranks) * (3 if phases else 1)
        limit = min(limit, max(MAX_CELLS // width, 1))
        turn = self._turns if limit * width > LARGE_CELLS else contextlib.nullcontext()
        async with turn:
            steps = await self._service.steps(row, first, last, limit, phases=phases)
            following = await self._following(row, first, last, steps, limit)
            # Millions of numbers: the event loop goes on meanwhile.
            return await asyncio.to_thread(_page, row, steps, ranks, following, phases)

    async def _following(
        self,
        row: AttemptRow,
        first: int | None,
        last: int | None,
        steps: Sequence[Step],
        limit: int,
    ) -> str | None:
        if len(steps) < limit:
            return None
        if first is None:
            before = steps[0].step - 1
            more = before >= 0 and await self._service.steps(row, None, before, 1)
            return pack_cursor("to", before) if more else None
        after = steps[-1].step + 1
        return (
            pack_cursor("from", after) if await self._service.steps(row, after, last, 1) else None
        )


def _page(
    row: AttemptRow,
    steps: Sequence[Step],
    ranks: Sequence[int],
    following: str | None,
    phases: bool,
) -> StepsPage:
    content = columns(row.ref.job, row.ref.ordinal, steps, ranks, phases=phases)
    body = msgspec.json.encode({**content, "next": following})
    return StepsPage(body=body, tag=tag_of(body), following=following)
