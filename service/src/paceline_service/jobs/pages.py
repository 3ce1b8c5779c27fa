"""Pages of ranks and of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.service import JobService
from paceline_service.jobs.steps import columns
from paceline_service.paging import pack_cursor, unpack_cursor

Json = dict[str, Any]
MAX_CELLS = 4_000_000
"""Steps times ranks of one page: 100 MB of JSON. With phases a cell counts three times."""


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


async def steps_page(
    service: JobService,
    row: AttemptRow,
    first: int | None,
    last: int | None,
    ranks: Sequence[int],
    *,
    limit: int,
    cursor: str | None,
    phases: bool,
) -> Json:
    """Return steps as columns, with a cursor that leads on in the same direction.

    With ``first`` pages go to later steps, else to earlier ones.

    Raises:
        InputError: the cursor is not of this list.
    """
    key = unpack_cursor(cursor, tuple[Literal["from", "to"], int])
    if key is not None:
        first, last = (key[1], last) if key[0] == "from" else (None, key[1])
    limit = min(limit, max(MAX_CELLS // (len(ranks) * (3 if phases else 1)), 1))
    steps = await service.steps(row, first, last, limit, phases=phases)
    # Millions of numbers: the event loop goes on meanwhile.
    content = await asyncio.to_thread(
        columns, row.ref.job, row.ref.ordinal, steps, ranks, phases=phases
    )
    content["next"] = None
    if len(steps) < limit:
        return content
    if first is None:
        if steps[0].step > 0 and await service.steps(row, None, steps[0].step - 1, 1):
            content["next"] = pack_cursor("to", steps[0].step - 1)
    elif await service.steps(row, steps[-1].step + 1, last, 1):
        content["next"] = pack_cursor("from", steps[-1].step + 1)
    return content
