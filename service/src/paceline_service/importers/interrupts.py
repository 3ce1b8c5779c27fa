"""Ctrl-C while numpy is imported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Let Ctrl-C take effect behind this, a tenth of a second later.

    An import of numpy that is interrupted tells of a broken installation instead.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import signal

    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        # None is a handler that is not Python's; one that is here comes from the program's start.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if came:
        signal.raise_signal(signal.SIGINT)
