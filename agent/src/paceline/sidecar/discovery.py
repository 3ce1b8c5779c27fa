"""Finding the rings of a node; a file that is none is reported once."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from paceline.errors import RingError
from paceline.ring import RingReader
from paceline.ring.layout import SUFFIX

_log = logging.getLogger("paceline.sidecar")
_UNFINISHED_SUFFIX = ".tmp"
_UNFINISHED_AGE_S = 600.0
"""Making a ring takes milliseconds; an unfinished one of this age has no writer any more."""


class Discovery:
    """Watches one directory. A ring that was returned or refused is not looked at again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: set[tuple[str, int]] = set()

    def look(self) -> list[RingReader]:
        """Return the rings that appeared since the last look, by name."""
        found = []
        present = set()
        for entry in self._scan():
            try:
                key = (entry.name, entry.inode())
                if entry.name.endswith(_UNFINISHED_SUFFIX):
                    _remove_abandoned(entry)
                if not entry.name.endswith(SUFFIX) or not entry.is_file(follow_symlinks=False):
                    continue
            except OSError:
                continue
            present.add(key)
            if key in self._known:
                continue
            try:
                found.append(RingReader(Path(entry.path)))
            except RingError as error:
                _log.warning("skipping a file that is no readable ring: %s", error)
        self._known = present
        return found

    def _scan(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._directory) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if self._known:
                _log.warning("cannot list %s: %s", self._directory, error)
            return []


def _remove_abandoned(entry: os.DirEntry[str]) -> None:
    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _UNFINISHED_AGE_S:
        os.unlink(entry.path)
        _log.info("removed %s: its writer died before it was finished", entry.name)
