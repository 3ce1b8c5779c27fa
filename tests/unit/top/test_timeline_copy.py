"""``paceline timeline`` writes what comes piece by piece, and knows whether it is whole."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from paceline.errors import TransportError
from paceline_service.commands.timeline import _copy

TOLD = {
    "schema": "paceline.timeline/1",
    "clocks": [{"rank": r, "how": "x" * 50} for r in range(900)],
}
HEAD = b'{"displayTimeUnit":"ms","otherData":' + json.dumps(TOLD).encode() + b',"traceEvents":['
EVENT = b'{"ph":"X","pid":1,"tid":1001,"name":"all_reduce","args":{},"ts":1.000,"dur":1.000},\n'
LAST = EVENT.rstrip(b",\n") + b"]}\n"


class Nowhere(io.RawIOBase):
    """Counts what is written."""

    size = 0

    def write(self, data: object) -> int:
        self.size += len(data)  # type: ignore[arg-type]
        return len(data)  # type: ignore[arg-type]


def pieces(whole: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(whole), size):
        yield whole[begin : begin + size]


@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
def test_what_a_timeline_tells_is_read_whatever_the_pieces_are(size: int) -> None:
    out = io.BytesIO()
    whole = HEAD[:-1] + b"[" + EVENT * 3 + LAST
    assert _copy(pieces(whole, size if size > 100 else 4096 + size), out) == TOLD
    assert out.getvalue() == whole


def test_a_large_timeline_takes_no_memory() -> None:
    chunk = EVENT * 800

    def large() -> Iterator[bytes]:
        yield HEAD
        for _ in range(2000):
            yield chunk
        yield LAST

    out = Nowhere()
    tracemalloc.start()
    _copy(large(), out)  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out.size > 130_000_000
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "broken",
    [b"", HEAD[:100], HEAD + EVENT * 5, b"<html>not found</html>", b"[]", HEAD[:-1]],
    ids=["nothing", "head", "events", "html", "list", "no-events"],
)
def test_what_is_not_whole_is_no_timeline(broken: bytes) -> None:
    with pytest.raises(TransportError):
        _copy(pieces(broken, 64), io.BytesIO())
