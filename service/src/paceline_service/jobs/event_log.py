"""The stored frames of an attempt as an event log, streamed page by page."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping

from paceline.event_log import GroupNames, LogGroup, LogHeader, LogRank, LogTelemetry
from paceline.vocabulary import Flag, RecordKind
from paceline.wire.frames import Sample
from paceline_service.analysis.matching.table import Table, runs_of_ranks
from paceline_service.analysis.records import Group, Int64Array, Records, records_from_rows
from paceline_service.export.event_log import LogItem, event_log_lines
from paceline_service.jobs.feed import FrameFeed
from paceline_service.jobs.newest import cleaned
from paceline_service.jobs.source import FrameSource, Missing
from paceline_service.store.frames import AttemptRef, CommittedFrame

MEDIA_TYPE = "application/x-ndjson"


class _LogSink:
    """Takes what a ``JobAnalysis`` would take, and keeps it for the next lines."""

    def __init__(self) -> None:
        self.records: list[Records] = []
        self.telemetry: list[LogTelemetry] = []
        self.names: list[str] = []
        self.group_names = GroupNames()
        self.nodes: dict[int, str] = {}
        self.clock_domains: dict[int, str] = {}
        self.ended: dict[int, str] = {}
        self.dropped: dict[int, Mapping[str, int]] = {}
        self.pending: dict[int, Int64Array] = {}
        self.now_ns: dict[int, int] = {}
        self.header_is_old = True
        self._index: dict[Group, int] = {}

    def settle_after(self, steps: int) -> None:
        """Nothing is judged here."""

    def assume_noise(self, group: int, noise_ns: int) -> None:
        """Nothing is judged here."""

    def declare_rank(self, rank: int, *, node: str = "", clock_domain: str = "") -> None:
        """Take where a rank runs."""
        if node:
            self.nodes[rank] = node
        if clock_domain:
            self.clock_domains[rank] = clock_domain
        self.header_is_old = True

    def declare_group(self, group: Group) -> int:
        """Return the index of a group, and give it a name in the log."""
        if group not in self._index:
            self._index[group] = len(self.names)
            self.names.append(
                self.group_names.name_of(
                    LogGroup(
                        name=group.name, ranks=group.ranks, epoch=group.epoch,
                        mesh_dim=group.mesh_dim,
                    )
                )
            )  # fmt: skip
            self.header_is_old = True
        return self._index[group]

    def add_table(self, table: Table) -> None:
        """Take records."""
        for records in runs_of_ranks(table):
            self.records.append(records)
            self.ended.pop(records.rank, None)

    def add_telemetry(self, rank: int, samples: list[Sample]) -> None:
        """Take samples."""
        self.telemetry += [
            LogTelemetry(rank=rank, time_ns=time_ns, values=values)
            for time_ns, values in cleaned(samples)
        ]

    def rank_ended(self, rank: int, how: str) -> None:
        """Take how a rank ended."""
        self.ended[rank] = how

    def note_dropped(self, rank: int, dropped: Mapping[str, int]) -> None:
        """Take what a rank lost."""
        self.dropped[rank] = dict(dropped)

    def note_pending(
        self,
        rank: int,
        pending: Int64Array,
        *,
        now_ns: int,
        heard_wall_ns: int,
        step: int,
        checkpoint_ns: int,
    ) -> None:
        """Take what a rank is in; the newest counts."""
        self.pending[rank], self.now_ns[rank] = pending, now_ns

    def unfinished(self) -> list[Records]:
        """Return what is pending at the end as records without one."""
        flags = int(Flag.NOT_WAITED)
        return [
            records_from_rows(
                rank,
                [
                    (int(RecordKind.COLLECTIVE), op, group, seq, step, peer, size, start_ns, 0, 0,
                     0, flags)
                    for group, op, seq, step, peer, size, start_ns in rows.tolist()
                ],
            )
            for rank, rows in sorted(self.pending.items())
            if len(rows) and self.ended.get(rank) != "closed"
        ]  # fmt: skip


async def event_log(
    attempt: AttemptRef, source: FrameSource, *, gzip: bool
) -> AsyncIterator[bytes]:
    """Yield an attempt's event log in chunks, gzipped if asked for."""
    writer = _Writer(attempt, await source.missing(attempt))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31) if gzip else None
    after_id, more = 0, True
    while more:
        page = await source.page(attempt, after_id)
        more = bool(page)
        after_id = page[-1].id if page else after_id
        chunk = await asyncio.to_thread(writer.lines, page)
        if packer is not None:
            chunk = packer.compress(chunk)
        if chunk:
            yield chunk
    if packer is not None:
        yield packer.flush()


class _Writer:
    def __init__(self, attempt: AttemptRef, missing: Missing) -> None:
        self._attempt = attempt
        self._sink = _LogSink()
        self._feed = FrameFeed(
            attempt, self._sink, wait_ns=0, missing=missing,
            on_telemetry=self._sink.add_telemetry,
        )  # fmt: skip

    def lines(self, page: list[CommittedFrame]) -> bytes:
        """Return the lines of the next frames; of none: what is left at the end."""
        sink = self._sink
        for committed in page:
            self._feed.push(committed)
        self._feed.settle()
        items: list[LogItem] = [*sink.records, *sink.telemetry]
        sink.records.clear()
        sink.telemetry.clear()
        if not page:
            items += sink.unfinished()
            items += [
                LogRank(
                    rank=rank,
                    ended=sink.ended.get(rank, ""),
                    dropped=sink.dropped.get(rank, {}),
                    now_ns=0 if sink.ended.get(rank) == "closed" else sink.now_ns.get(rank, 0),
                )
                for rank in sorted(sink.ended.keys() | sink.dropped.keys() | sink.now_ns.keys())
            ]
        header = LogHeader(
            world_size=self._attempt.world_size,
            groups=sink.group_names.groups,
            nodes=sink.nodes,
            clock_domains=sink.clock_domains,
            job=self._attempt.job,
            run_id=self._attempt.run_id,
            attempt=self._attempt.launch_attempt,
        )
        lines = event_log_lines(header, sink.names, items)
        if not sink.header_is_old:
            next(lines)
        sink.header_is_old = False
        return "".join(lines).encode()
