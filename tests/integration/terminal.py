"""A pseudo-terminal with a command in it: what it shows, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

_STEERING = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


class Terminal:
    """Runs ``paceline`` in a terminal of its own; used with ``with``."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str], columns: int = 100, lines: int = 30
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment},
        )  # fmt: skip
        self._theirs = theirs
        self.raw = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """All that was shown, without what steers."""
        return plain(self.raw)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def wait_for(self, text: str, timeout_s: float = 60, *, since: int = 0) -> None:
        """Wait until ``text`` was shown after the byte ``since``."""
        deadline_s = time.monotonic() + timeout_s
        while text not in plain(self.raw[since:]):
            assert time.monotonic() < deadline_s, f"no {text!r} in {self.text[-3000:]}"
            if not self._read() and self.process.poll() is not None:
                assert text in plain(self.raw[since:]), self.text[-3000:]

    def ended(self, timeout_s: float = 60) -> int:
        """Return the exit status once the command has ended."""
        deadline_s = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, self.text[-3000:]
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def wait_until_stopped(self, timeout_s: float = 60) -> None:
        """Wait until the command is stopped, as by Ctrl-Z."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        deadline_s = time.monotonic() + timeout_s
        while stat.read_text().rpartition(") ")[2][0] != "T":
            assert time.monotonic() < deadline_s, self.text[-3000:]
            self._read()
        while self._read():
            pass

    def is_as_before(self) -> bool:
        """Whether keys are shown and lines are lines again, the cursor and the screen back."""
        same = termios.tcgetattr(self._theirs)[:4] == self.before[:4]
        left = self.raw.rfind(LEAVE_SCREEN) > self.raw.rfind(ENTER_SCREEN)
        return same and left and SHOW_CURSOR in self.raw

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        if not ready:
            return False
        self.raw += os.read(self._ours, 1 << 16)
        return True


def plain(raw: bytes) -> str:
    """Return text without escape sequences."""
    return _STEERING.sub(b"", raw).decode("utf-8", "replace")
