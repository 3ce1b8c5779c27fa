"""One dump of one rank: read with distrust, and brought into one form for all versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import msgspec

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.ranks import parse_ranks
from paceline_service.importers.flight_recorder.entry import Entry, entry_of
from paceline_service.importers.flight_recorder.plain import number, text
from paceline_service.importers.flight_recorder.safe_pickle import load_plain
from paceline_service.importers.flight_recorder.whose import rank_of
from paceline_service.importers.opening import open_binary

MAX_DUMP_BYTES = 256 << 20
"""Of one dump, unpacked; 20,000 entries with their stacks take about 100 MB."""
MAX_JSON_BYTES = 64 << 20
"""JSON dumps hold no stacks: 20,000 entries take 12 MB."""
MAX_ENTRIES = 1_000_000
MAX_GROUPS = 100_000
MAX_RANKS_TEXT = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What one rank dumped."""

    path: Path
    rank: int
    version: str
    groups: dict[str, tuple[str, tuple[int, ...]]]
    """By name: description and global ranks; empty where the backend does not tell (Gloo)."""
    counters: dict[int, tuple[int, int]]
    """By the rank's own number of a group: last issued and last finished collective."""
    entries: list[Entry] = field(default_factory=list)
    library: str = ""
    """Version of the communication library, where it is told."""
    written_ns: int = 0
    """When the file was last written, time of day: the dump is not younger."""

    @property
    def overwritten(self) -> int:
        """How many operations the ring no longer holds, as the numbers of its records tell."""
        return min((entry.record_id for entry in self.entries), default=0)


def read_dump(path: Path) -> Dump:
    """Return the dump at ``path``.

    Raises:
        InputError: it cannot be read, is too large, hostile, or not of one rank; the message
            names the file.
    """
    try:
        with open_binary(path) as file:
            data = file.read(MAX_DUMP_BYTES + 1)
    except (EOFError, OSError) as error:
        raise InputError(f"{path}: it is truncated or corrupt ({error})") from error
    if len(data) > MAX_DUMP_BYTES:
        raise InputError(
            f"{path}: over {MAX_DUMP_BYTES >> 20} MiB, unpacked; a Flight Recorder dump is smaller"
        )
    try:
        return _dump(path, load_plain(data) if data[:1] == b"\x80" else _json(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _json(data: bytes) -> object:
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"over {MAX_JSON_BYTES >> 20} MiB of JSON; a dump is smaller")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"its JSON is truncated or corrupt: {error}") from error


def _dump(path: Path, value: object) -> Dump:
    if not isinstance(value, Mapping):
        raise InputError("it holds no Flight Recorder dump but something else")
    listed = value.get("entries", [])
    if not isinstance(listed, list) or ("pg_status" not in value and "entries" not in value):
        raise InputError("it has neither entries nor pg_status: no Flight Recorder dump")
    if len(listed) > MAX_ENTRIES:
        raise InputError(f"{len(listed)} entries; at most {MAX_ENTRIES} are read")
    groups = _groups(value.get("pg_config"))
    members = [frozenset(ranks) for _, ranks in groups.values()]
    return Dump(
        path=path,
        rank=rank_of(path, frozenset.intersection(*members) if members else None),
        version=text(value.get("version"), 16),
        groups=groups,
        counters=_counters(value.get("pg_status")),
        entries=[entry for one in listed if (entry := entry_of(one)) is not None],
        library=text(value.get("comm_lib_version", value.get("nccl_version")), 40),
        written_ns=path.stat().st_mtime_ns,
    )


def _groups(config: object) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the groups; in the first versions the ranks stood where a mapping stands now."""
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}
    if not isinstance(config, Mapping) or len(config) > MAX_GROUPS:
        return groups
    for name, told in config.items():
        told = told if isinstance(told, Mapping) else {"ranks": told}
        if ranks := _ranks(told.get("ranks")):
            called = told.get("name", name)
            groups[str(called) if type(called) is int else text(called, 256)] = (
                text(told.get("desc"), 256), ranks,
            )  # fmt: skip
    return groups


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, list | tuple):
        known = [number(rank) for rank in value[: 1 << 20]]
        return tuple(rank for rank in known if rank is not None and rank >= 0)
    listed = text(value, MAX_RANKS_TEXT).strip("[] ").replace(" ", "")
    try:
        return parse_ranks(listed) if listed else ()
    except InputError:
        return ()


def _counters(status: object) -> dict[int, tuple[int, int]]:
    counters: dict[int, tuple[int, int]] = {}
    if not isinstance(status, Mapping) or len(status) > MAX_GROUPS:
        return counters
    for key, told in status.items():
        local = number(key)
        if local is None or not isinstance(told, Mapping):
            continue
        issued = number(told.get("last_enqueued_collective"))
        finished = number(told.get("last_completed_collective"))
        if issued is not None:
            counters[local] = (issued, -1 if finished is None else finished)
    return counters
