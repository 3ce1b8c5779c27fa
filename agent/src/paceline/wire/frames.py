"""Wire v1: what a sidecar sends, as types (docs/wire.md)."""

from __future__ import annotations

import msgspec

from paceline.wire.columns import Column

COLUMN_NAMES = (
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
    "start_ns", "end_after_ns", "join_after_ns", "issue_before_ns", "flags",
)  # fmt: skip
"""``start_ns`` is differenced; ``end_after_ns = end_ns - start_ns``, ``join_after_ns = join_ns -
start_ns`` and ``issue_before_ns = start_ns - issue_ns``; each is -1 where that time is unknown."""
DELTA_COLUMNS = frozenset({"seq", "step", "start_ns"})
MAX_RECORDS_PER_FRAME = 16384
MAX_GROUPS_PER_FRAME = 1024
MAX_PENDING_PER_FRAME = 1024
MAX_SAMPLES_PER_FRAME = 1024


class GroupDef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One process group: ``index`` is the rank's own number for it, used in its records."""

    index: int
    name: str
    ranks: str
    epoch: int = 0
    mesh_dim: str = ""
    backend: str = ""


class Pending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A collective that had arrived and was not released when the frame was made."""

    op: int
    group: int
    seq: int
    step: int
    peer: int
    payload_bytes: int
    start_ns: int


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was read of a rank's GPU and host at one moment; names are in docs/telemetry.md."""

    time_ns: int
    """On the clock of the rank's records."""
    values: dict[str, int | float | str | list[str]]


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Some records of one rank, with everything that is needed to understand them.

    ``(job, run_id, attempt, incarnation, frame_seq)`` names a frame; sent twice, it counts once.
    """

    job: str
    run_id: str
    attempt: int
    rank: int
    world_size: int
    incarnation: str
    """32 hex digits."""
    frame_seq: int
    node: str
    producer: str
    count: int
    columns: dict[str, Column]
    groups: list[GroupDef] = []
    local_rank: int = 0
    clock_domain: str = ""
    anchor_mono_ns: int = 0
    anchor_wall_ns: int = 0
    sent_wall_ns: int = 0
    step: int = 0
    pending: list[Pending] = []
    dropped: dict[str, int] = {}
    """Records lost on this rank so far, by reason (cumulative)."""
    ended: str = ""
    """``closed`` after a clean end, ``killed`` when the writer died without one, else empty."""
    info: dict[str, str] = {}
    """Facts about the process, for example ``torch`` and ``backend``."""
    telemetry: list[Sample] = []
    """Values of the node come with the frames of one of its ranks only."""
    control_generation: int = 0
    """The setting that the rank follows, and the first step that it holds for."""
    control_step: int = 0
    read_mono_ns: int = 0
    """When the ring was read, on the clock of its records; 0: not known."""
    checkpoint_mono_ns: int = 0
    """Since when the rank has been saving a checkpoint; 0: it does not."""
