"""XIDs of GPUs and SXids of NVSwitches, from the kernel log."""

from __future__ import annotations

import errno
import logging
import os
import re
from pathlib import Path
from typing import NamedTuple

from paceline import telemetry as names
from paceline.sidecar.telemetry.reading import pci_address
from paceline.telemetry import Values

_log = logging.getLogger("paceline.sidecar")
MAX_RECORDS_PER_READ = 20_000
HISTORY_NS = 600_000_000_000
"""What is older when the sidecar starts is not told: it is not of this job."""
_RECORD_BYTES = 8192
_XID = re.compile(r"NVRM: Xid \((?P<pci>[^)]*)\): (?P<number>[0-9]{1,6})(?:, (?P<rest>.*))?")
_SXID = re.compile(r"SXid \((?P<pci>[^)]*)\): (?P<number>[0-9]{1,7})(?:, (?P<rest>.*))?")
_PID = re.compile(r"pid='?(?P<pid>[^',]*)'?(?:, |\Z)")
_PROCESS = re.compile(r"name=(?P<name>[^,]*)(?:, |\Z)")


class KernelEvent(NamedTuple):
    """One line of the kernel log that is about a GPU or a switch."""

    time_ns: int
    pci: str
    values: Values


class KernelLog:
    """Reads ``path`` as far as it goes, without ever waiting for more.

    The kernel stamps with its scheduler's clock, which may be some milliseconds off the monotonic
    one after a long time. What was written while this watches is told as between two reads.
    """

    def __init__(self, path: Path, now_ns: int) -> None:
        self.path = path
        self.overrun = 0
        """How often the kernel log came round before it was read."""
        self.problem = ""
        self._oldest_ns = now_ns - HISTORY_NS
        self._caught_up_ns = 0
        self._rest = b""
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"
            if error.errno != errno.ENOENT:
                _log.warning("XIDs are not seen: cannot read the kernel log %s", self.problem)

    def read(self, now_ns: int) -> list[KernelEvent]:
        """Return the events since the last call."""
        events = []
        for _ in range(MAX_RECORDS_PER_READ):
            lines, more = self._lines()
            for line in lines:
                event = parse_record(line)
                if event is not None and event.time_ns >= self._oldest_ns:
                    time_ns = min(max(event.time_ns, self._caught_up_ns), now_ns)
                    events.append(event._replace(time_ns=time_ns))
            if not more:
                self._caught_up_ns = now_ns
                break
        return events

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lines(self) -> tuple[list[str], bool]:
        if self._fd < 0:
            return [], False
        try:
            data = os.read(self._fd, _RECORD_BYTES)  # the device gives one record a call
        except BlockingIOError:
            return [], False
        except OSError as error:
            if error.errno == errno.EPIPE:  # it goes on with the oldest that is left
                self.overrun += 1
                return [], True
            self.problem = f"{self.path}: {error.strerror}"
            if error.errno not in (errno.EINVAL, errno.EINTR):
                _log.warning("XIDs are no longer seen: %s", self.problem)
                self.close()
            return [], False
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_RECORD_BYTES:]
        return [line.decode("utf-8", errors="replace") for line in whole], bool(data)


def parse_record(line: str) -> KernelEvent | None:
    """Return what one record of /dev/kmsg tells of a GPU or switch, or None."""
    head, separator, message = line.partition(";")
    if not separator or "Xid (" not in message:
        return None
    fields = head.split(",")
    try:
        time_ns = int(fields[2]) * 1000
    except (IndexError, ValueError):
        return None
    found = parse_message(message)
    return None if found is None else KernelEvent(time_ns, *found)


def parse_message(message: str) -> tuple[str, Values] | None:
    """Return PCI address and values of one message of the NVIDIA driver, or None."""
    if match := _SXID.search(message):
        pci = pci_address(match["pci"])
        values: Values = {names.SXID: int(match["number"]), names.SXID_PCI: pci}
        if match["rest"]:
            values[names.SXID_TEXT] = match["rest"].strip()[: names.MAX_TEXT_CHARS]
        return pci, values
    match = _XID.search(message)
    if match is None:
        return None
    pci = pci_address(match["pci"].split(" ")[0])  # behind it: the MIG instance
    values = {names.XID: int(match["number"]), names.XID_PCI: pci}
    rest = match["rest"] or ""
    if of := _PID.match(rest):
        rest = rest[of.end() :]
        if of["pid"].isdigit() and len(of["pid"]) < 11:
            values[names.XID_PID] = int(of["pid"])
        if of := _PROCESS.match(rest):
            rest = rest[of.end() :]
            if "unknown" not in of["name"]:
                values[names.XID_PROCESS] = of["name"].strip("'")
    if rest:
        values[names.XID_TEXT] = rest.strip()[: names.MAX_TEXT_CHARS]
    return pci, values
