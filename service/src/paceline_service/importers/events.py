"""Reads event logs ``paceline.events/1``: one file, several, or one per rank (docs/offline.md)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.errors import InputError
from paceline.event_log import (
    ROW_FIELDS,
    LogGroup,
    LogHeader,
    LogRank,
    LogRow,
    LogTelemetry,
    parse_line,
)
from paceline.telemetry import clean
from paceline.vocabulary import P2P_OPS, Flag, RecordKind
from paceline_service.importers.event_files import Input, find_event_logs
from paceline_service.importers.faults import Faults, place
from paceline_service.importers.lines import read_objects
from paceline_service.importers.log import EventLog
from paceline_service.importers.order import OrderWatch, mended

MAX_FAULTY_RATIO = 0.1
"""Of the lines of an input; when more of them are unusable, no answer would be honest."""
MAX_STEP = (1 << 31) - 1
MAX_VALUE = 1 << 62
"""Of times, counters and sizes: their differences still fit 64 bits."""
MAX_TELEMETRY_VALUES = 2_000_000
"""Values of samples that are kept, some 150 MB; the rest is counted."""
MAX_MENDED_ROWS = 4_000_000
"""Of one rank: more that are out of order are not sorted, which takes 0.5 GB of memory."""
_JOIN = ROW_FIELDS.index("join_ns")
_START = ROW_FIELDS.index("start_ns")
_STEP = ROW_FIELDS.index("step")
_FLAGS = ROW_FIELDS.index("flags")
_P2P = frozenset(int(op) for op in P2P_OPS)


def read_event_log(paths: Sequence[Path], faults: Faults | None = None) -> EventLog:
    """Read event logs of one job attempt.

    Lines that cannot be used are left out and counted in ``faults``.

    Raises:
        InputError: there is no input, a header is unusable or contradicts another, a record is of
            a rank that its header rules out, or too many lines are unusable for an answer.
    """
    faults = Faults() if faults is None else faults
    reader = _Reader(find_event_logs(paths, faults), faults)
    try:
        return reader.read()
    except BaseException:
        reader.log.close()
        raise


class _Reader:
    """Reads the files one after the other into one ``EventLog``."""

    def __init__(self, inputs: list[Input], faults: Faults) -> None:
        self.log = EventLog(world_size=0, faults=faults)
        self._inputs = inputs
        self._faults = faults
        self._watch = OrderWatch()
        self._indexes: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._members: list[frozenset[int]] = []
        self._first_header = ""
        self._dropped: dict[tuple[int, int], Mapping[str, int]] = {}
        self._rows = 0
        self._telemetry_values = 0

    def read(self) -> EventLog:
        for source in self._inputs:
            self._read_file(source)
        self._refuse_when_mostly_unusable()
        self.log.spool.flush()
        self._mend()
        return self.log

    def _read_file(self, source: Input) -> None:
        self._faults.reading(source.path)
        groups: dict[str, int] = {}
        written_by_paceline = False
        for number, value in read_objects(source.path, self._faults):
            try:
                line = parse_line(value)
            except InputError as error:
                if number == 1 or (isinstance(value, dict) and "schema" in value):
                    raise InputError(f"{place(source.path, number)}: {error}") from error
                self._faults.add("invalid", source.path, number, str(error), rank=_rank_of(value))
                continue
            if isinstance(line, LogRow):
                self._take_row(source, number, line, groups, written_by_paceline)
            elif isinstance(line, LogHeader):
                self._take_header(source.path, number, line, groups)
                written_by_paceline = bool(line.run_id)
            elif line is None:
                message = "a kind of line that this version does not know; left out"
                self._faults.add("unknown_line", source.path, number, message)
            else:
                self._check_rank(source.path, number, line.rank)
                self._take_fact(line, source)

    def _take_header(
        self, path: Path, number: int, header: LogHeader, groups: dict[str, int]
    ) -> None:
        log = self.log
        here = place(path, number)
        if not log.world_size:
            log.world_size, log.job, log.run_id = header.world_size, header.job, header.run_id
            log.attempt = header.attempt
            self._first_header = here
        for name in ("world_size", "run_id", "attempt", "job"):
            mine, theirs = getattr(header, name), getattr(log, name)
            if mine != theirs:
                raise InputError(
                    f"{here}: {name} is {mine!r}, but {theirs!r} in {self._first_header}; give "
                    "the files of one attempt of one job"
                )
        for name, group in header.groups.items():
            groups[name] = self._group_index(group)
        log.nodes.update(header.nodes)
        log.clock_domains.update(header.clock_domains)
        if header.shared_clock:
            log.clock_domains.update(dict.fromkeys(range(header.world_size), "shared"))
        log.anchors.update(header.anchors)
        log.info.update(header.info)

    def _group_index(self, group: LogGroup) -> int:
        key = (group.name, group.ranks, group.epoch)
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = len(self.log.groups)
            self.log.groups.append(group)
            self._members.append(frozenset(group.ranks))
        return index

    def _take_row(
        self,
        source: Input,
        number: int,
        line: LogRow,
        groups: Mapping[str, int],
        written_by_paceline: bool,
    ) -> None:
        rank, row = line.rank, line.row
        self._check_rank(source.path, number, rank)
        if row[_STEP] > MAX_STEP or not 0 <= min(row[_JOIN:_FLAGS]) <= max(row) < MAX_VALUE:
            message = (
                f"step is at most {MAX_STEP}; times, seq and bytes are at least 0 and below 2^62"
            )
            self._faults.add("invalid", source.path, number, message, rank=rank)
            return
        if row[0] == RecordKind.COLLECTIVE:
            index = groups.get(line.group)
            problem = self._collective_problem(rank, row, line.group, index)
            if problem is not None or index is None:
                reason, message = problem or ("unknown_group", line.group)
                self._faults.add(reason, source.path, number, message, rank=rank)
                return
            row = line.with_group(index)
        elif row[0] == RecordKind.STEP:
            self.log.ranks_with_steps.add(rank)
        if not written_by_paceline:
            row = _foreign(row)
        self._watch.see(rank, row)
        self._rows += 1
        first_ns, last_ns = self.log.extents.get(rank, (row[_START], 0))
        self.log.extents[rank] = (min(first_ns, row[_START]), max(last_ns, *row[_START:_JOIN]))
        self.log.spool.append(rank, (*row, source.number, number))

    def _collective_problem(
        self, rank: int, row: tuple[int, ...], name: str, index: int | None
    ) -> tuple[str, str] | None:
        if index is None:
            return "unknown_group", f"group {name!r} is not among the groups of the header"
        if rank not in self._members[index]:
            return "not_a_member", f"rank {rank} is no member of group {name!r}"
        peer = row[5]
        if not -1 <= peer < self.log.world_size:
            return "invalid", f"peer or root {peer} is outside the job"
        if peer == -1 and row[1] in _P2P:
            return "invalid", "send and recv need a peer, a global rank"
        return None

    def _check_rank(self, path: Path, number: int, rank: int) -> None:
        if rank >= self.log.world_size:
            raise InputError(
                f"{place(path, number)}: rank {rank}, but world_size {self.log.world_size} allows "
                f"0 to {self.log.world_size - 1} ({self._first_header}); correct the header"
            )

    def _take_fact(self, line: LogTelemetry | LogRank, source: Input) -> None:
        log = self.log
        if isinstance(line, LogRank):
            log.ended[line.rank] = line.ended or log.ended.get(line.rank, "")
            if 0 < line.now_ns < MAX_VALUE:
                log.alive_ns[line.rank] = max(line.now_ns, log.alive_ns.get(line.rank, 0))
            # Cumulative within a file; a rank of several files lost the sum.
            before = self._dropped.get((line.rank, source.number), {})
            self._dropped[line.rank, source.number] = line.dropped
            total = log.dropped.setdefault(line.rank, {})
            for reason, count in line.dropped.items():
                total[reason] = total.get(reason, 0) + count - before.get(reason, 0)
        else:
            self._take_telemetry(line)

    def _take_telemetry(self, line: LogTelemetry) -> None:
        # One string per name, however many samples hold it.
        values = {sys.intern(name): value for name, value in clean(line.values).items()}
        if not values or not 0 <= line.time_ns < MAX_VALUE:
            return
        if self._telemetry_values + len(values) > MAX_TELEMETRY_VALUES:
            self.log.telemetry_left_out += 1
            return
        self._telemetry_values += len(values)
        self.log.telemetry.append(replace(line, values=values))

    def _refuse_when_mostly_unusable(self) -> None:
        faulty = self._lines_lost()
        if faulty and faulty > MAX_FAULTY_RATIO * (self._rows + faulty):
            raise InputError(
                f"{faulty:,} of {self._rows + faulty:,} records are unusable, too many for an "
                f"honest answer; first: {self._faults.notes()[0]}"
            )

    def _lines_lost(self) -> int:
        reasons = ("invalid", "no_json", "torn_line", "unknown_group", "not_a_member", "encoding")
        return sum(self._faults.counts[reason] for reason in reasons)

    def _mend(self) -> None:
        watch, spool = self._watch, self.log.spool
        without_steps = set(spool.ranks) - self.log.ranks_with_steps
        for rank in sorted(watch.unordered | (watch.scattered & without_steps)):
            count = sum(chunk.rows for chunk in spool.chunks(rank))
            if count > MAX_MENDED_ROWS:
                raise InputError(
                    f"rank {rank}: its {count:,} records are not in order; over "
                    f"{MAX_MENDED_ROWS:,} of a rank have to be: sort its lines by step and time"
                )
            table = np.concatenate(list(spool.tables(rank)))
            by_step = rank in watch.scattered and rank in without_steps

            def report(reason: str, file: int, line: int, message: str, rank: int = rank) -> None:
                self._faults.add(reason, self._inputs[file].path, line, message, rank=rank)

            spool.replace(rank, mended(table, by_step=by_step, report=report))


def _foreign(row: tuple[int, ...]) -> tuple[int, ...]:
    """Return a row of a log that Paceline did not write as the analysis wants it.

    Its clock may begin at 0, which is kept for unknown times, so all go one ns on. It does not
    tell when the caller began to wait: the caller is taken to have waited at once, unless the
    row says otherwise.
    """
    start_ns, end_ns, join_ns, issue_ns = (t + 1 if t else 0 for t in row[_START:_FLAGS])
    start_ns = row[_START] + 1
    flags = row[_FLAGS]
    if row[0] == RecordKind.COLLECTIVE:
        if not (join_ns or flags):
            join_ns = start_ns
        if not end_ns:
            flags |= Flag.NOT_WAITED  # it was pending when the log ended
    return (*row[:_START], start_ns, end_ns, join_ns, issue_ns, int(flags))


def _rank_of(value: object) -> int | None:
    rank = value.get("rank") if isinstance(value, dict) else None
    return rank if type(rank) is int and rank >= 0 else None
