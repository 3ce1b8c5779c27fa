"""The event log of one rank while it runs: a plain file, compressed when the rank has ended."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import InputError
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
from paceline.ranks import parse_ranks
from paceline.ring import InFlight, Record
from paceline.sidecar.follow import Chunk
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.progress import Progress
from paceline.vocabulary import Flag, RecordKind

MAX_LOG_BYTES = 1 << 30
_MARK = b'{"ring_tail":'
_TAIL_BYTES = 8 << 20
_HEADER = b'{"schema":'


class RankLog:
    """Writes ``path``; a mark behind each chunk tells a restarted sidecar where to go on.

    Readers ignore marks: they are lines of a kind that the format does not know.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
        self.path = path
        self.final_path = path.with_name(path.name + ".gz")
        self.progress = Progress(ended=self.final_path.exists() and not path.exists())
        self.names = GroupNames()
        self._max_bytes = max_bytes
        self._name_by_index: dict[int, str] = {}
        self._size = 0
        self._pending: list[str] = []
        self._state = LogRank(rank=0)
        if not self.progress.ended and path.exists():
            self._resume()

    def write(self, chunk: Chunk, header: LogHeader) -> bool:
        """Append ``chunk`` as one write; False when the disk has no room for it."""
        rank = chunk.identity.rank
        lines = []
        learned = self._learn_groups(chunk.groups, header.world_size)
        if learned or not self._size:
            lines.append(header_line(header))
        if self._size < self._max_bytes:
            lines += [self._line(rank, row) for row in chunk.rows]
            lines += [
                telemetry_line(LogTelemetry(rank=rank, time_ns=one.time_ns, values=one.values))
                for one in chunk.telemetry
            ]
        else:
            self.progress.count("event_log_full", len(chunk.rows))
        losses = {**chunk.dropped, **self.progress.dropped}
        self._pending = [self._line(rank, _pending_row(one)) for one in chunk.pending]
        # A rank that has closed waits for nothing, so nobody asks how late it is.
        now_ns = 0 if chunk.ended == "closed" else chunk.read_mono_ns
        self._state = LogRank(rank=rank, ended=chunk.ended, dropped=losses, now_ns=now_ns)
        lines.append(_mark(chunk.tail, self.progress.dropped, chunk.also))
        if not self._append("".join(line + "\n" for line in lines if line)):
            return False
        self.progress.ring_tail = chunk.tail
        self.progress.also = chunk.also
        return True

    def close(self) -> None:
        """Write what is pending behind the last mark; a resumed log cuts it off again."""
        if self._size:
            lines = [*self._pending, rank_line(self._state)]
            self._append("".join(line + "\n" for line in lines if line))

    def finish(self, header: LogHeader) -> bool:
        """Compress the whole log, one complete header first, and remove the plain file."""
        unfinished = self.final_path.with_name(self.final_path.name + ".tmp")
        try:
            with open(self.path, "rb") as log, gzip.open(unfinished, "wb", 1) as packed:
                packed.write(header_line(header).encode() + b"\n")
                packed.writelines(line for line in log if not line.startswith((_MARK, _HEADER)))
            os.rename(unfinished, self.final_path)
            os.unlink(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            return False
        return True

    def _line(self, rank: int, row: Record) -> str:
        name = ""
        if row.kind == RecordKind.COLLECTIVE:
            name = self._name_by_index.get(row.group, f"group-{row.group}")
        line = record_line(rank, row, name)
        if line is None:
            self.progress.count("unnamed_kind", 1)
        return line or ""

    def _learn_groups(self, groups: Mapping[int, GroupFacts], world_size: int) -> bool:
        # In the order of the ring's metadata, so that a resumed log gives the same names.
        fresh = [index for index in groups if index not in self._name_by_index]
        for index in fresh:
            self._name_by_index[index] = self.names.name_of(_log_group(groups[index], world_size))
        return bool(fresh)

    def _append(self, text: str) -> bool:
        data = text.encode()
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            if os.write(fd, data) == len(data):
                self._size += len(data)
                return True
            os.ftruncate(fd, self._size)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self._size)
        finally:
            os.close(fd)
        return False

    def _resume(self) -> None:
        """Cut the log behind its last mark and go on from there."""
        with open(self.path, "r+b") as log:
            size = log.seek(0, os.SEEK_END)
            base = max(size - _TAIL_BYTES, 0)
            log.seek(base)
            data = log.read()
            end = len(data)
            while (start := data.rfind(_MARK, 0, end)) >= 0:
                stop = data.find(b"\n", start) + 1
                mark = _read_mark(data[start:stop]) if stop else None
                if mark is not None:
                    self.progress.ring_tail, self.progress.dropped, self.progress.also = mark
                    self._size = base + stop
                    break
                end = start
            log.truncate(self._size)


def _log_group(facts: GroupFacts, world_size: int) -> LogGroup:
    try:
        ranks = tuple(rank for rank in parse_ranks(facts.ranks) if rank < world_size)
    except InputError:
        ranks = ()
    return LogGroup(
        name=facts.name,
        ranks=ranks,
        epoch=facts.epoch,
        mesh_dim=facts.mesh_dim,
        backend=facts.backend,
    )


def _pending_row(one: InFlight) -> Record:
    flags = one.flags | Flag.NOT_WAITED
    return Record(
        RecordKind.COLLECTIVE, one.op, one.group, one.seq, one.step, one.peer, one.payload_bytes,
        one.start_ns, 0, 0, 0, flags,
    )  # fmt: skip


def _mark(tail: int, dropped: Mapping[str, int], also: Mapping[str, int]) -> str:
    mark: dict[str, object] = {"ring_tail": tail, "lost": dict(dropped)}
    if also:
        mark["also"] = dict(also)
    return json.dumps(mark, separators=(",", ":"))


def _read_mark(line: bytes) -> tuple[int, dict[str, int], dict[str, int]] | None:
    try:
        mark = json.loads(line)
        return int(mark["ring_tail"]), _counts(mark["lost"]), _counts(mark.get("also", {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _counts(read: Mapping[str, int]) -> dict[str, int]:
    return {str(key): int(count) for key, count in read.items()}
