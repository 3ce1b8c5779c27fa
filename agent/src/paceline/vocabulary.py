"""The words that rings, frames, event logs and reports share.

The numbers are part of ring v1 and wire v1 (docs/ring.md, docs/wire.md): they
are never reused, only added to. ``plugin/ring.h`` repeats them for C.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class RecordKind(IntEnum):
    """What a record describes."""

    COLLECTIVE = 1
    PHASE = 2
    STEP = 3


class Op(IntEnum):
    """A collective or point-to-point operation; the name in lower case is the event log's."""

    UNKNOWN = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BARRIER = 5
    BROADCAST = 6
    REDUCE = 7
    GATHER = 8
    SCATTER = 9
    SEND = 10
    RECV = 11


class Phase(IntEnum):
    """Where in a step a rank spends its time; HOST is what no other phase covers.

    The phases of a rank never overlap, but for those in ``OVERLAYS``, which say what happened
    within them.
    """

    HOST = 0
    INPUT = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COPY = 5
    """The batch goes from the host's memory to the device."""
    CHECKPOINT = 6
    GC = 7
    """Python's garbage collector stopped every thread."""
    STARVED = 8
    """A thread of the process was ready and could not run: no core, or no interpreter lock."""


class Flag(IntFlag):
    """Facts about one record that its reader must know."""

    RELEASE_POLLED = 1
    """The release was seen by polling: ``end_ns`` is an upper bound, ``join_ns`` unknown."""
    ASYNC = 2
    """The caller did not wait at once: communication may overlap with compute."""
    GPU_TIME = 4
    """Arrival and release were measured on the device timeline."""
    PARTIAL = 8
    """Some channels of the collective were not seen; the times are bounds."""
    NOT_WAITED = 16
    """Dropped or still pending when its process ended; ``end_ns`` is 0."""
    FAILED = 32
    """The operation raised; ``end_ns`` is when it did."""
    HOST_RETURN = 64
    """In rings only: the release is unknown, ``end_ns`` is when the call came back to the host.
    The sidecar finds the plugin's record between the two, and sends 0 where there is none."""
    NO_COLLECTIVES = 128
    """On a STEP: its collectives were not recorded, as the level or the stride says, or not all of
    them were, because the level changed within it. That is no loss (docs/control.md)."""


OVERLAYS = frozenset({Phase.GC, Phase.STARVED})
"""Phases that lie within others; they explain time and are never added to it."""
EXCLUSIVE_PHASES = tuple(phase for phase in Phase if phase not in OVERLAYS)
"""The phases that a step divides into; their numbers are 0 to 6."""
ROOTED_OPS = frozenset({Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER})
P2P_OPS = frozenset({Op.SEND, Op.RECV})
BARRIER_LIKE_OPS = frozenset(
    {Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.BARRIER}
)
"""Operations that no rank can leave before every rank has arrived."""


def op_name(op: Op) -> str:
    """Return the event log's name of ``op``, for example ``all_reduce``."""
    return op.name.lower()


def phase_name(phase: Phase) -> str:
    """Return the event log's name of ``phase``, for example ``backward``."""
    return phase.name.lower()
