from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from paceline_service.errors import BodyTooLargeError, OverloadedError
from paceline_service.ingest.bodies import Bodies


def request(*chunks: bytes, declared: bool = True) -> Request:
    headers: Sequence[tuple[bytes, bytes]] = ()
    if declared:
        headers = [(b"content-length", b"%d" % sum(map(len, chunks)))]
    left = list(chunks)

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def bodies(refused: Counter[str] | None = None) -> Bodies:
    return Bodies(
        longest_bytes=50, most_bytes=100, refused=Counter() if refused is None else refused
    )


@pytest.mark.parametrize("declared", [True, False])
async def test_what_a_body_holds_is_given_back_whatever_becomes_of_it(declared: bool) -> None:
    made = bodies()
    async with made.read(request(b"a" * 20, b"b" * 20, declared=declared), "one") as body:
        assert body == b"a" * 20 + b"b" * 20
        assert made.held_bytes == 40
        async with made.read(request(b"", declared=declared), "one") as empty:
            assert empty == b""
    with pytest.raises(BodyTooLargeError):
        async with made.read(request(b"a" * 30, b"b" * 30, declared=declared), "one"):
            pass
    assert made.held_bytes == 0


@pytest.mark.parametrize("declared", [True, False])
async def test_one_bearer_has_half_and_all_have_no_more_than_the_limit(declared: bool) -> None:
    refused: Counter[str] = Counter()
    made = bodies(refused)
    async with made.read(request(b"a" * 40), "one"):
        with pytest.raises(OverloadedError, match="40 bytes, 40 of them of this token"):
            async with made.read(request(b"b" * 11, declared=declared), "one"):
                pass
        async with made.read(request(b"c" * 50, declared=declared), "two"):
            with pytest.raises(OverloadedError, match="the limit is 100"):
                async with made.read(request(b"d" * 11, declared=declared), "three"):
                    pass
            async with made.read(request(b"d" * 10, declared=declared), "three"):
                assert made.held_bytes == 100
    assert (made.held_bytes, refused) == (0, {"bodies": 2})
