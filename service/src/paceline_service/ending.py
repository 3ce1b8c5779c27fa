"""Tasks of asyncio that are to end, and do."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 2.0
"""How long a task may take to put its things in order before it is cancelled once more."""


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return when all of them have ended; what they raise is dropped.

    One cancellation is not enough. Before Python 3.12 ``asyncio.wait_for`` drops it if what it
    waits for ends in the same turn of the event loop, and libraries catch it (so does the NATS
    client while it closes a connection). The loop around them would go on, and who waits for its
    end would wait for ever.

    Args:
        tasks: those that are None or have ended are passed over.
    """
    waiting = {task for task in tasks if task is not None}
    while waiting:
        for task in waiting:
            task.cancel()
        ended, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # or asyncio logs that nobody has looked at it
