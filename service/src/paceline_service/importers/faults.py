"""What could not be used of an input: counted by reason, the first of each told with its place."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field
from pathlib import Path

from paceline.dataclass import dataclass
from paceline_service.importers.progress import Progress

HARMLESS = frozenset({"skipped_file", "unknown_line", "folders_alike"})
"""Reasons that concern no record: they are told, and not counted as dropped."""
_TOLD_PER_REASON = 3


@dataclass(slots=True)
class Faults:
    """Collects faults while files are read."""

    counts: Counter[str] = field(default_factory=Counter)
    by_rank: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Those of a known rank; they are also in ``counts``."""
    progress: Progress = field(default_factory=Progress)
    """Told how far the reading has come."""
    _told: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _told_for: Counter[str] = field(default_factory=Counter)
    """How much of ``counts`` the sentences in ``_told`` stand for."""

    def reading(self, path: Path) -> None:
        """Say which file is read now."""
        self.progress.reading(path)

    def advanced(self, packed_bytes: int) -> None:
        """Say that so many more bytes were read; ``open_binary`` takes this."""
        self.progress.advanced(packed_bytes)

    def add(
        self,
        reason: str,
        path: Path,
        line: int | None,
        message: str,
        *,
        rank: int | None = None,
        count: int = 1,
    ) -> None:
        """Count ``count`` faults of ``path`` (and of one line of it, from 1)."""
        self.counts[reason] += count
        if rank is not None:
            self.by_rank[rank][reason] += count
        if len(self._told[reason]) < _TOLD_PER_REASON:
            self._told[reason].append(f"{place(path, line)}: {message}")
            self._told_for[reason] += count

    def take(self, other: Faults) -> None:
        """Count and tell those of ``other`` as well."""
        self.counts.update(other.counts)
        self._told_for.update(other._told_for)
        for rank, counts in other.by_rank.items():
            self.by_rank[rank].update(counts)
        for reason, told in other._told.items():
            self._told[reason] += told

    def notes(self) -> list[str]:
        """Return sentences about the faults: the first of each reason, then how many more."""
        sentences = []
        for reason, told in self._told.items():
            sentences += told
            more = self.counts[reason] - self._told_for[reason]
            if more:
                sentences.append(f"{more:,} more of the reason {reason}.")
        return sentences

    @property
    def lossy(self) -> bool:
        """Whether something was lost."""
        return any(count for reason, count in self.counts.items() if reason not in HARMLESS)


def losses(faults: Faults) -> dict[str, int]:
    """Return what was lost, counted by reason."""
    return {
        reason: count for reason, count in faults.counts.items() if count and reason not in HARMLESS
    }


def place(path: Path, line: int | None) -> str:
    """Return a file and line as editors and compilers write them."""
    return f"{path}:{line}" if line is not None else str(path)
