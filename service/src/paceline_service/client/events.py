"""Server-sent events as the client gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a job: ``steps``, ``report``, or ``reload`` (begin anew)."""

    name: str
    id: str
    data: dict[str, Any]


def parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield the events of a text/event-stream."""
    name, identity, data = "message", "", ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Event(name=name, id=identity, data=json.loads(data))
            name, data = "message", ""
        elif field == "event":
            name = value
        elif field == "id":
            identity = value
        elif field == "data":
            data += value
