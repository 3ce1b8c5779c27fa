"""The usual case of the join, and nothing else: one event, in the oldest call of its group.

What is found here is what the whole rule would find, for a fraction of the time. Whatever is not
quite usual is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq, le, lt
from typing import Any

from paceline.ring import layout as at
from paceline.sidecar.join.calls import Run, columns_of, picker
from paceline.sidecar.join.facts import Communicator, Event, JoinedGroup
from paceline.sidecar.join.rows import put_device_times
from paceline.vocabulary import P2P_OPS, Flag, Op

_START, _END, _ISSUE, _PAYLOAD = 0, 1, 3, 4
"""8-byte words of a record; the columns of events are in this order."""
ISSUES = 2
"""Place of that column."""
_FLAGS_OFFSET = 60
_WORDS = at.RECORD_BYTES // 8
_GPU_TIME = int(Flag.GPU_TIME)
_TIMED = int(Flag.GPU_TIME | Flag.PARTIAL)
_HOST_RETURN = int(Flag.HOST_RETURN)
_MEASURED = bytes(int(byte & _TIMED == _GPU_TIME) for byte in range(256))
_JOINED_FLAGS = bytes(byte & ~_HOST_RETURN | _GPU_TIME for byte in range(256))
_NO_OP = 0xFF
_COLLECTIVES = frozenset(Op) - P2P_OPS - {Op.UNKNOWN}
_COLLECTIVE_OP = bytes(byte if byte in _COLLECTIVES else _NO_OP for byte in range(256))
_NO_RANK = -2
_AT_ONCE = 256
"""An event that is not usual costs a fresh start: so much is taken up again at most."""
_NEVER_NS = 1 << 64


@dataclass(slots=True, eq=False)
class Done:
    """Events of one communicator in columns, in the order of its ring."""

    raw: bytes
    numbers: list[int]
    """Of their records in ``raw``."""
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    issue_ns: tuple[int, ...]
    payload_bytes: tuple[int, ...]
    peers: tuple[int, ...]
    """Global ranks; -1: none."""
    ops: tuple[int, ...]
    """255 for what is not usual."""


def event_columns(raw: bytes) -> list[Any]:
    """Return the columns of a plugin's records that ``done_of`` picks from."""
    columns = columns_of(raw, (_START, _END, _ISSUE, _PAYLOAD))
    ops = columns[-1].translate(_COLLECTIVE_OP)
    measured = raw[_FLAGS_OFFSET :: at.RECORD_BYTES].translate(_MEASURED)
    if 0 in measured or 0 in columns[1]:
        usual = zip(ops, measured, columns[1], strict=True)
        ops = bytes(op if timed and end else _NO_OP for op, timed, end in usual)
    columns[-1] = ops
    return columns


def done_of(raw: bytes, columns: list[Any], numbers: list[int], group: JoinedGroup) -> Done:
    """Return the events ``numbers``, of a communicator of all ranks of ``group``."""
    begun, ended, issued, sizes, peers, ops = map(picker(numbers), columns)
    if max(peers) >= 0:
        ranks = group.ranks
        peers = tuple(
            -1 if peer < 0 else ranks[peer] if peer < len(ranks) else _NO_RANK for peer in peers
        )
    return Done(raw, numbers, begun, ended, issued, sizes, peers, ops)


def join_run(group: JoinedGroup, comm: Communicator, done: Done, first: int) -> int:
    """Join events with the oldest calls of the group, one each; return how many.

    Args:
        group: the one that ``comm`` is bound to.
        comm: of all ranks of it.
        done: events of ``comm``.
        first: place of the one to begin with.
    """
    joined = 0
    while group.runs and not group.calls and -1 in comm.peers and first < len(done.numbers):
        run = group.runs[0]
        most = min(_AT_ONCE, len(run), len(done.numbers) - first)
        count = _join_pairs(group, run, done, first, most)
        if not count:
            break
        (commit,) = at.U64.unpack_from(
            done.raw, done.numbers[first] * at.RECORD_BYTES + at.RECORD_COMMIT_OFFSET
        )
        oldest = run.stretch.oldest_event
        run.stretch.oldest_event = commit - 1 if oldest is None else min(oldest, commit - 1)
        comm.newest_issue_ns = max(comm.newest_issue_ns, max(done.issue_ns[first : first + count]))
        run.at += count
        if not len(run):
            group.runs.popleft()
        first += count
        joined += count
        if count < most:
            break
    return joined


def _join_pairs(group: JoinedGroup, run: Run, done: Done, first: int, most: int) -> int:
    """Join calls and events one by one while they agree; return how many did."""
    begin, end, last = run.at, run.at + most, first + most
    called_ns = run.start_ns[begin:end]
    issued_ns = done.issue_ns[first:last]
    behind_ns = _NEVER_NS
    if end < len(run.numbers):
        behind_ns = run.start_ns[end]
    elif len(group.runs) > 1:
        behind_ns = group.runs[1].first_start_ns
    # Column by column: far fewer steps of the interpreter than pair by pair.
    count = min(
        _alike(eq, run.ops[begin:end], done.ops[first:last]),
        _alike(eq, run.payload_bytes[begin:end], done.payload_bytes[first:last]),
        _alike(_may_be, run.peers[begin:end], done.peers[first:last]),
        _agreeing(le, called_ns, issued_ns),
        _agreeing(le, issued_ns, run.end_ns[begin:end]),
        _agreeing(lt, issued_ns, (*called_ns[1:], behind_ns)),
        _agreeing(lt, (group.given_up_until_ns,) * most, issued_ns),
    )
    words, raw, joined = run.words, run.stretch.raw, _JOINED_FLAGS
    for number, start_ns, end_ns in zip(
        run.numbers[begin : begin + count],
        done.start_ns[first : first + count],
        done.end_ns[first : first + count],
        strict=True,
    ):
        word = number * _WORDS
        words[word] = start_ns
        words[word + 1] = end_ns
        flags = word * 8 + _FLAGS_OFFSET
        raw[flags] = joined[raw[flags]]
    return count


def _agreeing(rule: Callable[[int, int], bool], left: Sequence[int], right: Sequence[int]) -> int:
    """Return for how many pairs ``rule`` holds before the first for which it does not."""
    if all(map(rule, left, right)):
        return len(right)
    return list(map(rule, left, right)).index(False)


def _alike(rule: Callable[[int, int], bool], left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Do the same for a rule that holds for what is equal."""
    return len(right) if left == right else _agreeing(rule, left, right)


def _may_be(peer: int, done_peer: int) -> bool:
    return peer in (-1, done_peer) or done_peer == -1


def join_oldest(group: JoinedGroup, comm: Communicator, event: Event) -> bool:
    """Join one event of ``comm`` with the oldest call that was looked at; False: not usual."""
    calls = group.calls
    if not calls or not event.end_ns or event.flags & _TIMED != _GPU_TIME:
        return False
    call = calls[0]
    if not (
        call.start_ns <= event.issue_ns <= call.end_ns
        and call.op == event.op
        and call.payload_bytes == event.payload_bytes
        and not call.events
        and _next_start_ns(group) > event.issue_ns
        and event.issue_ns > group.given_up_until_ns
        and (event.peer < 0 or call.peer < 0 or group.global_rank(event.peer) == call.peer)
        and (call.peer if event.op in P2P_OPS else -1) in comm.peers
    ):
        return False
    put_device_times(call.raw, call.offset, event.start_ns, event.end_ns, partial=False)
    call.event_index = event.index
    call.done = True
    del calls[0]
    comm.newest_issue_ns = max(comm.newest_issue_ns, event.issue_ns)
    return True


def _next_start_ns(group: JoinedGroup) -> int:
    """Return when the second call was made."""
    if len(group.calls) > 1:
        return group.calls[1].start_ns
    return group.runs[0].first_start_ns if group.runs else _NEVER_NS
