"""Wire v2: what a sidecar sends of all ranks of a launch on its node together (docs/wire.md)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paceline.wire.frames import GroupDef, Pending, Sample

MAX_MEMBERS = 1024
"""Rings of one bundle."""


class BundleColumn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Signed integers of ``width`` bytes, shuffled as in ``Column``; of one value: all are it."""

    width: int
    data: bytes


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who wrote one of the rings. ``groups`` pairs its own number of a group with its place."""

    rank: int
    local_rank: int
    incarnation: str
    producer: str
    clock_domain: str
    groups: list[tuple[int, int]] = []


class SharedGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process group that members refer to by its place in the list."""

    name: str
    ranks: str
    epoch: int = 0
    mesh_dim: str = ""
    backend: str = ""


class OriginPart(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is the same in most bundles of a stream, as it is sent: bytes of their own."""

    job: str
    run_id: str
    attempt: int
    world_size: int
    stream: str
    """32 hex digits: one sidecar process and launch. It numbers its bundles from 0."""
    node: str
    members: list[Member]
    groups: list[SharedGroup] = []


class Extra(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one member tells beside its records, and others mostly do not (see ``Frame``)."""

    pending: list[Pending] = []
    dropped: dict[str, int] = {}
    ended: str = ""
    info: dict[str, str] = {}
    telemetry: list[Sample] = []
    control_generation: int = 0
    control_step: int = 0
    checkpoint_mono_ns: int = 0


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A bundle as it is sent. Lists have a place for each member."""

    origin: bytes
    seq: int
    sent_wall_ns: int
    frame_seqs: list[int]
    """Each ring's own count of what was made of it, as in ``Frame``."""
    counts: list[int]
    """Its records; they lie one member behind the other in the columns."""
    steps: list[int]
    read_mono_ns: list[int]
    """The first as it is, the others less the first; so are the two below."""
    anchor_mono_ns: list[int]
    anchor_ahead_ns: list[int]
    """Wall clock less monotonic."""
    bases: list[int]
    """Of ``BASED_COLUMNS``: what the first row's difference is to."""
    columns: list[BundleColumn]
    """In the order of ``COLUMN_NAMES``."""
    extras: dict[int, Extra] = {}
    """By place of the member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An ``OriginPart`` that was read and checked. One object serves all bundles that repeat it."""

    job: str
    run_id: str
    attempt: int
    world_size: int
    stream: str
    node: str
    members: tuple[Member, ...]
    definitions: tuple[tuple[GroupDef, ...], ...]
    """The groups of each member, by its own numbers."""
    ranks: tuple[int, ...]
    incarnations: tuple[str, ...]
    longest: dict[str, int]
    """Characters of the longest of its texts, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A decoded bundle. Its names are those of ``Frame`` where they mean the same."""

    origin: Origin
    body: Body
    count: int
    """Records of all members."""

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.origin.job

    @property
    def run_id(self) -> str:
        """Which run of that name."""
        return self.origin.run_id

    @property
    def attempt(self) -> int:
        """The launcher's count of restarts."""
        return self.origin.attempt

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.origin.world_size

    @property
    def incarnation(self) -> str:
        """The stream: with ``frame_seq`` it names the bundle."""
        return self.origin.stream

    @property
    def frame_seq(self) -> int:
        """The bundle's number in its stream."""
        return self.body.seq

    @property
    def rank(self) -> int:
        """No rank's: it is a stream of many."""
        return -1

    @property
    def node(self) -> str:
        """Where the members run."""
        return self.origin.node

    @property
    def producer(self) -> str:
        """What made the stream."""
        return "sidecar"

    @property
    def clock_domain(self) -> str:
        """A stream has no clock; its members have."""
        return ""

    @property
    def step(self) -> int:
        """The step that the farthest member is in."""
        return max(self.body.steps)

    @property
    def ended(self) -> str:
        """Members end; their stream does not say so."""
        return ""

    def read_mono_ns(self) -> list[int]:
        """Return when each ring was read."""
        return _absolute(self.body.read_mono_ns)

    def anchors(self) -> tuple[list[int], list[int]]:
        """Return the monotonic and the wall time of each member's anchor."""
        mono = _absolute(self.body.anchor_mono_ns)
        ahead = _absolute(self.body.anchor_ahead_ns)
        return mono, [m + a for m, a in zip(mono, ahead, strict=True)]


def relative(values: list[int]) -> list[int]:
    """Return the first value, and the others less the first."""
    first = values[0]
    return [first, *(value - first for value in values[1:])]


def _absolute(values: list[int]) -> list[int]:
    first = values[0]
    return [first, *(first + value for value in values[1:])]
