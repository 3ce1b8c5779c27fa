"""Records of a job as lines of the event log ``paceline.events/1`` (docs/event-log.md).

The lines are those of ``paceline.event_log``; here they are made from the columns that the
store and the analysis hold, so that an exported job, analysed offline, gives the same report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from paceline.event_log import (
    GroupNames,
    LogGroup,
    LogHeader,
    LogRank,
    LogTelemetry,
    header_line,
    rank_line,
    record_line,
    telemetry_line,
)
from paceline_service.analysis.records import COLUMNS, Records

LogItem = Records | LogRank | LogTelemetry


def named_groups(groups: Iterable[LogGroup]) -> tuple[list[str], dict[str, LogGroup]]:
    """Give each group a name that is unique in its log.

    Args:
        groups: in the order of the job-wide group index that records use.

    Returns:
        The name of each index, and the ``groups`` of the ``LogHeader``.
    """
    names = GroupNames()
    by_index = [names.name_of(group) for group in groups]
    return by_index, names.groups


def event_log_lines(
    header: LogHeader, names: Sequence[str], items: Iterable[LogItem]
) -> Iterator[str]:
    """Yield the lines of an event log, each with its newline.

    Args:
        header: with the ``groups`` that ``named_groups`` returned.
        names: the log's name of each job-wide group index.
        items: records (their ``group`` is the job-wide index, the order is kept), telemetry, and
            at the end how each rank ended and what was lost of it.
    """
    yield header_line(header) + "\n"
    for item in items:
        if isinstance(item, Records):
            yield from _record_lines(item, names)
        elif isinstance(item, LogRank):
            yield rank_line(item) + "\n"
        else:
            yield telemetry_line(item) + "\n"


def _record_lines(records: Records, names: Sequence[str]) -> Iterator[str]:
    columns = [getattr(records, name).tolist() for name in COLUMNS]
    for row in zip(*columns, strict=True):
        line = record_line(records.rank, row, names[row[2]] if names else "")
        if line is not None:
            yield line + "\n"
