"""A job as imported from any format, and its records in the order that the analysis wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from types import TracebackType
from typing import Any

import numpy as np

from paceline.dataclass import dataclass
from paceline.event_log import ROW_FIELDS, LogGroup, LogTelemetry
from paceline_service.analysis.causes.series import TelemetryTable
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import COLUMNS, Int64Array, Records
from paceline_service.analysis.report import Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.spool import RowSpool
from paceline_service.importers.steps import with_derived_steps

_STEP = ROW_FIELDS.index("step")


@dataclass(slots=True)
class EventLog:
    """A job attempt as imported; ``rounds`` gives the records.

    Every importer of timed records returns one, so that the analysis, the outputs, the comparison
    and the replay are written once. It owns a temporary file: use it as a context manager, or call
    ``close``.
    """

    world_size: int
    faults: Faults
    format: str = ""
    """Name of the source that it was read by."""
    world_size_told: bool = True
    """Whether the files say it; else it is one more than the highest rank that was seen."""
    job: str = ""
    run_id: str = ""
    attempt: int = 0
    groups: list[LogGroup] = field(default_factory=list)
    """By the job-wide index that records use."""
    nodes: dict[int, str] = field(default_factory=dict)
    clock_domains: dict[int, str] = field(default_factory=dict)
    anchors: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By rank: one instant as (monotonic ns, wall-clock ns)."""
    info: dict[str, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    """By rank: ``closed``, ``killed``, or empty where the log does not tell."""
    alive_ns: dict[int, int] = field(default_factory=dict)
    """By rank: a time, on its clock, at which what is pending in the log was so still."""
    dropped: dict[int, dict[str, int]] = field(default_factory=dict)
    """What the log says was lost of a rank before it was written."""
    telemetry: list[LogTelemetry] = field(default_factory=list)
    telemetry_left_out: int = 0
    extents: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By rank: its first and last time, ns on its own clock."""
    ranks_with_steps: set[int] = field(default_factory=set)
    spool: RowSpool = field(default_factory=RowSpool)
    options: Options | None = None
    """How the analysis has to be set for this format; None for its own settings."""
    noise_ns: dict[int, int] = field(default_factory=dict)
    """By the index of a group: how exactly its releases are known, where the importer measured."""
    finish: Callable[[Report], Report] | None = None
    """Adds what the format knows beyond records, such as the causes of findings."""
    facts: Callable[[], dict[str, Any]] | None = None
    """Entries for ``data`` of the report, told after the analysis."""

    @property
    def ranks(self) -> list[int]:
        """The ranks that have records, ascending."""
        return self.spool.ranks

    def telemetry_table(self) -> TelemetryTable:
        """Return the telemetry as arrays."""
        return TelemetryTable(self.telemetry)

    def rounds(self, max_steps: int | None = None) -> Iterator[list[Records]]:
        """Yield the records of all ranks some steps at a time, so that no rank runs ahead.

        Args:
            max_steps: of one round; None takes as many as are at hand.

        Each round holds the records up to one step, in the log's order within a rank; the group
        of a record is an index into ``groups``. Ranks without steps of their own get derived ones.
        """
        cursors = {rank: _Cursor(self._tables(rank)) for rank in self.ranks}
        while cursors:
            # As many steps as a chunk of the spool holds: about one is read per rank and round.
            steps = int(median_of([cursor.span for cursor in cursors.values()])) + 1
            first = min(cursor.first_step for cursor in cursors.values())
            until = first + min(steps, max_steps or steps) - 1
            yield [
                Records(
                    rank=rank,
                    **{name: table[:, i].copy() for i, name in enumerate(COLUMNS)},
                )
                for rank, cursor in cursors.items()
                if len(table := cursor.take_until(until))
            ]
            cursors = {rank: cursor for rank, cursor in cursors.items() if not cursor.exhausted}

    def close(self) -> None:
        """Let go of the temporary file."""
        self.spool.close()

    def __enter__(self) -> EventLog:
        """Return the log itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tables(self, rank: int) -> Iterator[Int64Array]:
        tables = self.spool.tables(rank)
        return tables if rank in self.ranks_with_steps else with_derived_steps(tables)


class _Cursor:
    """How far the rows of one rank were given out; holds about one chunk of them."""

    def __init__(self, tables: Iterator[Int64Array]) -> None:
        self._tables = tables
        self._held = next(tables)

    @property
    def exhausted(self) -> bool:
        """Whether all was given out."""
        return not len(self._held)

    @property
    def first_step(self) -> int:
        """The lowest step that is held."""
        return int(self._held[:, _STEP].min())

    @property
    def span(self) -> int:
        """How many steps beyond the lowest are held."""
        return int(self._held[:, _STEP].max()) - self.first_step

    def take_until(self, step: int) -> Int64Array:
        """Return the rows up to and with ``step``, in order."""
        parts = [self._held]
        newest = int(self._held[:, _STEP].max())
        while newest <= step and (table := next(self._tables, None)) is not None:
            parts.append(table)
            newest = max(newest, int(table[:, _STEP].max()))
        rows = np.concatenate(parts)
        now = rows[:, _STEP] <= step
        self._held = rows[~now]
        if not len(self._held) and (table := next(self._tables, None)) is not None:
            self._held = table
        return rows[now]
