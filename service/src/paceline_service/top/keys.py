"""The keys of a terminal, one by one and unseen, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAMES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left",
    b"\x1b[5~": "page-up", b"\x1b[6~": "page-down", b"\x1b[H": "home", b"\x1b[F": "end",
    b"\x1b[1~": "home", b"\x1b[4~": "end", b"\t": "right", b"k": "up", b"j": "down", b" ": "p",
}  # fmt: skip
_MOST_BYTES = 64


class Keys:
    """Waits for a key or for a sign of another thread, whichever is first."""

    def __init__(self, keyboard: int | None) -> None:
        self._keyboard = keyboard
        self._lock = threading.Lock()
        self._open = True
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    def wake(self) -> None:
        """Make ``wait`` return; for other threads."""
        with self._lock, suppress(BlockingIOError):  # a full pipe wakes as well
            if self._open:
                os.write(self._waker, b"!")

    def wait(self, timeout_s: float, *, only_keys: bool = False) -> list[str]:
        """Return the keys pressed, none after ``timeout_s`` or when somebody woke it."""
        sources = [] if only_keys else [self._woken]
        if self._keyboard is not None:
            sources.append(self._keyboard)
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._keyboard is None or self._keyboard not in ready:
            return []
        pressed = os.read(self._keyboard, _MOST_BYTES)
        if not pressed:
            self._keyboard = None  # the keyboard has gone; go on without
        return split_keys(pressed)

    def close(self) -> None:
        """Give the pipe back."""
        with self._lock:
            self._open = False
            os.close(self._woken)
            os.close(self._waker)


def split_keys(pressed: bytes) -> list[str]:
    """Return the names of the keys in what a terminal sent; unknown sequences are left out."""
    names = []
    at = 0
    while at < len(pressed):
        length = _length(pressed, at)
        key = pressed[at : at + length]
        at += length
        if key in _NAMES:
            names.append(_NAMES[key])
        elif len(key) == 1 and key.isalpha():
            names.append(key.decode("ascii").lower())
    return names


def _length(pressed: bytes, at: int) -> int:
    """Return how many bytes the key at ``at`` takes: an escape sequence is one key."""
    if pressed[at : at + 2] == b"\x1bO":
        return 3
    if pressed[at : at + 2] != b"\x1b[":
        return 1
    end = at + 2
    while end < len(pressed) and not 0x40 <= pressed[end] <= 0x7E:
        end += 1
    return end + 1 - at


@contextmanager
def keyboard() -> Iterator[Keys]:
    """Give the keys of the terminal, none where standard input is no terminal."""
    keys = Keys(_number())
    try:
        yield keys
    finally:
        keys.close()


@contextmanager
def unseen() -> Iterator[None]:
    """Have the terminal hand on each key at once and show none, for as long as this lasts."""
    number = _number()
    if number is None:
        yield
        return
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _number() -> int | None:
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
