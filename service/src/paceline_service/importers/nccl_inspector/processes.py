"""Which global rank each process is: from the communicator that all of them are in.

A record tells the rank within its communicator. A process is told by its host and pid, and is in
several communicators; the one of all processes gives the numbers that the job itself uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path

import numpy as np

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.nccl_inspector.records import Communicator, Recorded

_PLACES = 1 << 21
"""More than any communicator has ranks."""
_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMap:
    """Who is who.

    Attributes:
        world_size: of the job.
        rank_of_row: (N,) global rank of each record, -1 where it is not told or not of the job.
        members: by communicator: the global rank of each of its places, -1 where no record tells.
        names: by global rank: host and pid.
        hosts: by global rank.
        paths: by global rank: the file that faults of it are told with.
        notes: what a reader of the ranks has to know.
    """

    world_size: int
    rank_of_row: Int64Array
    members: list[Int64Array]
    names: dict[int, str]
    hosts: dict[int, str]
    paths: dict[int, Path]
    notes: list[str] = field(default_factory=list)


def map_ranks(recorded: Recorded, faults: Faults) -> RankMap:
    """Find the global rank of every record.

    Raises:
        InputError: the records are of several jobs, or do not tell who is who.
    """
    unit, units = _units(recorded, faults)
    unit, units = _one_job(recorded, unit, units, faults)
    count = len(units)
    place = _places(recorded, unit, count)
    rank_of_unit, world_size, notes = _numbers(recorded, place, units)
    members = []
    for index, communicator in enumerate(recorded.communicators):
        mine = np.full(communicator.size, -1, dtype=np.int64)
        here = place[place[:, 0] == index]
        mine[here[:, 1]] = rank_of_unit[here[:, 2]]
        if communicator.size == world_size and (mine[here[:, 1]] == here[:, 1]).all():
            mine = np.arange(world_size)  # it gave the numbers: also of those who wrote nothing
        members.append(mine)
    rank_of_row = np.where(unit >= 0, np.append(rank_of_unit, -1)[unit], -1)
    processes = [recorded.processes[process] for process, _ in units]
    ranks = rank_of_unit.tolist()
    return RankMap(
        world_size=world_size,
        rank_of_row=rank_of_row,
        members=members,
        names={
            rank: f"pid {p.pid} on {_shown(p.host)}"
            for rank, p in zip(ranks, processes, strict=True)
        },
        hosts={rank: _shown(p.host) for rank, p in zip(ranks, processes, strict=True)},
        paths={rank: p.path for rank, p in zip(ranks, processes, strict=True)},
        notes=notes,
    )


def _units(recorded: Recorded, faults: Faults) -> tuple[Int64Array, list[tuple[int, int]]]:
    """Return (N,) which rank process each record is of, -1 for none, and (process, place) of each.

    A process usually is one rank. One that drives several GPUs is several: then only its place in
    one communicator tells them apart, and what other communicators hold cannot be told whose it is.
    """
    comm, rank, process = (recorded.column(name) for name in ("comm", "rank", "process"))
    triples = np.unique(np.stack([process, comm, rank], axis=1), axis=0)
    of_pair, pair_count = np.unique(triples[:, :2], axis=0, return_counts=True)
    several = np.unique(of_pair[pair_count > 1, 0])
    if not len(several):
        present, unit = np.unique(process, return_inverse=True)
        return unit.reshape(-1).astype(np.int64), [(int(index), -1) for index in present]
    sizes = np.array([c.size for c in recorded.communicators])
    largest = int(comm[np.argmax(sizes[comm])])
    shared = np.isin(process, several)
    key = np.where(shared, process * _PLACES + rank + 1, process * _PLACES)
    key[shared & (comm != largest)] = -1
    lost = int((key < 0).sum())
    if lost:
        first = recorded.processes[int(several[0])]
        message = (
            f"process {first.pid} on {_shown(first.host)} is several ranks at once, so only "
            f"communicator {recorded.communicators[largest].id} tells whose record is whose"
        )
        faults.add("unmapped", first.path, None, message, count=lost)
    kept, unit = np.unique(key, return_inverse=True)
    dropped = int(len(kept) and kept[0] < 0)
    units = [(int(k) // _PLACES, int(k) % _PLACES - 1) for k in kept[dropped:]]
    return np.asarray(unit.reshape(-1) - dropped, dtype=np.int64), units


def _one_job(
    recorded: Recorded, unit: Int64Array, units: list[tuple[int, int]], faults: Faults
) -> tuple[Int64Array, list[tuple[int, int]]]:
    """Keep one job: processes that share communicators; of attempts one after the other the last.

    Raises:
        InputError: several jobs ran at the same time.
    """
    here = unit >= 0
    pairs = np.unique(np.stack([recorded.column("comm")[here], unit[here]], axis=1), axis=0)
    job = _components(pairs, len(recorded.communicators), len(units))
    numbers = np.unique(job)
    if len(numbers) == 1:
        return unit, units
    dumped = recorded.column("dumped_us")
    of_row = np.where(here, job[unit], -1)
    spans = [(int(dumped[of_row == n].min()), int(dumped[of_row == n].max())) for n in numbers]
    order = sorted(range(len(numbers)), key=lambda i: spans[i])
    for before, after in pairwise(order):
        if spans[before][1] >= spans[after][0]:
            told = "; ".join(
                _some_processes(recorded, units, job == numbers[i]) for i in (before, after)
            )
            raise InputError(
                f"the records are of {len(numbers)} sets of processes that share no communicator "
                f"({told}): several jobs, or one whose common communicators were not recorded "
                "(NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES); give the files of one set"
            )
    last = numbers[order[-1]]
    left_out = here & (of_row != last)
    for process in dict.fromkeys(units[u][0] for u in np.unique(unit[left_out]).tolist()):
        path = recorded.processes[process].path
        count = int((left_out & (recorded.column("process") == process)).sum())
        faults.add("skipped_file", path, None, "left out: of an earlier attempt", count=count)
    kept = np.flatnonzero(job == last)
    number = np.full(len(units) + 1, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return number[unit], [units[int(index)] for index in kept]


def _components(pairs: Int64Array, communicators: int, units: int) -> Int64Array:
    """Return (U,) a number for each unit, equal where communicators lead from one to the other."""
    label = np.arange(units)
    lowest = np.full(communicators, units, dtype=np.int64)
    while True:
        np.minimum.at(lowest, pairs[:, 0], label[pairs[:, 1]])
        lower = label.copy()
        np.minimum.at(lower, pairs[:, 1], lowest[pairs[:, 0]])
        if (lower == label).all():
            return np.asarray(label, dtype=np.int64)
        label = lower


def _places(recorded: Recorded, unit: Int64Array, units: int) -> Int64Array:
    """Return (P, 3) communicator, place in it, and unit, of all that records tell.

    Raises:
        InputError: two processes say that they are the same rank of one communicator.
    """
    here = unit >= 0
    comm, rank = recorded.column("comm")[here], recorded.column("rank")[here]
    table = np.unique(np.stack([comm, rank, unit[here]], axis=1), axis=0)
    twice = np.flatnonzero((table[1:, :2] == table[:-1, :2]).all(axis=1))
    if len(twice):
        row = table[int(twice[0])]
        communicator = recorded.communicators[int(row[0])]
        raise InputError(
            f"two processes say that they are rank {row[1]} of communicator {communicator.id}; "
            "give the files of one run"
        )
    assert units == len(np.unique(table[:, 2]))
    return table


def _numbers(
    recorded: Recorded, place: Int64Array, units: list[tuple[int, int]]
) -> tuple[Int64Array, int, list[str]]:
    """Return (U,) the global rank of each unit, the size of the world, and notes.

    Raises:
        InputError: communicators of all processes number them differently.
    """
    count = len(units)
    orders: dict[bytes, tuple[Int64Array, Communicator]] = {}
    for index in np.unique(place[:, 0]).tolist():
        mine = place[place[:, 0] == index]
        if len(mine) == count:  # every process is in it
            order = mine[np.argsort(mine[:, 2]), 1]
            orders.setdefault(order.tobytes(), (order, recorded.communicators[index]))
    named = [pair for pair in orders.values() if "default" in pair[1].name.lower()]
    worlds = named if len(named) == 1 else list(orders.values())
    if len(worlds) > 1:
        ids = " and ".join(communicator.id for _, communicator in worlds[:_NAMED])
        raise InputError(
            f"communicators {ids} hold all {count} processes but number them differently, so the "
            "rank of a process is not told; give the files without one of them"
        )
    if worlds:
        order, communicator = worlds[0]
        return order, communicator.size, []
    keys = [(_natural(recorded.processes[p].host), recorded.processes[p].pid, g) for p, g in units]
    rank = np.empty(count, dtype=np.int64)
    rank[sorted(range(count), key=keys.__getitem__)] = np.arange(count)
    note = (
        "No communicator of all processes was recorded, so ranks are numbered here by host and "
        "pid; the job's own numbers may differ: go by host and pid."
    )
    return rank, count, [note]


def _natural(host: str) -> list[tuple[int, str]]:
    """Return a sort key by which node-10 comes after node-9."""
    parts = re.split(r"([0-9]+)", host)
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def _some_processes(recorded: Recorded, units: Sequence[tuple[int, int]], of: Int64Array) -> str:
    chosen = [recorded.processes[units[int(i)][0]] for i in np.flatnonzero(of)]
    more = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    return ", ".join(f"{_shown(p.host)} pid {p.pid}" for p in chosen[:_NAMED]) + more


def _shown(text: str) -> str:
    """Return a name without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)[:120]
