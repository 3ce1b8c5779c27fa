"""Pages of steps: large ones wait for their turn, small ones do not."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline_service.jobs.pages import LARGE_AT_ONCE, LARGE_CELLS, StepPages
from paceline_service.jobs.steps import Step

RANKS = 1000
ROW: Any = SimpleNamespace(ref=SimpleNamespace(job="llm", ordinal=1))


class SlowStore:
    """Gives steps when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()

    async def steps(
        self, row: object, first: object, last: object, limit: int, *, phases: bool = True
    ) -> list[Step]:
        self.asked += 1
        if limit > 1:
            await self.go_on.wait()
        figures = np.zeros((3, RANKS), dtype=np.int64)
        return [
            Step(step=1, start_wall_ns=1, duration_ns=1, slowest_rank=0, per_rank=figures)
        ]  # fmt: skip


async def test_large_pages_wait_for_their_turn_and_small_ones_do_not() -> None:
    store = SlowStore()
    pages = StepPages(store)  # type: ignore[arg-type]

    def ask(limit: int) -> asyncio.Task[Any]:
        made = pages.make(
            ROW, None, None, range(RANKS), limit=limit, cursor=None, phases=False
        )  # fmt: skip
        return asyncio.create_task(made)

    large = [ask(LARGE_CELLS // RANKS + 1) for _ in range(5)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.asked == LARGE_AT_ONCE
    small = await ask(1)
    assert json.loads(small.body)["steps"] == [1]
    store.go_on.set()
    assert {page.tag for page in await asyncio.gather(*large)} == {large[0].result().tag}
