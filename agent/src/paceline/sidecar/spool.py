"""The spool: frames on disk until the collector has acknowledged them (docs/sidecar.md).

An entry carries the frame together with the index in the ring behind it: what is in the spool is
never read from a ring again, and what is not is still there. Nothing is flushed to the platter: the
page cache outlives a killed sidecar, and rings do not outlive a power cut.

One thread appends, another sends; every public method may be called from either.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.sidecar.ack import AckFile
from paceline.sidecar.aside import Aside
from paceline.sidecar.locks import DirectoryLock
from paceline.sidecar.progress import Progress
from paceline.sidecar.recovery import recover
from paceline.sidecar.segment import (
    Damage,
    Entry,
    Mark,
    bundle_entry,
    checkpoint_entry,
    entries,
    frame_entry,
    segment_name,
)

_log = logging.getLogger("paceline.sidecar")
_MAX_SEGMENT_BYTES = 8 << 20
_READ_AHEAD_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBatch:
    """Frames of one segment that are to be sent together."""

    segment: int
    end: int
    frames: list[Entry]
    of: str = ""
    """The incarnation whose frames, set aside before, these are; empty: those of everybody."""

    @property
    def body(self) -> bytes:
        """The frames back to back."""
        return b"".join(entry.body for entry in self.frames)


class Spool:
    """Segments in ``directory``, together at most ``limit_bytes``.

    Raises:
        ConfigError: the directory cannot be used, or another process uses it.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(_MAX_SEGMENT_BYTES, limit_bytes // 8)
        self._lock = threading.RLock()
        self._in_flight = -1
        self._refused: list[tuple[Entry, str]] = []
        self._owner = DirectoryLock(directory / "spool.lock")
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._owner.take():
                raise ConfigError(f"another sidecar uses the spool {directory}: give --spool-dir")
            found = recover(directory)
            self._ack = AckFile(directory)
        except OSError as error:
            raise ConfigError(
                f"cannot use the spool {directory}: {error}; give --spool-dir or set "
                "PACELINE_SPOOL_DIR to a directory that this user can write"
            ) from error
        self._sizes = found.sizes
        self.progress: dict[str, Progress] = found.progress
        """By incarnation, for the rings that are followed."""
        self._acked = self._ack.read(self._sizes)
        self._passed = self._acked
        """Before it, all frames are delivered but those that are set aside."""
        self._aside = Aside()
        self._fd = -1
        self._full = False
        self._closed = False
        self._current = max(self._sizes, default=self._acked[0])
        self._open_segment(self._current)

    def append(
        self,
        frame: bytes,
        *,
        incarnation: str,
        ring_tail: int,
        records: int,
        ended: bool,
        also: Mapping[str, int] | None = None,
    ) -> bool:
        """Store one frame and move the progress of its incarnation, and of second rings with it.

        Returns:
            Whether it is stored. If not, disk and limit leave no room: leave the records in the
            ring and try again later.
        """
        with self._lock:
            progress = self.progress.setdefault(incarnation, Progress())
            entry = frame_entry(
                frame,
                incarnation=incarnation,
                frame_seq=progress.next_seq,
                ring_tail=ring_tail,
                records=records,
                ended=ended,
                also=also or {},
            )
            if not self._write(entry):
                return False
            progress.move(progress.next_seq, ring_tail, ended=ended, also=also or {})
            return True

    def append_bundle(self, bundle: bytes, *, stream: str, seq: int, marks: Sequence[Mark]) -> bool:
        """Store one bundle and move the progress of every ring in it; see ``append``."""
        with self._lock:
            if not self._write(bundle_entry(bundle, stream=stream, seq=seq, marks=marks)):
                return False
            for mark in marks:
                progress = self.progress.setdefault(mark.incarnation, Progress())
                progress.move(mark.frame_seq, mark.ring_tail, ended=mark.ended, also=mark.also)
            return True

    def forget(self, incarnation: str) -> None:
        """Drop the progress of a ring that no longer exists."""
        with self._lock:
            self.progress.pop(incarnation, None)

    def next_batch(self, max_bytes: int) -> SendBatch | None:
        """Return the oldest frames that are not acknowledged, or None when there are none.

        Those of processes that are set aside are passed over.
        """
        with self._lock:
            while not self._closed and (segment := self._passed[0]) <= self._current:
                offset = self._passed[1]
                want = min(self._sizes.get(segment, 0) - offset, max_bytes + _READ_AHEAD_BYTES)
                data = self._read(segment, offset, want) if want > 0 else b""
                batch = self._select(segment, offset, data, max_bytes)
                if batch.frames:
                    self._in_flight = segment
                    return batch
                if batch.end == offset:
                    if segment == self._current:
                        return None
                    self._pass(self._following(segment), 0)
                else:
                    self._pass(segment, batch.end)
            return None

    def next_aside(self, max_bytes: int) -> SendBatch | None:
        """Return frames that were set aside, of one process; None when each had its turn."""
        with self._lock:
            while not self._closed and (turn := self._aside.next_turn()) is not None:
                incarnation, (segment, offset) = turn
                here = segment == self._passed[0]
                size = self._passed[1] if here else self._sizes.get(segment, 0)
                want = min(size - offset, max_bytes + _READ_AHEAD_BYTES)
                data = self._read(segment, offset, want) if want > 0 else b""
                batch = self._select(segment, offset, data, max_bytes, of=incarnation)
                if batch.frames:
                    self._in_flight = segment
                    return batch
                until = (segment, batch.end)
                if batch.end == offset:
                    until = self._passed if here else (self._following(segment), 0)
                self._aside.delivered(incarnation, until, self._passed)
                self._note_acknowledged()
            return None

    def set_aside_due(self) -> None:
        """Say that what was set aside may be tried again."""
        with self._lock:
            self._aside.due_again()

    @property
    def any_aside(self) -> bool:
        """Whether frames are set aside."""
        with self._lock:
            return bool(self._aside)

    def acknowledge(
        self, batch: SendBatch, refused: list[tuple[Entry, str]], forbidden: Sequence[Entry] = ()
    ) -> None:
        """Take a batch out: it is stored at the collector, but for what it ``refused``.

        The processes of ``forbidden`` frames are set aside: others go on, and these are kept.
        """
        with self._lock:
            if self._closed:
                return
            self._in_flight = -1
            self._refused += refused
            if batch.of and forbidden:
                self._aside.refused()
            elif batch.of:
                self._aside.delivered(batch.of, (batch.segment, batch.end), self._passed)
                self._note_acknowledged()
            elif (batch.segment, batch.end) > self._passed:
                self._aside.put(batch.segment, forbidden)
                self._pass(batch.segment, batch.end)

    def release(self) -> None:
        """Say that the batch in flight was not delivered; it will be given out again."""
        with self._lock:
            self._in_flight = -1

    def settle(self) -> None:
        """Count what the collector refused. Called by the thread that appends."""
        with self._lock:
            refused, self._refused = self._refused, []
            for entry, reason in refused:
                self._count_lost(entry, reason)
            if refused:
                self._write(checkpoint_entry(self.progress))

    @property
    def unacknowledged_bytes(self) -> int:
        """How much is still to be sent."""
        with self._lock:
            behind = sum(size for number, size in self._sizes.items() if number >= self._acked[0])
            return behind - self._acked[1]

    def close(self) -> None:
        """Close the files; remove them when nothing is left to send and no ring is followed."""
        with self._lock:
            if self._closed:
                return
            nothing_left = self.next_batch(1) is None and not self._aside and not self.progress
            self._closed = True
            os.close(self._fd)
            self._ack.close()
            if nothing_left:
                for number in list(self._sizes):
                    self._remove(number)
                for name in (self._ack.path.name, self._owner.path.name):
                    with contextlib.suppress(OSError):
                        os.unlink(self._directory / name)
                with contextlib.suppress(OSError):
                    os.rmdir(self._directory)
            self._owner.release()

    def _write(self, entry: bytes) -> bool:
        try:
            size = self._sizes[self._current]
            if size and size + len(entry) > self._segment_bytes:
                self._rotate()
            written = self._make_room(len(entry)) and self._put(entry)
            written = written or (self._drop_oldest() and self._put(entry))
        except OSError as error:
            _log.debug("spool: %s", error)
            written = False
        if self._full == written:  # told once when it begins, once when it is over
            self._full = not written
            text = "takes frames again" if written else "takes no frame: records stay in the rings"
            _log.warning("the spool %s %s", self._directory, text)
        return written

    def _make_room(self, wanted_bytes: int) -> bool:
        while sum(self._sizes.values()) + wanted_bytes > self._limit_bytes:
            if not self._drop_oldest():
                return False
        return True

    def _put(self, data: bytes) -> bool:
        size = self._sizes[self._current]
        with contextlib.suppress(OSError):
            if (written := os.write(self._fd, data)) == len(data):
                self._sizes[self._current] = size + written
                return True
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, size)
        return False

    def _rotate(self) -> None:
        before = self._current
        self._open_segment(before + 1)
        if self._passed == (before, self._sizes[before]):
            self._pass(self._current, 0)

    def _open_segment(self, number: int) -> None:
        path = self._directory / segment_name(number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._current = fd, number
        self._sizes.setdefault(number, 0)
        self._put(checkpoint_entry(self.progress))  # older segments may go: their progress stays

    def _drop_oldest(self) -> bool:
        candidates = [n for n in sorted(self._sizes) if n not in (self._current, self._in_flight)]
        if not candidates:
            return False
        number = candidates[0]
        offset = self._acked[1] if number == self._acked[0] else 0
        lost = 0
        if number >= self._acked[0]:
            for entry in entries(self._read(number, offset, self._sizes[number] - offset), offset):
                if isinstance(entry, Entry) and entry.is_sent and self._is_left(entry, number):
                    self._count_lost(entry, "spool_full")
                    lost += entry.records
        self._remove(number)
        following = self._following(number)
        self._aside.removed(number, following)
        self._pass(*((following, 0) if self._passed[0] == number else self._passed))
        if lost:
            _log.warning(
                "the spool is full (%d bytes): dropped the oldest %d records; make the collector "
                "reachable or give --spool-bytes",
                self._limit_bytes,
                lost,
            )
            self._put(checkpoint_entry(self.progress))
        return True

    def _is_left(self, entry: Entry, segment: int) -> bool:
        if (segment, entry.start) >= self._passed:
            return True
        return self._aside.is_left(entry, segment)

    def _count_lost(self, entry: Entry, reason: str) -> None:
        for incarnation, records in entry.losses:
            if (progress := self.progress.get(incarnation)) is not None:
                progress.count(reason, records)
            elif records:  # its last frame is stored already: only the log can tell
                _log.warning("lost %d records of an ended rank (%s)", records, reason)

    def _select(
        self, segment: int, offset: int, data: bytes, max_bytes: int, of: str = ""
    ) -> SendBatch:
        frames: list[Entry] = []
        total, end = 0, offset
        for entry in entries(data, offset):
            if isinstance(entry, Damage):
                whole = offset + len(data) >= self._sizes[segment]
                if entry.end < offset + len(data) or whole or not frames:
                    _log.warning("%d damaged bytes in the spool", entry.end - entry.start)
                    end = entry.end
                    continue
                break
            wanted = entry.incarnation == of if of else entry.incarnation not in self._aside
            if entry.is_sent and wanted:
                if frames and total + len(entry.body) > max_bytes:
                    break
                frames.append(entry)
                total += len(entry.body)
            end = entry.end
        return SendBatch(segment=segment, end=end, frames=frames, of=of)

    def _read(self, segment: int, offset: int, size: int) -> bytes:
        try:
            with open(self._directory / segment_name(segment), "rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            _log.error("cannot read the spool: %s", error)
            return b""

    def _following(self, segment: int) -> int:
        return min((n for n in self._sizes if n > segment), default=self._current)

    def _pass(self, segment: int, offset: int) -> None:
        if segment != self._current and offset >= self._sizes.get(segment, 0):
            segment, offset = self._following(segment), 0
        self._passed = (segment, offset)
        self._note_acknowledged()

    def _note_acknowledged(self) -> None:
        first = self._aside.first(self._passed)
        if first > self._acked:
            self._advance(*first)

    def _advance(self, segment: int, offset: int) -> None:
        if segment != self._current and offset >= self._sizes.get(segment, 0):
            segment, offset = self._following(segment), 0
        self._acked = (segment, offset)
        self._ack.write(segment, offset)
        for number in [n for n in self._sizes if n < segment]:
            self._remove(number)

    def _remove(self, number: int) -> None:
        self._sizes.pop(number, None)
        with contextlib.suppress(OSError):
            os.unlink(self._directory / segment_name(number))
