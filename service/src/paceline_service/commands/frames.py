"""An imported job as frames of the wire, as if its ranks ran now."""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field

from paceline import __version__
from paceline.clock import wall_ns
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.event_log import LogTelemetry
from paceline.ranks import format_ranks
from paceline.vocabulary import RecordKind
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import MAX_RECORDS_PER_FRAME, Frame, GroupDef, Sample
from paceline_service.analysis.records import COLUMNS, Records
from paceline_service.importers.faults import HARMLESS
from paceline_service.importers.log import EventLog
from paceline_service.jobs.imported import Imported, Told, as_info

PRODUCER = f"paceline-replay {__version__}"
ROWS_PER_FRAME = MAX_RECORDS_PER_FRAME // 4
_MAX_NAME = 128
SAMPLES_PER_FRAME = 512
VALUES_PER_FRAME = 20_000
MAX_APART_NS = 600_000_000_000
"""Ranks of one job end within ten minutes of each other; beyond, their wall clocks are wrong."""
_GROUP = COLUMNS.index("group")
_START = COLUMNS.index("start_ns")


@dataclass(slots=True)
class _Sender:
    """What the frames of one rank need to keep in mind."""

    incarnation: str
    anchor: tuple[int, int]
    frame_seq: int = 0
    step: int = 0
    local_of_group: dict[int, int] = field(default_factory=dict)
    exactness_told: set[int] = field(default_factory=set)
    """Groups whose noise was sent."""
    telemetry: deque[LogTelemetry] = field(default_factory=deque)
    """What is not sent yet, by time."""

    def samples_until(self, time_ns: int | None) -> list[Sample]:
        """Take the next samples up to a time, or any; no more than a frame may hold."""
        samples: list[Sample] = []
        values = 0
        while self.telemetry and len(samples) < SAMPLES_PER_FRAME:
            sample = self.telemetry[0]
            values += len(sample.values)
            late = time_ns is not None and sample.time_ns > time_ns
            if late or (samples and values > VALUES_PER_FRAME):
                break
            self.telemetry.popleft()
            samples.append(Sample(sample.time_ns, dict(sample.values)))
        return samples


class ReplayFrames:
    """Makes the frames of a new attempt with a random ``run_id``.

    Args:
        log: the job.
        job: its name at the collector.
        end_wall_ns: when the last record is to have happened; None keeps the log's own times.
        told: how the report on the files differs from that on their records.

    Raises:
        InputError: the log's own times are wanted, and it has none.
    """

    def __init__(
        self, log: EventLog, *, job: str, end_wall_ns: int | None, told: Told | None = None
    ) -> None:
        self.job = job
        self._told = told
        self._begun_wall_ns = wall_ns() if end_wall_ns is None else 0
        self.run_id = f"replay-{secrets.token_hex(8)}"
        self._log = log
        self._senders = {
            rank: _Sender(incarnation=secrets.token_hex(16), anchor=anchor)
            for rank, anchor in _anchors(log, end_wall_ns).items()
        }
        for sample in sorted(log.telemetry, key=lambda sample: sample.time_ns):
            if sample.rank in self._senders:  # of a rank without records nothing is sent
                self._senders[sample.rank].telemetry.append(sample)

    def opening(self) -> Iterator[bytes]:
        """Yield a frame of each rank before any record, so that none seems to join late."""
        steps = self._log.options.settling_steps if self._log.options is not None else None
        for rank in self._senders:
            yield self._frame(rank, [], imported=Imported(settling_steps=steps))

    def of_records(self, records: Records) -> Iterator[bytes]:
        """Yield the frames of some records of one rank."""
        sender = self._senders[records.rank]
        columns = [getattr(records, name).tolist() for name in COLUMNS]
        rows = list(zip(*columns, strict=True))
        sender.step = max(sender.step, int(records.step.max(initial=0)))
        for start in range(0, len(rows), ROWS_PER_FRAME):
            part = rows[start : start + ROWS_PER_FRAME]
            samples = sender.samples_until(max(row[_START] for row in part))
            yield self._frame(records.rank, part, telemetry=samples)

    def last_of(self, rank: int) -> Iterator[bytes]:
        """Yield the frames behind the last record: how the rank ended and what was lost of it."""
        while samples := self._senders[rank].samples_until(None):
            yield self._frame(rank, [], telemetry=samples)
        # A log that does not tell how a rank ended ends, and so does the rank.
        ended = self._log.ended.get(rank) or "closed"
        dropped = dict(self._log.dropped.get(rank, {}))
        for reason, count in self._log.faults.by_rank.get(rank, {}).items():
            if reason not in HARMLESS:
                dropped[reason] = dropped.get(reason, 0) + count
        lowest = rank == min(self._senders)
        if lowest:
            for reason, count in self._lost_of_nobody().items():
                dropped[reason] = dropped.get(reason, 0) + count
        brought = Imported(told=self._told if lowest else None)
        yield self._frame(rank, [], ended=ended, dropped=dropped, imported=brought)

    def _lost_of_nobody(self) -> dict[str, int]:
        """Return what was lost of no known rank, by reason."""
        faults, lost = self._log.faults, {}
        for reason, count in faults.counts.items():
            more = count - sum(of_rank[reason] for of_rank in faults.by_rank.values())
            if more > 0 and reason not in HARMLESS:
                lost[reason] = more
        return lost

    def _frame(
        self,
        rank: int,
        rows: list[tuple[int, ...]],
        *,
        ended: str = "",
        dropped: dict[str, int] | None = None,
        telemetry: Sequence[Sample] = (),
        imported: Imported | None = None,
    ) -> bytes:
        sender, log = self._senders[rank], self._log
        imported = imported or Imported()
        local_rows = []
        used: dict[int, int] = {}
        for row in rows:
            if row[0] == RecordKind.COLLECTIVE:
                local = sender.local_of_group.setdefault(row[_GROUP], len(sender.local_of_group))
                used[local] = row[_GROUP]
                if row[_GROUP] in log.noise_ns and local not in sender.exactness_told:
                    sender.exactness_told.add(local)
                    imported.noise_ns[local] = log.noise_ns[row[_GROUP]]
                row = (*row[:_GROUP], local, *row[_GROUP + 1 :])
            local_rows.append(row)
        frame = Frame(
            job=self.job,
            run_id=self.run_id,
            attempt=0,
            rank=rank,
            world_size=log.world_size,
            incarnation=sender.incarnation,
            frame_seq=sender.frame_seq,
            node=log.nodes.get(rank, ""),
            producer=PRODUCER,
            count=len(rows),
            columns=encode_rows(local_rows),
            groups=[self._definition(local, index) for local, index in sorted(used.items())],
            clock_domain=log.clock_domains.get(rank, ""),
            anchor_mono_ns=sender.anchor[0],
            anchor_wall_ns=sender.anchor[1],
            sent_wall_ns=wall_ns(),
            read_mono_ns=self._read_ns(rank),
            step=sender.step,
            dropped=dropped or {},
            ended=ended,
            info={**log.info, **as_info(imported)},
            telemetry=list(telemetry),
        )
        sender.frame_seq += 1
        return encode_frame(frame)

    def _read_ns(self, rank: int) -> int:
        """Return when the frame is made on the rank's clock; 0 where its anchor tells.

        Of a job that keeps its times no rank is to seem silent for all the time since.
        """
        if not self._begun_wall_ns:
            return 0
        return self._log.extents[rank][1] + max(0, wall_ns() - self._begun_wall_ns)

    def _definition(self, local: int, index: int) -> GroupDef:
        group = self._log.groups[index]
        return GroupDef(
            index=local,
            name=group.name,
            ranks=format_ranks(group.ranks),
            epoch=group.epoch,
            mesh_dim=group.mesh_dim,
            backend=group.backend,
        )


def job_name(text: str) -> str:
    """Return ``text`` as a name that a collector accepts: ``[A-Za-z0-9._-]{1,128}``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")[:_MAX_NAME] or "replay"


def _anchors(log: EventLog, end_wall_ns: int | None) -> dict[int, tuple[int, int]]:
    """Return per rank one instant on both clocks, by which its times are shown.

    Ranks stay to each other as the log says; those of one clock get the same instant.
    """
    told = {rank: log.anchors[rank] for rank in log.extents if rank in log.anchors}
    if end_wall_ns is None:
        if len(told) < len(log.extents):
            raise InputError(
                "the files do not tell when the job ran by the wall clock; leave --at original out"
            )
        return told
    if len(told) == len(log.extents):
        ends = {rank: wall - mono + log.extents[rank][1] for rank, (mono, wall) in told.items()}
        if max(ends.values()) - min(ends.values()) <= MAX_APART_NS:
            shift_ns = end_wall_ns - max(ends.values())
            return {rank: (mono, wall + shift_ns) for rank, (mono, wall) in told.items()}
    latest: dict[str, int] = {}
    for rank, (_, last_ns) in log.extents.items():
        domain = log.clock_domains.get(rank, "")
        if domain:
            latest[domain] = max(latest.get(domain, 0), last_ns)
    return {
        rank: (latest.get(log.clock_domains.get(rank, ""), last_ns), end_wall_ns)
        for rank, (_, last_ns) in log.extents.items()
    }
