"""Reads a trace piece by piece: never more of it in memory than some megabytes."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Protocol, cast

import msgspec

from paceline_service.importers.kineto.event import Event, decode_event, decode_events
from paceline_service.importers.opening import open_binary

PIECE_BYTES = 1 << 20
MAX_VALUE_BYTES = 32 << 20
"""Of one event or one value beside the events; logs that a trace carries along take megabytes."""
MAX_UNPACKED_RATIO = 200
"""A trace is 15 to 30 times as long as its gzip file; gigabytes of one letter are 1,000 times."""
_ALWAYS_UNPACKED_BYTES = 64 << 20
_SPLITS_TRIED = 4
_BOUNDARY = re.compile(rb"\},\s*\{")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
"""A string, or a bracket; a quotation mark alone opens a string that is not at hand to its end."""
_SPACE = re.compile(rb"[\s,:]*")
_SCALAR = re.compile(rb"[^\s,}\]]+")
_KEPT = frozenset({"schemaVersion", "distributedInfo", "baseTimeNanoseconds", "host_name",
                   "trace_id", "traceName"})  # fmt: skip


class Listener(Protocol):
    """Hears what is wrong with a file, and how far it was read (``Faults`` does)."""

    def advanced(self, packed_bytes: int) -> None:
        """Hear that so many more bytes were read."""

    def add(self, reason: str, path: Path, line: int | None, message: str) -> None:
        """Hear what could not be read."""


class TraceFile:
    """One trace; ``batches`` gives its events, and fills ``metadata`` on the way.

    Args:
        path: plain or gzip JSON, an object with ``traceEvents`` or a list of events.
        faults: told what could not be read; what was read before it counts.
    """

    def __init__(self, path: Path, faults: Listener) -> None:
        self.path = path
        self.metadata: dict[str, object] = {}
        self.whole = True
        """Whether the file came to its end as it should."""
        self._faults = faults
        self._buffer = b""
        self._at = 0
        self._read_bytes = 0
        self._packed_bytes = max(path.stat().st_size, 1) if path.is_file() else 1
        self._ended = False

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events in the order of the file.

        Raises:
            InputError: the file cannot be opened.
        """
        with open_binary(self.path, self._faults.advanced) as file:
            self._file = cast(BufferedReader, file)
            self._fill()
            if self._buffer.startswith((b"\xff\xfe", b"\xfe\xff")):
                self._fault("encoding", "UTF-16; a trace is UTF-8: convert it")
                return
            self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf")
            first = self._next_byte()
            if first == b"[":
                self._at += 1
                yield from self._events()
            elif first == b"{":
                self._at += 1
                yield from self._members()
            elif first or self.whole:
                self._fault("no_json", "neither a JSON object nor a list" if first else "empty")

    def _members(self) -> Iterator[list[Event]]:
        """Go over the members of the outermost object."""
        while True:
            first = self._next_byte()
            if first == b"}":
                return
            key = self._value() if first == b'"' else None
            if key is None:
                self._torn("the file ends before its JSON does")
                return
            name = key.strip(b'"').decode(errors="replace")
            first = self._next_byte()
            if name == "traceEvents" and first == b"[":
                self._at += 1
                yield from self._events()
                if not self.whole:
                    return
                continue
            value = self._value()
            if value is None:
                self._torn(f"the file ends within {name[:40]!r}")
                return
            if name in _KEPT:
                try:
                    self.metadata[name] = msgspec.json.decode(value)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self._fault("no_json", f"{name} is no JSON")

    def _events(self) -> Iterator[list[Event]]:
        """Go over the list of events, up to and with its closing bracket."""
        while True:
            if len(self._buffer) - self._at < PIECE_BYTES:
                self._fill()
            batch = self._fast()
            if batch:
                yield batch
                continue
            batch = []
            ended = self._slow(batch)
            if batch:
                yield batch
            if ended:
                return

    def _fast(self) -> list[Event]:
        """Decode up to the last boundary between events; a wrong guess of it is no JSON."""
        end = len(self._buffer)
        for _ in range(_SPLITS_TRIED):
            end = self._buffer.rfind(b"},", self._at, end)
            if end < 0:
                return []
            if not _BOUNDARY.match(self._buffer, end):
                continue
            try:
                text = memoryview(self._buffer)[self._at : end + 1]
                events = decode_events(b"".join((b"[", text, b"]")))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            self._at = end + 2
            return events
        return []

    def _slow(self, batch: list[Event]) -> bool:
        """Decode one by one what is at hand, and say whether the list has ended."""
        done = 0
        while done < PIECE_BYTES:
            first = self._next_byte()
            if first == b"]":
                self._at += 1
                return True
            text = self._value() if first else None
            if text is None:
                self._torn("the file ends within its events")
                return True
            done += len(text)
            event = decode_event(text)
            if event is None:
                self._fault("no_json", f"no JSON: {text[:60].decode(errors='replace')!r}")
            else:
                batch.append(event)
        return False

    def _next_byte(self) -> bytes:
        """Return the next byte that is neither space, comma nor colon; empty at the end."""
        while True:
            match = _SPACE.match(self._buffer, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._fill():
                return b""

    def _value(self) -> bytes | None:
        """Return the text of the value that begins here and go behind it; None if it is torn."""
        while True:
            end = self._value_end()
            if end >= 0:
                text = self._buffer[self._at : end]
                self._at = end
                return text
            if len(self._buffer) - self._at > MAX_VALUE_BYTES:
                self._fault("too_long", f"a value of more than {MAX_VALUE_BYTES} bytes; the rest "
                            "of the file is left out")  # fmt: skip
                self.whole = False
                return None
            if not self._fill():
                return None

    def _value_end(self) -> int:
        """Return where the value ends that begins here, -1 when that is not at hand yet."""
        first = self._buffer[self._at : self._at + 1]
        if first not in (b"{", b"[", b'"'):
            match = _SCALAR.match(self._buffer, self._at)
            if match is None:
                return self._at + 1  # a stray bracket: taken as a value, which is no event
            return match.end() if match.end() < len(self._buffer) or self._ended else -1
        depth = 0
        for token in _TOKEN.finditer(self._buffer, self._at):
            sign = token[0]
            if sign in (b"{", b"["):
                depth += 1
            elif sign in (b"}", b"]"):
                depth -= 1
            elif sign == b'"':
                return -1
            if depth == 0:
                return token.end()
        return -1

    def _fill(self) -> bool:
        """Read on; False at the end of the file, or where it cannot be read on."""
        if self._ended:
            return False
        # A long value is read in doubling pieces: it is looked through again after each.
        wanted = max(PIECE_BYTES, len(self._buffer) - self._at)
        more = bytearray()
        try:
            # Bit by bit, so that what comes before a damaged place is not lost with it.
            while len(more) < wanted and (bit := self._file.read1(wanted - len(more))):
                more += bit
        except (EOFError, OSError, zlib.error) as error:
            why = "corrupt" if isinstance(error, gzip.BadGzipFile | zlib.error) else "truncated"
            self._fault("truncated_file", f"the gzip file is {why}; what is before is used")
            self.whole = False
        self._read_bytes += len(more)
        if self._read_bytes > max(_ALWAYS_UNPACKED_BYTES, MAX_UNPACKED_RATIO * self._packed_bytes):
            self._fault(
                "too_long",
                f"it unpacks to more than {MAX_UNPACKED_RATIO} times its size, which no trace "
                "does; what is before is used",
            )
            self.whole, more = False, bytearray()
        self._ended = len(more) < wanted
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        return bool(more)

    def _torn(self, message: str) -> None:
        if self.whole:
            self._fault("truncated_file", f"{message}; what is before is used")
        self.whole = False

    def _fault(self, reason: str, message: str) -> None:
        self._faults.add(reason, self.path, None, message)
