"""One operation of the recorder's ring, in one form for all versions and backends."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paceline.dataclass import dataclass
from paceline.vocabulary import P2P_OPS, Op
from paceline_service.importers.flight_recorder.plain import elements, number, text

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
_MAX_FRAMES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One operation.

    Attributes:
        pg_id: the rank's own number of the group.
        backend: what carried it, such as ``nccl`` or ``gloo``; may be empty.
        what: its name without backend and peers, such as ``_all_gather_base``.
        pair: of a send or recv: (own, other) rank within the group.
        in_elements, out_elements: of all tensors together; -1 where it is not told.
        created_ns, started_ns, completed_ns: time of day; the two latter are when the watchdog
            found out, and 0 where they are not told.
        duration_ns: on the device; 0 where it was not measured.
        place: innermost line of the caller that the dump names, or empty.
    """

    record_id: int
    pg_id: int
    group_name: str
    group_desc: str
    backend: str
    what: str
    op: Op
    seq: int
    pair: tuple[int, int] | None
    payload_bytes: int
    in_elements: int
    out_elements: int
    dtypes: frozenset[str]
    created_ns: int
    started_ns: int
    completed_ns: int
    duration_ns: int
    done: bool
    is_p2p: bool
    place: str


def entry_of(value: object) -> Entry | None:
    """Return the operation that ``value`` describes, or None where it is none."""
    if not isinstance(value, Mapping):
        return None
    pg_id = number(value.get("pg_id"))
    name = text(value.get("profiling_name"), 200)
    is_p2p = value.get("is_p2p") is True
    key = "collective_seq_id" if "collective_seq_id" in value else "seq_id"
    seq = number(value.get("p2p_seq_id" if is_p2p and "p2p_seq_id" in value else key))
    if pg_id is None or seq is None:
        return None
    group = value.get("process_group", value.get("pg_name"))
    group = [group] if isinstance(group, str) else group
    parts = [text(part, 256) for part in group[:2]] if isinstance(group, list | tuple) else []
    parts += [""] * (2 - len(parts))
    pair, op = _PAIR.search(name), op_of(name)
    inside, outside = elements(value.get("input_sizes")), elements(value.get("output_sizes"))
    dtypes = _dtypes(value.get("input_dtypes"))
    widest = max((_DTYPE_BYTES.get(kind, 1) for kind in dtypes), default=0)
    backend, _, rest = name.rpartition(":")
    return Entry(
        record_id=number(value.get("record_id")) or 0,
        pg_id=pg_id,
        group_name=parts[0],
        group_desc=parts[1],
        backend=backend,
        what=rest.partition(" ")[0],
        op=op,
        seq=seq,
        pair=(int(pair[1]), int(pair[2])) if pair else None,
        payload_bytes=max(0, inside) * widest,
        in_elements=inside,
        out_elements=outside,
        dtypes=dtypes,
        created_ns=number(value.get("time_created_ns")) or 0,
        started_ns=number(value.get("time_discovered_started_ns")) or 0,
        completed_ns=number(value.get("time_discovered_completed_ns")) or 0,
        duration_ns=_duration_ns(value.get("duration_ms")),
        done=value.get("retired") is True or value.get("state") == "completed",
        is_p2p=is_p2p or op in P2P_OPS,
        place=_place(value.get("frames")),
    )


def op_of(profiling_name: str) -> Op:
    """Return the operation that a name such as ``nccl:_all_gather_base`` means."""
    word = profiling_name.partition(":")[2].lower() or profiling_name.lower()
    return next((op for part, op in _OP_WORDS if part in word), Op.UNKNOWN)


def _dtypes(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        return frozenset()
    return frozenset(text(kind, 40) for kind in value[:1024]) - {""}


def _duration_ns(value: object) -> int:
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value)
        except ValueError:
            return 0
    if type(value) not in (int, float) or not 0 < value < 1e9:  # type: ignore[operator]
        return 0
    return round(value * 1e6)  # type: ignore[operator]


def _place(frames: object) -> str:
    """Return the innermost frame of the caller's own code."""
    if not isinstance(frames, list):
        return ""
    for frame in frames[:_MAX_FRAMES]:
        if not isinstance(frame, Mapping):
            continue
        file = frame.get("filename")
        if isinstance(file, str) and "/torch/" not in file[:4096]:
            line = number(frame.get("line"))
            name = text(frame.get("name"), 80)
            return f"{file[-120:]}:{'?' if line is None else line} ({name})"
    return ""
