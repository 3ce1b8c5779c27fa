"""Pages of lists: a cursor says after which row the next page begins.

A cursor is opaque to clients. It holds the sort key of the last row that was shown, so that rows
that come or go between two pages neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Any, TypeVar, cast

import msgspec
from fastapi import Query, Request

from paceline.errors import InputError

MAX_LIMIT = 1000
SCAN_ROWS = 500
MAX_NUMBER = 2**62
"""Beyond any key of a row: it goes into a column of 64 bits, one more or less also."""
Cursor = Annotated[
    str | None,
    Query(max_length=1024, description="`next` of the page before; with the same parameters."),
]
T = TypeVar("T")


def pack_cursor(*key: object) -> str:
    """Return a cursor for a sort key."""
    packed: str = base64.urlsafe_b64encode(msgspec.json.encode(key)).decode("ascii")
    return packed.rstrip("=")


def unpack_cursor(cursor: str | None, shape: type[T]) -> T | None:
    """Return the key in a cursor, None where there is no cursor.

    Args:
        cursor: what ``pack_cursor`` returned.
        shape: the type of the key, a tuple.

    Raises:
        InputError: it is no cursor of this list.
    """
    if cursor is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key: Any = msgspec.json.decode(raw, type=shape)
        if any(isinstance(part, int) and abs(part) > MAX_NUMBER for part in key):
            raise ValueError("a number that no row has")
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InputError(
            f"cursor {cursor[:64]!r} is not one of this list; begin again without it"
        ) from error
    return cast(T, key)


def link_next(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the header that leads to the next page; nothing on the last one."""
    if cursor is None:
        return {}
    url = request.url.include_query_params(cursor=cursor)
    return {"Link": f'<{url.path}?{url.query}>; rel="next"'}


def batches(limit: int) -> Iterator[int]:
    """Yield how many rows to read at once for a page of those that may be shown.

    The page itself at first; then more, since few of the rows seem to be for the reader.
    """
    yield limit
    yield from repeat(max(limit, SCAN_ROWS))


def page_of(rows: list[Any], limit: int) -> tuple[list[Any], bool]:
    """Return at most ``limit`` rows, and whether there are more."""
    return rows[:limit], len(rows) > limit
