"""Which rank each process of the exports is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.importers.kineto import names
from paceline_service.importers.nsys.ranges import Ranges
from paceline_service.importers.nsys.session import Member, Session

Process = tuple[int, Member]
"""Number of the export, and the process in it, or one GPU of it."""


@dataclass(slots=True, kw_only=True)
class Ranks:
    """What is known of the ranks of a job.

    Attributes:
        of: by process.
        world_size: 0 where nothing tells it.
        manner: how the ranks are known, for a reader.
        unknown: exports with processes of which nobody says which ranks they are.
    """

    of: dict[Process, int] = field(default_factory=dict)
    world_size: int = 0
    manner: str = ""
    unknown: list[Path] = field(default_factory=list)


def find_ranks(sessions: Sequence[Session], ranges: Mapping[Process, Ranges]) -> Ranks:
    """Return the ranks, from the first that tells them for all: NCCL, MPI, environment, name.

    The number of the GPU is the last resort, of one export of several processes.
    """
    everyone = [(i, p) for i, session in enumerate(sessions) for p in session.processes]
    for manner, found, size in (
        ("NCCL's own ranges", *_of_nccl(everyone, ranges)),
        ("MPI's own ranges", _of_mpi(sessions), 0),
        ("the environment", *_of_environment(sessions)),
        ("the names of the files", _of_names(sessions), 0),
        ("the numbers of the GPUs", _of_devices(sessions), 0),
    ):
        known = {process: rank for process, rank in found.items() if process in set(everyone)}
        if len(known) == len(everyone) == len(set(known.values())) > 0:
            return Ranks(of=known, world_size=max(size, _declared(sessions)), manner=manner)
    return _part_of(sessions, everyone, ranges)


def _of_nccl(
    everyone: Sequence[Process], ranges: Mapping[Process, Ranges]
) -> tuple[dict[Process, int], int]:
    """Return the places in the largest communicator, if it can be that of all ranks."""
    found, sizes = {}, set()
    for process in everyone:
        told = [p for p in ranges.get(process, Ranges()).payloads if p.size > 0 <= p.position]
        largest = max(told, key=lambda payload: payload.size, default=None)
        if largest is None or largest.size < len(everyone):
            return {}, 0
        found[process] = largest.position
        sizes.add(largest.size)
    return (found, max(sizes)) if len(sizes) == 1 else ({}, 0)


def _of_mpi(sessions: Sequence[Session]) -> dict[Process, int]:
    return {
        (i, process): session.mpi_ranks[process[0]]
        for i, session in enumerate(sessions)
        for process in session.processes
        if process[0] in session.mpi_ranks
    }


def _of_environment(sessions: Sequence[Session]) -> tuple[dict[Process, int], int]:
    """Return what each export's environment tells of its only process."""
    found = {
        (i, session.processes[0]): session.rank
        for i, session in enumerate(sessions)
        if len(session.processes) == 1 and session.rank is not None
    }
    return found, _declared(sessions)


def _declared(sessions: Sequence[Session]) -> int:
    """Return the size that the environment of exports of one process each tells, else 0."""
    sizes = {session.world_size for session in sessions if len(session.processes) == 1}
    return sizes.pop() if len(sizes) == 1 else 0


def _of_names(sessions: Sequence[Session]) -> dict[Process, int]:
    told = ((i, session, names.rank_of(session.path)) for i, session in enumerate(sessions))
    return {
        (i, session.processes[0]): rank
        for i, session, rank in told
        if len(session.processes) == 1 and rank is not None
    }


def _of_devices(sessions: Sequence[Session]) -> dict[Process, int]:
    """Return the numbers of the GPUs, where one export shows all and each process has its own."""
    if len(sessions) != 1:
        return {}
    devices = sessions[0].devices
    found = {(0, process): own[0] for process, own in devices.items() if len(own) == 1}
    return found if sorted(found.values()) == list(range(len(devices))) else {}


def _part_of(
    sessions: Sequence[Session], everyone: Sequence[Process], ranges: Mapping[Process, Ranges]
) -> Ranks:
    """Return the ranks of those exports that tell them, each in its own manner."""
    ranks = Ranks(manner="what each export tells", world_size=_declared(sessions))
    for i, session in enumerate(sessions):
        mine = [process for process in everyone if process[0] == i]
        nccl, size = _of_nccl(mine, ranges)
        for found in (nccl, _of_mpi(sessions), _of_environment(sessions)[0], _of_names(sessions)):
            own = {process: found[process] for process in mine if process in found}
            if mine and len(own) == len(mine) and not set(own.values()) & set(ranks.of.values()):
                ranks.of.update(own)
                ranks.world_size = max(ranks.world_size, size)
                break
        else:
            ranks.unknown.append(session.path)
    return ranks


def count_steps(ranges: Mapping[Process, Ranges]) -> None:
    """Number the steps that have none by their order, where all processes show equally many."""
    if any(len(own.steps) for own in ranges.values()):
        return
    counts = {len(own.unnumbered) for own in ranges.values()}
    if len(counts) != 1 or not counts.pop():
        return
    for own in {id(own.steps): own for own in ranges.values()}.values():
        start, end = own.unnumbered.arrays()
        order = np.argsort(start, kind="stable")
        numbers = np.arange(len(order), dtype=np.int64)
        own.steps.extend(np.stack([numbers, start[order], end[order]], axis=1))
