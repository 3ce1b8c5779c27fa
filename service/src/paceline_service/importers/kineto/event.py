"""One event of a Chrome trace, with the few facts that are used of it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_NO_NUMBER = re.compile(rb":\s*-?(?:nan|inf)[^,}\]\s]*", re.IGNORECASE)
"""What C++ prints for figures that are none; it is no JSON."""


class EventArgs(msgspec.Struct, gc=False):
    """Arguments of an event by the names that traces have for them: the fields of ``Args``."""

    correlation: Any = None
    stream: Any = None
    grid: Any = None
    dtype: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    first_rank: Any = msgspec.field(name="Global rank start", default=None)
    rank_stride: Any = msgspec.field(name="Global rank stride", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    destination: Any = msgspec.field(name="Dst Rank", default=None)


class Event(msgspec.Struct, gc=False):
    """One event; ``ts`` and ``dur`` are microseconds."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: float | None = None
    dur: float | None = None
    pid: Any = None
    tid: Any = None
    args: EventArgs | None = None


_decode_many = msgspec.json.Decoder(list[Event]).decode
_decode_one = msgspec.json.Decoder(Event).decode


def decode_events(text: bytes) -> list[Event]:
    """Decode a list of whole events.

    Raises:
        msgspec.DecodeError: they are none, or of an unusual form; ``decode_event`` takes more.
    """
    return _decode_many(text)


def decode_event(text: bytes) -> Event | None:
    """Decode one event whatever its quirks: no UTF-8, NaN, fields of another type than usual."""
    try:
        return _decode_one(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        value = json.loads(_NO_NUMBER.sub(b":null", text).decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if not isinstance(value.get("args"), dict):
        value["args"] = None
    for name in ("ph", "cat", "name"):
        if not isinstance(value.get(name), str):
            value[name] = None
    for name in ("ts", "dur"):
        if type(value.get(name)) not in (int, float):
            # A duration that is there and no number is as bad as a time that is none.
            value["ts"] = None if value.get(name) is not None else value.get("ts")
            value[name] = None
    return msgspec.convert(value, Event)
