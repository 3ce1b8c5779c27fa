"""Operations that do not fit together: other kinds, sizes or types under one number.

Unlike lags these are read from the entries themselves, also from finished ones: NCCL does not
check what it is given, so a job can go on for a while after a mismatch, with wrong numbers in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline.vocabulary import Op, op_name
from paceline_service.importers.flight_recorder.dump import Dump
from paceline_service.importers.flight_recorder.entry import Entry
from paceline_service.importers.flight_recorder.layout import Layouts

_EQUAL = frozenset({"all_reduce", "allreduce", "allreduce_coalesced", "broadcast", "reduce",
                    "_broadcast_oop", "_reduce_oop"})  # fmt: skip
"""All ranks bring and get equally much."""
_BASE = frozenset({"_all_gather_base", "_allgather_base", "all_gather_into_tensor_coalesced",
                   "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"})  # fmt: skip
"""The forms on one tensor, whose parts are equal; the forms on lists may be uneven on purpose."""
_ANY_TYPE = frozenset({Op.BROADCAST, Op.SCATTER, Op.BARRIER})
"""Ranks that bring nothing to it may have given anything."""
_TOLD_GROUPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """What does not fit under one number of one group.

    ``ranks`` are those that differ from most, all of them where nobody is in the majority.
    """

    group: int
    seq: int
    op: Op
    manner: str
    ranks: list[int]
    told: str
    pending: bool


def mismatches(dumps: Sequence[Dump], layouts: Layouts) -> list[Mismatch]:
    """Return the first mismatch of each group: after it the numbers may count different things."""
    found: dict[tuple[int, int], dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    sends: dict[tuple[int, int, int], tuple[list[Entry], list[Entry]]] = defaultdict(
        lambda: ([], [])
    )
    for dump in dumps:
        for entry in dump.entries:
            at = layouts.of_dump[dump.rank].get(entry.pg_id)
            if at is None:
                continue
            if not entry.is_p2p:
                found[at, entry.seq][dump.rank].append(entry)
            elif entry.pair is not None and not entry.done:
                own_place, other = entry.pair
                sent = entry.op == Op.SEND
                key = (at, own_place, other) if sent else (at, other, own_place)
                sends[key][0 if sent else 1].append(entry)
    first: dict[int, Mismatch] = {}
    for (at, seq), entries in sorted(found.items()):
        # Operations of a batch share one number; nothing tells them apart.
        alone = {rank: own[0] for rank, own in entries.items() if len(own) == 1}
        if at not in first and (mismatch := _compare(at, seq, alone)) is not None:
            first[at] = mismatch
    result = list(first.values())
    for (at, source, target), (given, taken) in sorted(sends.items()):
        if at not in first and given and taken:
            mismatch = _transfer(at, layouts.members[at], source, target, given[0], taken[0])
            result += [mismatch] if mismatch is not None else []
    return sorted(result, key=lambda one: (not one.pending, -len(one.ranks)))[:_TOLD_GROUPS]


def _compare(at: int, seq: int, entries: Mapping[int, Entry]) -> Mismatch | None:
    known = {rank: e for rank, e in entries.items() if e.op != Op.UNKNOWN}
    if len(known) < 2:
        return None
    ops = {e.op for e in known.values()}
    pending = any(not e.done for e in known.values())
    if len(ops) > 1:
        return _odd(at, seq, "type", known, lambda e: e.op, lambda e: op_name(e.op), pending)
    op = next(iter(ops))
    if op not in _ANY_TYPE and all(e.dtypes and e.in_elements != 0 for e in known.values()):
        found = _odd(at, seq, "dtype", known, lambda e: e.dtypes,
                     lambda e: ", ".join(sorted(e.dtypes)), pending)  # fmt: skip
        if found is not None:
            return found
    words = {e.what for e in known.values()}
    told = all(min(e.in_elements, e.out_elements) >= 0 for e in known.values())
    if told and words <= _EQUAL | _BASE:
        return _odd(
            at, seq, "size", known, lambda e: (e.in_elements, e.out_elements), _sizes, pending
        )
    return None


def _sizes(entry: Entry) -> str:
    if entry.in_elements == entry.out_elements:
        return f"{entry.in_elements:,} elements"
    return f"{entry.in_elements:,} elements in and {entry.out_elements:,} out"


def _odd(
    at: int,
    seq: int,
    manner: str,
    entries: Mapping[int, Entry],
    key: Callable[[Entry], Hashable],
    told: Callable[[Entry], str],
    pending: bool,
) -> Mismatch | None:
    """Return who differs from most; nobody where all are alike."""
    counts = Counter(key(entry) for entry in entries.values())
    if len(counts) < 2:
        return None
    most = max(counts.values())
    odd = sorted(rank for rank, entry in entries.items() if counts[key(entry)] < most)
    ranks = odd or sorted(entries)
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, entry in sorted(entries.items()):
        sides[told(entry)].append(rank)
    parts = [
        f"{what} on rank{'s' if len(own) > 1 else ''} {format_ranks(own)}"
        for what, own in sorted(sides.items(), key=lambda side: len(side[1]))[:4]
    ]
    return Mismatch(
        group=at, seq=seq, op=entries[ranks[0]].op, manner=manner, ranks=ranks,
        told=", ".join(parts), pending=pending,
    )  # fmt: skip


def _transfer(
    at: int, ranks: Sequence[int], source: int, target: int, given: Entry, taken: Entry
) -> Mismatch | None:
    """Compare the oldest pending send with the oldest pending receive of one pair."""
    if not (given.in_elements >= 0 and taken.in_elements >= 0 and max(source, target) < len(ranks)):
        return None
    same = given.in_elements == taken.in_elements and given.dtypes == taken.dtypes
    if same or given.seq != taken.seq:
        return None
    told = (
        f"rank {ranks[source]} sends {given.in_elements:,} elements of "
        f"{', '.join(sorted(given.dtypes))}, and rank {ranks[target]} receives "
        f"{taken.in_elements:,} of {', '.join(sorted(taken.dtypes))}"
    )
    return Mismatch(
        group=at, seq=given.seq, op=Op.SEND, manner="transfer",
        ranks=sorted((ranks[source], ranks[target])), told=told, pending=True,
    )  # fmt: skip
