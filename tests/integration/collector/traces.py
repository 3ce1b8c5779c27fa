"""Checks a Chrome trace against the trace event format, as strictly as viewers may read it."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

NEEDED = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"ph", "name", "cat", "pid", "tid", "ts", "s", "args"},
    "s": {"ph", "name", "cat", "pid", "tid", "ts", "id"},
    "f": {"ph", "name", "cat", "pid", "tid", "ts", "id", "bp"},
}


def check_trace(trace: dict[str, Any]) -> Counter[str]:
    """Raise where the trace is against the format; return how many events of each phase it has."""
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] == "ms"
    events = trace["traceEvents"]
    named: set[tuple[int, int]] = set()
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    newest = 0
    for event in events:
        assert set(event) == NEEDED[event["ph"]], event
        for number in (event["pid"], event["tid"]):
            assert type(number) is int
            assert 0 < number < 2**31
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
            continue
        at = thousandths(event["ts"])
        assert at >= newest, "events are sorted by time"
        newest = at
        thread = (event["pid"], event["tid"])
        assert thread in named, event
        if event["ph"] == "X":
            slices[thread].append((at, at + thousandths(event["dur"])))
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
    for of_thread in slices.values():
        for (_, ends), (begins, _) in pairwise(of_thread):
            assert ends <= begins, "slices of a thread do not overlap"
    for pair in arrows.values():
        assert [event["ph"] for event in pair] == ["s", "f"]
        for event in pair:
            at = thousandths(event["ts"])
            of_thread = slices[event["pid"], event["tid"]]
            assert any(begin <= at <= end for begin, end in of_thread), "arrows bind to slices"
    counts = Counter(event["ph"] for event in events)
    assert trace["otherData"]["events"] == counts
    return counts


def thousandths(us: float) -> int:
    """Return microseconds as ns."""
    assert type(us) in (int, float)
    return round(us * 1000)
