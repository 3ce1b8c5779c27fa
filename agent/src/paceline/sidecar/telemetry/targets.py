"""Which values go to the frames of which rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from paceline import telemetry as names
from paceline.clock import boot_id, time_namespace
from paceline.ring import RingIdentity
from paceline.sidecar.telemetry.buffer import TelemetryBuffer
from paceline.sidecar.telemetry.process import Process, clock_offset_ns, writer_pid
from paceline.sidecar.telemetry.reading import Gpu, Reading
from paceline.telemetry import Scope, Values

GPU_UUID_FACT = "gpu_uuid"
"""The fact of a ring's metadata that names the GPU of its rank."""
GPU_PCI_FACT = "gpu_pci"
PLUGIN_PRODUCER = "nccl"
_EVENTS = (names.XID, names.SXID)
BEFORE_JOB_NS = 60_000_000_000
"""An event that much before a ring was made may be of its job: a GPU can die at the first touch."""


class Followed(Protocol):
    """A ring that is followed, as far as telemetry needs it."""

    @property
    def identity(self) -> RingIdentity:
        """Whose ring it is."""

    @property
    def path(self) -> Path:
        """The ring file."""

    @property
    def info(self) -> Mapping[str, str]:
        """The facts that its writer told."""

    @property
    def telemetry(self) -> TelemetryBuffer:
        """Where its samples go."""


class Target:
    """One ring with its process and clock."""

    def __init__(self, followed: Followed, sysfs: Path) -> None:
        identity = followed.identity
        self.followed = followed
        self.job = (identity.job, identity.run_id, identity.attempt)
        self.is_plugin = identity.producer == PLUGIN_PRODUCER
        pid = writer_pid(followed.path)
        self.process = Process(pid, sysfs) if pid else None
        self.offset_ns = _offset_ns(identity, pid)
        """Added to this process's clock to get the ring's; None: they cannot be compared."""
        self.delivered: set[int] = set()

    def add(self, reading: Reading, values: Values) -> None:
        """Put ``values`` into the rank's buffer, on its own clock."""
        buffer = self.followed.telemetry
        time_ns = reading.time_ns + (self.offset_ns or 0)
        if self.offset_ns is None or time_ns < 0:
            buffer.dropped += 1
        else:
            buffer.add(time_ns, values)

    def has(self, gpu: Gpu) -> str:
        """Return how it is known that ``gpu`` is this rank's; empty: it is not."""
        told = self.followed.info.get(GPU_UUID_FACT, "")
        if told:
            return "uuid" if gpu.is_called(told) else ""
        # Which instance of a divided GPU is meant, an index cannot tell.
        alone = not gpu.mig_uuids
        return "local_rank" if alone and gpu.index == self.followed.identity.local_rank else ""


def choose(targets: Iterable[Target]) -> list[Target]:
    """Return one ring per rank: the hooks' rather than the plugin's, the newest of several."""
    chosen: dict[tuple[object, int], Target] = {}
    for target in targets:
        key = (target.job, target.followed.identity.rank)
        known = chosen.get(key)
        if known is None or _preference(target) > _preference(known):
            chosen[key] = target
    return list(chosen.values())


def first_of_jobs(targets: Iterable[Target]) -> list[Target]:
    """Return the lowest local rank of each job: its frames carry the values of the node."""
    first: dict[object, Target] = {}
    for target in targets:
        known = first.get(target.job)
        if known is None or _place(target) < _place(known):
            first[target.job] = target
    return list(first.values())


def is_event(reading: Reading) -> bool:
    """Whether a reading is an event of the kernel log."""
    return any(name in reading.values for name in _EVENTS)


def route(reading: Reading, targets: list[Target], first: list[Target]) -> list[Target]:
    """Give ``reading`` to those it is of, and return them."""
    if reading.scope is Scope.PROCESS:
        goals = [t for t in targets if _incarnation(t) == reading.incarnation]
    elif reading.scope is Scope.NODE or reading.gpu is None:
        goals = first
    else:
        goals = [t for t in targets if t.has(reading.gpu)]
    for target in goals:
        values = reading.values
        if reading.gpu is not None and names.GPU_UUID in values:
            values = {**values, names.GPU_BY: target.has(reading.gpu)}
        target.add(reading, values)
    return goals


def _preference(target: Target) -> tuple[bool, int]:
    return not target.is_plugin, target.followed.identity.created_mono_ns


def _place(target: Target) -> tuple[int, int]:
    return target.followed.identity.local_rank, target.followed.identity.rank


def _incarnation(target: Target) -> str:
    return target.followed.identity.incarnation.hex()


def _offset_ns(identity: RingIdentity, pid: int) -> int | None:
    if identity.boot_id != boot_id():
        return None
    if identity.time_namespace == time_namespace():
        return 0
    theirs, own = clock_offset_ns(pid) if pid else None, clock_offset_ns("self")
    return None if theirs is None or own is None else theirs - own
