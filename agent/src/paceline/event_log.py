"""The event log ``paceline.events/1``: rows to lines of NDJSON and back (docs/event-log.md).

Pure conversion, standard library only: the sidecar writes logs with it, the service imports and
exports with it, so that both mean the same by every key. A *row* is a tuple of 12 integers in the
order of ``ROW_FIELDS`` (the order of ``paceline.wire.codec.ROW_FIELDS`` and of the columns of
``Records`` in the service); 0 is an unknown time, -1 no peer.

Writing: one ``header_line`` first, then ``record_line`` per row, ``rank_line`` when a rank ended or
lost something, ``telemetry_line`` per sample. ``GroupNames`` gives each group a name that is unique
in its log. Every function returns one line without its newline.

Reading: ``parse_line(json.loads(text))`` gives a ``LogHeader``, ``LogRow``, ``LogTelemetry``,
``LogRank``, or ``None`` for a line that this version does not know. A log may repeat its header:
a later one adds groups and nodes that were not known earlier. Names of groups hold within one file;
the identity of a group is ``(LogGroup.name, .ranks, .epoch)``, also across the files of a job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.ranks import MAX_RANKS, parse_ranks, ranks_hash
from paceline.vocabulary import P2P_OPS, ROOTED_OPS, Op, Phase, RecordKind, op_name, phase_name

SCHEMA = "paceline.events/1"
ROW_FIELDS = (
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
    "start_ns", "end_ns", "join_ns", "issue_ns", "flags",
)  # fmt: skip
_OPS = {op_name(op): op for op in Op}
_OP_NAMES = {int(op): op_name(op) for op in Op}
_PHASES = {phase_name(phase): phase for phase in Phase}
_PHASE_NAMES = {int(phase): phase_name(phase) for phase in Phase}
_ROOTED = frozenset(int(op) for op in ROOTED_OPS)
_P2P = frozenset(int(op) for op in P2P_OPS)
_INT64 = 1 << 63
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """One process group of a log; ``ranks`` are global, in group order."""

    name: str
    ranks: tuple[int, ...]
    epoch: int = 0
    mesh_dim: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHeader:
    """What a header line says; ``groups`` is keyed by the names that the lines of the log use."""

    world_size: int
    groups: Mapping[str, LogGroup] = field(default_factory=dict)
    nodes: Mapping[int, str] = field(default_factory=dict)
    shared_clock: bool = False
    clock_domains: Mapping[int, str] = field(default_factory=dict)
    """By rank; ranks whose domain is equal share a clock."""
    anchors: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By rank: one instant as (monotonic ns, wall-clock ns), to draw times on the wall clock."""
    job: str = ""
    run_id: str = ""
    attempt: int = 0
    rank: int = -1
    """The rank that the file is of; -1 where it holds several."""
    info: Mapping[str, str] = field(default_factory=dict)


class LogRow(NamedTuple):
    """One collective, phase or step; the group column of ``row`` is 0 until it is resolved."""

    rank: int
    group: str
    """The log's name of the group; empty for phases and steps."""
    row: tuple[int, ...]

    def with_group(self, index: int) -> tuple[int, ...]:
        """Return ``row`` with ``index`` in the group column."""
        return (*self.row[:2], index, *self.row[3:])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTelemetry:
    """One sample of host or GPU telemetry, on the clock of its rank."""

    rank: int
    time_ns: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRank:
    """How the records of a rank ended, and what was lost of them so far (cumulative)."""

    rank: int
    ended: str = ""
    """``closed``, ``killed``, or empty: it was still running."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    now_ns: int = 0
    """When this was written, on the clock of the rank: how old is what it says is pending."""


class GroupNames:
    """Names that are unique in one log: ``dp``, then ``dp#1f0c9a3e/1`` for another group ``dp``."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[int, ...], int], str] = {}
        self.groups: dict[str, LogGroup] = {}

    def name_of(self, group: LogGroup) -> str:
        """Return the log's name of ``group``, the same for the same name, ranks and epoch."""
        key = (group.name, group.ranks, group.epoch)
        name = self._names.get(key)
        if name is None:
            name = group.name
            if name in self.groups:
                name = f"{group.name}#{ranks_hash(group.ranks)[:8]}/{group.epoch}"
            while name in self.groups:  # a group that somebody named like that, or equal hashes
                name += "'"
            self._names[key] = name
            self.groups[name] = group
        return name


def header_line(header: LogHeader) -> str:
    """Return the first line of a log; what is empty or unknown is left out."""
    line: dict[str, object] = {
        "schema": SCHEMA,
        "world_size": header.world_size,
        "groups": {name: list(group.ranks) for name, group in header.groups.items()},
        "nodes": {str(rank): node for rank, node in sorted(header.nodes.items())},
    }
    if header.shared_clock:
        line["clock"] = "shared"
    for key in ("job", "run_id", "attempt"):
        if value := getattr(header, key):
            line[key] = value
    if header.rank >= 0:
        line["rank"] = header.rank
        if domain := header.clock_domains.get(header.rank):
            line["clock_domain"] = domain
    elif header.clock_domains:
        line["clock_domains"] = {str(r): d for r, d in sorted(header.clock_domains.items())}
    if header.anchors:
        line["anchors"] = {str(r): list(a) for r, a in sorted(header.anchors.items())}
    details = {name: _group_details(name, group) for name, group in header.groups.items()}
    if any(details.values()):
        line["group_details"] = {name: detail for name, detail in details.items() if detail}
    if header.info:
        line["info"] = dict(header.info)
    return _encode(line)


def record_line(rank: int, row: Sequence[int], group: str = "") -> str | None:
    """Return the line of one row, or None where its kind or code has no name in this version.

    Args:
        rank: global rank that wrote it.
        row: 12 integers in the order of ``ROW_FIELDS``.
        group: the log's name of its group (``GroupNames``); only collectives need it.
    """
    kind, code, _, seq, step, peer, payload_bytes, start_ns, end_ns, join_ns, issue_ns, flags = row
    line: dict[str, object]
    if kind == RecordKind.COLLECTIVE and code in _OP_NAMES:
        line = {"rank": rank, "step": step, "group": group, "op": _OP_NAMES[code], "seq": seq}
        line["bytes"] = payload_bytes
        line["start_ns"] = start_ns
        line["end_ns"] = end_ns or None
        if peer >= 0:
            line["root" if code in _ROOTED else "peer"] = peer
        if join_ns:
            line["join_ns"] = join_ns
        if issue_ns:
            line["issue_ns"] = issue_ns
    elif kind == RecordKind.PHASE and code in _PHASE_NAMES:
        line = {"rank": rank, "step": step, "phase": _PHASE_NAMES[code]}
        line["start_ns"] = start_ns
        line["end_ns"] = end_ns or None
    elif kind == RecordKind.STEP:
        line = {"rank": rank, "step": step, "step_start_ns": start_ns, "step_end_ns": end_ns}
    else:
        return None
    if flags:
        line["flags"] = flags
    return _encode(line)


def rank_line(state: LogRank) -> str:
    """Return the line that says how a rank ended and what was lost of it."""
    line: dict[str, object] = {"rank": state.rank, "ended": state.ended or None}
    if state.dropped:
        line["dropped"] = dict(state.dropped)
    if state.now_ns:
        line["now_ns"] = state.now_ns
    return _encode(line)


def telemetry_line(sample: LogTelemetry) -> str:
    """Return the line of one telemetry sample."""
    return _encode(
        {"rank": sample.rank, "time_ns": sample.time_ns, "telemetry": dict(sample.values)}
    )


def parse_line(line: object) -> LogHeader | LogRow | LogTelemetry | LogRank | None:
    """Return what one decoded line means, or None for a kind of line that is not known.

    Raises:
        InputError: a key that the line needs is missing, of another type, or out of range.
    """
    if not isinstance(line, dict):
        raise InputError(f"a line of an event log is a JSON object, not {_short(line)}")
    if "schema" in line:
        return _parse_header(line)
    if "op" in line:
        return _parse_collective(line)
    if "phase" in line:
        code = _PHASES.get(line["phase"]) if isinstance(line["phase"], str) else None
        if code is None:
            raise InputError(f"phase {_short(line['phase'])} is none of {', '.join(_PHASES)}")
        return _row(line, RecordKind.PHASE, code, ("start_ns", "end_ns"))
    if "step_start_ns" in line:
        return _row(line, RecordKind.STEP, 0, ("step_start_ns", "step_end_ns"))
    if "telemetry" in line:
        values = line["telemetry"]
        if not isinstance(values, dict):
            raise InputError(f"telemetry is a JSON object, not {_short(values)}")
        return LogTelemetry(rank=_rank(line), time_ns=_int(line, "time_ns"), values=values)
    if "ended" in line:
        counts = _map(line, "dropped")
        dropped = {reason: _int(counts, reason) for reason in counts}
        now_ns = _int(line, "now_ns", 0)
        return LogRank(rank=_rank(line), ended=_text(line, "ended"), dropped=dropped, now_ns=now_ns)
    return None


def _parse_collective(line: dict[str, Any]) -> LogRow:
    name = line["op"]
    op = _OPS.get(name) if isinstance(name, str) else None
    if op is None:
        raise InputError(f"op {_short(name)} is none of {', '.join(_OPS)}")
    group = line.get("group")
    if not isinstance(group, str):
        raise InputError(f"group {_short(group)} is no name; the header lists the groups")
    peer_key = "root" if op in _ROOTED else "peer"
    start_ns = _int(line, "start_ns")
    row = (
        int(RecordKind.COLLECTIVE), int(op), 0, _int(line, "seq"), _int(line, "step", 0),
        _int(line, peer_key, -1), _int(line, "bytes", 0), start_ns, _int(line, "end_ns", 0),
        _int(line, "join_ns", 0), _int(line, "issue_ns", 0), _int(line, "flags", 0),
    )  # fmt: skip
    if row[3] < 0 or row[4] < 0 or row[6] < 0:
        raise InputError(f"seq, step and bytes are at least 0 in {_short(line)}")
    _check_times(line, start_ns, row[8])
    return LogRow(_rank(line), group, row)


def _row(line: dict[str, Any], kind: int, code: int, keys: tuple[str, str]) -> LogRow:
    start_ns, end_ns = _int(line, keys[0]), _int(line, keys[1], 0)
    step = _int(line, "step")
    if step < 0:
        raise InputError(f"step is at least 0 in {_short(line)}")
    _check_times(line, start_ns, end_ns)
    flags = _int(line, "flags", 0)
    return LogRow(
        _rank(line), "", (int(kind), int(code), 0, 0, step, -1, 0, start_ns, end_ns, 0, 0, flags)
    )


def _check_times(line: dict[str, Any], start_ns: int, end_ns: int) -> None:
    if start_ns < 0 or (end_ns and end_ns < start_ns):
        raise InputError(f"it starts before 0 or ends before it starts: {_short(line)}")


def _parse_header(line: dict[str, Any]) -> LogHeader:
    if line["schema"] != SCHEMA:
        raise InputError(
            f"schema {_short(line['schema'])}; this version reads {SCHEMA}: update paceline"
        )
    world_size = _int(line, "world_size")
    if not 1 <= world_size <= MAX_RANKS:
        raise InputError(f"world_size {world_size} is not within 1 to {MAX_RANKS}")
    rank = _int(line, "rank", -1)
    domains = {int(r): str(d) for r, d in _by_rank(line, "clock_domains").items()}
    if rank >= 0 and (domain := _text(line, "clock_domain")):
        domains[rank] = domain
    details = _map(line, "group_details")
    groups = {
        name: _parse_group(name, ranks, _map(details, name), world_size)
        for name, ranks in _map(line, "groups").items()
    }
    return LogHeader(
        world_size=world_size,
        groups=groups,
        nodes={r: str(node) for r, node in _by_rank(line, "nodes").items()},
        shared_clock=line.get("clock") == "shared",
        clock_domains=domains,
        anchors={r: _parse_anchor(pair) for r, pair in _by_rank(line, "anchors").items()},
        job=_text(line, "job"),
        run_id=_text(line, "run_id"),
        attempt=_int(line, "attempt", 0),
        rank=rank,
        info={key: str(value) for key, value in _map(line, "info").items()},
    )


def _parse_group(name: str, ranks: object, details: dict[str, Any], world_size: int) -> LogGroup:
    if isinstance(ranks, str):
        members = parse_ranks(ranks)
    elif isinstance(ranks, list) and all(type(rank) is int for rank in ranks):
        members = tuple(ranks)
    else:
        raise InputError(f"group {name!r} has {_short(ranks)}, not a list of ranks")
    if len(set(members)) != len(members) or any(not 0 <= rank < world_size for rank in members):
        raise InputError(f"group {name!r} repeats a rank or has one outside 0 to {world_size - 1}")
    return LogGroup(
        name=_text(details, "name") or name,
        ranks=members,
        epoch=_int(details, "epoch", 0),
        mesh_dim=_text(details, "mesh_dim"),
        backend=_text(details, "backend"),
    )


def _group_details(name: str, group: LogGroup) -> dict[str, object]:
    facts: dict[str, object] = {"name": group.name if group.name != name else ""}
    facts |= {"epoch": group.epoch, "mesh_dim": group.mesh_dim, "backend": group.backend}
    return {key: value for key, value in facts.items() if value}


def _parse_anchor(pair: object) -> tuple[int, int]:
    if isinstance(pair, list) and len(pair) == 2 and all(type(part) is int for part in pair):
        return pair[0], pair[1]
    raise InputError(f"anchor {_short(pair)} is not [monotonic ns, wall-clock ns]")


def _rank(line: dict[str, Any]) -> int:
    rank = _int(line, "rank")
    if not 0 <= rank < MAX_RANKS:
        raise InputError(f"rank {rank} is not within 0 to {MAX_RANKS - 1}")
    return rank


def _by_rank(line: dict[str, Any], key: str) -> dict[int, Any]:
    table = _map(line, key)
    for rank in table:
        if not (rank.isascii() and rank.isdigit()) or len(rank) > 7:
            raise InputError(f"{key} has the key {_short(rank)}, which is no rank")
    return {int(rank): value for rank, value in table.items()}


def _map(line: dict[str, Any], key: str) -> dict[str, Any]:
    value = line.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{key} is a JSON object, not {_short(value)}")
    return value


def _int(line: dict[str, Any], key: str, default: int | None = None) -> int:
    value = line.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise InputError(f"{key} is a whole number within 64 bits, not {_short(value)}")
    return value


def _text(line: dict[str, Any], key: str) -> str:
    value = line.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{key} is text, not {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
