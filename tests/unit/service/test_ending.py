"""What is to end does, also where a cancellation is lost on its way."""

from __future__ import annotations

import asyncio

from paceline_service.ending import AGAIN_S, end_tasks


async def waits_again_and_again(news: asyncio.Event) -> None:
    while True:
        await asyncio.wait_for(news.wait(), 60)
        news.clear()


async def test_a_cancellation_that_meets_the_end_of_what_was_waited_for_is_made_again() -> None:
    news = asyncio.Event()
    task = asyncio.create_task(waits_again_and_again(news))
    await asyncio.sleep(0.01)
    news.set()
    await asyncio.sleep(0)  # what was waited for has ended, and its waiter does not know yet
    await asyncio.wait_for(end_tasks(task), 5 * AGAIN_S)
    assert task.cancelled()


async def test_a_task_whose_library_catches_a_cancellation_ends_with_the_next() -> None:
    caught = 0

    async def connects() -> None:
        nonlocal caught
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                caught += 1
                if caught > 1:
                    raise

    task = asyncio.create_task(connects())
    await asyncio.sleep(0.01)
    await asyncio.wait_for(end_tasks(task), 5 * AGAIN_S)
    assert caught == 2


async def test_what_puts_its_things_in_order_is_not_disturbed_by_a_second_cancellation() -> None:
    in_order = asyncio.Event()

    async def writes() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(AGAIN_S / 10)
            in_order.set()

    task = asyncio.create_task(writes())
    await asyncio.sleep(0.01)
    await end_tasks(task)
    assert in_order.is_set()


async def test_tasks_that_are_none_have_ended_or_fail_are_no_trouble() -> None:
    async def fails() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise RuntimeError("at its end")

    ended = asyncio.create_task(asyncio.sleep(0))
    await ended
    failing = asyncio.create_task(fails())
    await asyncio.sleep(0.01)
    await end_tasks(None, ended, failing)
    assert isinstance(failing.exception(), RuntimeError)
    await end_tasks()
