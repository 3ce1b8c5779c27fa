"""How far the reading of an input has come: told by importers, shown by whoever asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Progress:
    """Hears how far the reading has come, and shows nothing.

    Importers tell it through ``Faults``. ``advanced`` may be called from several threads at once;
    whoever reads in other processes sends the numbers back and calls it in this one.
    """

    def expects(self, paths: Sequence[Path], packed_bytes: int) -> None:
        """Hear which files will be read, and how long they are together on disk."""

    def reading(self, path: Path) -> None:
        """Hear which file is read now; of several readers at once, one of theirs."""

    def advanced(self, packed_bytes: int) -> None:
        """Hear that so many more bytes were read, as they lie on disk (packed)."""

    def judging(self) -> None:
        """Hear that all is read, and is being analysed."""
