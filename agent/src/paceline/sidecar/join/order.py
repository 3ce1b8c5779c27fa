"""Calls whose operations NCCL launched after they had come back: batched sends, coalesced calls.

Their events lie in no call. They are joined by order, and only where a whole batch agrees.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from paceline.sidecar.join.calls import Call
from paceline.sidecar.join.facts import Event

LAUNCH_WITHIN_NS = 1_000_000_000
"""A batch is launched when its last call was made; what comes later belongs to something else."""
Signature = tuple[int, int, int]


def join_batches(
    calls: list[Call], events: list[Event], signatures: Mapping[int, Signature]
) -> list[tuple[Call, Event]]:
    """Return the pairs of every batch whose calls and events agree in full.

    A batch is a run of calls and the run of events behind it, up to the next call. It agrees if
    there are as many events as calls, each after the last call, and with the same operations, peers
    and bytes, each as often.

    Args:
        calls: of one group, without an event, by start.
        events: without a call, by time of issue.
        signatures: operation, global peer and bytes of each event, by its index.
    """
    joined: list[tuple[Call, Event]] = []
    at = 0
    begin = 0
    while begin < len(calls):
        while at < len(events) and events[at].issue_ns < calls[begin].end_ns:
            at += 1  # it came before every call of this batch
        if at == len(events):
            break
        end = begin
        while end < len(calls) and calls[end].end_ns <= events[at].issue_ns:
            end += 1
        until_ns = calls[end].start_ns if end < len(calls) else events[-1].issue_ns + 1
        first = at
        while at < len(events) and events[at].issue_ns < until_ns:
            at += 1
        joined += _agree(calls[begin:end], events[first:at], signatures)
        begin = end
    return joined


def _agree(
    calls: list[Call], events: list[Event], signatures: Mapping[int, Signature]
) -> list[tuple[Call, Event]]:
    if len(calls) != len(events):
        return []
    if events[0].issue_ns - max(call.end_ns for call in calls) > LAUNCH_WITHIN_NS:
        return []
    by_signature: defaultdict[Signature, deque[Event]] = defaultdict(deque)
    for event in events:
        by_signature[signatures[event.index]].append(event)
    pairs = []
    for call in calls:
        same = by_signature[(call.op, call.peer, call.payload_bytes)]
        if not same:
            return []
        pairs.append((call, same.popleft()))
    return pairs
