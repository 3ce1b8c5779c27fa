"""One process a directory: a POSIX lock on a file in it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

STOPPING = b"stopping"
_FREE_SOON_S = 1.0
_STOPPING_SOON_S = 15.0
_RETRY_S = 0.1


class DirectoryLock:
    """Holds a lock file until ``release``; the kernel releases it when the process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def try_take(self) -> bool:
        """Take the lock if nobody holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(self.path).st_ino != os.fstat(fd).st_ino:
                raise OSError("its last holder removed the file")
        except OSError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd
        return True

    def take(self) -> bool:
        """Take the lock, with patience for a holder that is about to leave."""
        began_s = time.monotonic()
        while not self.try_take():
            waited_s = time.monotonic() - began_s
            try:
                stopping = self.path.read_bytes() == STOPPING
            except OSError:
                stopping = False
            if waited_s > (_STOPPING_SOON_S if stopping else _FREE_SOON_S):
                return False
            time.sleep(_RETRY_S)
        return True

    def announce_stopping(self) -> None:
        """Tell those who want the lock that it is worth waiting for."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, STOPPING, 0)

    def release(self) -> None:
        """Let go of the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
