"""One dump of one rank: read with distrust, and brought into one form for all versions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import InputError
from paceline.ranks import parse_ranks
from paceline.vocabulary import Op
from paceline_service.importers.flight_recorder.safe_pickle import load_plain
from paceline_service.importers.lines import open_binary

MAX_DUMP_BYTES = 256 << 20
"""Of one dump, unpacked; 20,000 entries with their stacks take about 100 MB."""
MAX_ENTRIES = 1_000_000
MAX_NUMBER = 1 << 62
_LAST_NUMBER = re.compile(r"(\d{1,7})\D*$")
_PAIR = re.compile(r"(\d{1,7})\s*(?:->|<-)\s*(\d{1,7})")
_OP_WORDS = (
    # The first that is in the name decides.
    ("reduce_scatter", Op.REDUCE_SCATTER), ("barrier", Op.BARRIER), ("allreduce", Op.ALL_REDUCE),
    ("all_reduce", Op.ALL_REDUCE), ("allgather", Op.ALL_GATHER), ("all_gather", Op.ALL_GATHER),
    ("alltoall", Op.ALL_TO_ALL), ("all_to_all", Op.ALL_TO_ALL), ("broadcast", Op.BROADCAST),
    ("send", Op.SEND), ("recv", Op.RECV), ("scatter", Op.SCATTER), ("gather", Op.GATHER),
    ("reduce", Op.REDUCE),
)  # fmt: skip
_DTYPE_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4,
    "Half": 2, "BFloat16": 2, "Short": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One operation of the recorder's ring."""

    pg_id: int
    group_name: str
    group_desc: str
    op: Op
    seq: int
    pair: tuple[int, int] | None
    """Of a send or recv: (own, other) rank within the group."""
    payload_bytes: int
    created_ns: int
    done: bool
    is_p2p: bool
    place: str
    """Innermost line of the caller that the dump names, or empty."""


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
        value = load_plain(data) if data[:1] == b"\x80" else _json(data)
        return _dump(path, value)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _json(data: bytes) -> object:
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
    return Dump(
        path=path,
        rank=_rank(path, groups),
        version=str(value.get("version", ""))[:16],
        groups=groups,
        counters=_counters(value.get("pg_status")),
        entries=[entry for one in listed if (entry := _entry(one)) is not None],
    )


def _groups(config: object) -> dict[str, tuple[str, tuple[int, ...]]]:
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}
    if not isinstance(config, Mapping):
        return groups
    for name, told in config.items():
        if not isinstance(told, Mapping):
            continue
        text = str(told.get("ranks", "")).strip("[] ").replace(" ", "")
        try:
            ranks = parse_ranks(text) if text else ()
        except InputError:
            ranks = ()
        if ranks:
            groups[str(told.get("name", name))] = (str(told.get("desc", "")), ranks)
    return groups


def _rank(path: Path, groups: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """Return whose dump it is: the last number of the file's name, which the groups must allow."""
    members = [frozenset(ranks) for _, ranks in groups.values()]
    possible = frozenset.intersection(*members) if members else None
    stem = path.name
    for suffix in (".gz", ".json", ".pickle", ".pkl"):
        stem = stem.removesuffix(suffix)
    found = _LAST_NUMBER.search(stem)
    if found is not None:
        rank = int(found[1])
        if possible is None or rank in possible:
            return rank
        raise InputError(
            f"its name says rank {rank}, which is not in all of its groups; name dumps after "
            "their rank, for example dump_0"
        )
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    raise InputError("no rank in its name; name dumps after their rank, for example dump_0")


def _counters(status: object) -> dict[int, tuple[int, int]]:
    counters: dict[int, tuple[int, int]] = {}
    if not isinstance(status, Mapping):
        return counters
    for number, told in status.items():
        local = _number(number)
        if local is None or not isinstance(told, Mapping):
            continue
        issued = _number(told.get("last_enqueued_collective"))
        finished = _number(told.get("last_completed_collective"))
        if issued is not None:
            counters[local] = (issued, -1 if finished is None else finished)
    return counters


def _entry(value: object) -> Entry | None:
    if not isinstance(value, Mapping):
        return None
    pg_id = _number(value.get("pg_id"))
    name = str(value.get("profiling_name", ""))[:200]
    is_p2p = value.get("is_p2p") is True
    key = "collective_seq_id" if "collective_seq_id" in value else "seq_id"
    seq = _number(value.get("p2p_seq_id" if is_p2p and "p2p_seq_id" in value else key))
    if pg_id is None or seq is None:
        return None
    group = value.get("process_group", ("", ""))
    parts = [str(part)[:256] for part in group[:2]] if isinstance(group, list | tuple) else []
    parts += [""] * (2 - len(parts))
    pair = _PAIR.search(name)
    done = value.get("retired") is True or value.get("state") == "completed"
    return Entry(
        pg_id=pg_id,
        group_name=parts[0],
        group_desc=parts[1],
        op=_op(name),
        seq=seq,
        pair=(int(pair[1]), int(pair[2])) if pair else None,
        payload_bytes=_payload_bytes(value),
        created_ns=_number(value.get("time_created_ns")) or 0,
        done=done,
        is_p2p=is_p2p or _op(name) in (Op.SEND, Op.RECV),
        place=_place(value.get("frames")),
    )


def _op(profiling_name: str) -> Op:
    word = profiling_name.partition(":")[2].lower() or profiling_name.lower()
    return next((op for part, op in _OP_WORDS if part in word), Op.UNKNOWN)


def _payload_bytes(value: Mapping[Any, Any]) -> int:
    """Return the bytes of the first input, 0 where they are not told."""
    sizes, types = value.get("input_sizes"), value.get("input_dtypes")
    if not (isinstance(sizes, list) and sizes and isinstance(sizes[0], list)):
        return 0
    shape = [_number(size) for size in sizes[0][:16]]
    if any(size is None or size > 1 << 40 for size in shape):
        return 0
    kind = str(types[0]) if isinstance(types, list) and types else ""
    total = math.prod(size for size in shape if size is not None) * _DTYPE_BYTES.get(kind, 1)
    return total if total < MAX_NUMBER else 0


def _place(frames: object) -> str:
    """Return the innermost frame of the caller's own code."""
    if not isinstance(frames, list):
        return ""
    for frame in frames[:64]:
        if not isinstance(frame, Mapping):
            continue
        file = str(frame.get("filename", ""))
        if "/torch/" not in file:
            return f"{file[-120:]}:{frame.get('line', '?')} ({str(frame.get('name', ''))[:80]})"
    return ""


def _number(value: object) -> int | None:
    if isinstance(value, str) and len(value) <= 20:
        try:
            value = int(value)
        except ValueError:
            return None
    if type(value) is not int or not -1 <= value < MAX_NUMBER:
        return None
    return value
