"""A small disk that can be filled: a tmpfs of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of ``size_bytes`` at ``path``; skips the test where it cannot be mounted."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._ballast = path / "ballast"
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "none", str(path)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here (run as root): {done.stderr.strip()}")

    @property
    def free_bytes(self) -> int:
        """Return the room that is left."""
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Use up the room."""
        size = max(self.free_bytes - leave_bytes, 0)
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with contextlib.suppress(OSError):
            while size > 0:
                size -= os.write(file, bytes(min(size, 1 << 20)))
        os.close(file)

    def make_room(self) -> None:
        """Give the room back."""
        self._ballast.unlink()

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)
