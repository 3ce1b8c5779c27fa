"""One incarnation of a rank as its frames tell of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from paceline.errors import InputError
from paceline.ranks import parse_ranks
from paceline.wire.bundles import Extra
from paceline.wire.frames import Frame, GroupDef
from paceline_service.analysis.records import Group, Int64Array
from paceline_service.jobs.newest import NewestTelemetry
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.walltime import WallClock
from paceline_service.store.frames import CommittedFrame

EPOCHS_PER_GENERATION = 1 << 20
"""A restarted rank counts its groups' epochs from 0 again; this keeps the two apart."""
MAX_LOCAL_GROUP = 1 << 16
VERSIONS = ("paceline", "torch", "python", "cuda", "nccl")
"""Facts of a process that tell which software it is."""
MAX_VERSION_CHARS = 64

parse_rank_list = lru_cache(maxsize=4096)(parse_ranks)


@dataclass(slots=True, kw_only=True)
class Stream:
    """What is known about one ring of one rank process."""

    incarnation: str
    rank: int
    producer: str
    generation: int
    """How many incarnations of this rank and producer came before it in the attempt."""
    step_base: int
    """Added to its steps, so that those of a restarted rank follow those before."""
    buffer: ReorderBuffer[CommittedFrame]
    node: str = ""
    step: int = -1
    """The newest step that was recorded, with ``step_base``."""
    last_seen_wall_ns: int = 0
    ended: str = ""
    reported: dict[str, int] = field(default_factory=dict)
    """Lost at the rank, by reason."""
    lost: Counter[str] = field(default_factory=Counter)
    """Lost here, by reason."""
    clock: WallClock = field(default_factory=WallClock)
    control_generation: int = 0
    """The setting that it follows."""
    versions: dict[str, str] = field(default_factory=dict)
    telemetry: NewestTelemetry = field(default_factory=NewestTelemetry)
    group_of_local: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    definitions: dict[int, GroupDef] = field(default_factory=dict)

    @property
    def dropped(self) -> Counter[str]:
        """Everything lost of this incarnation, by reason."""
        total = Counter(self.reported) + self.lost
        if self.buffer.skipped:
            total["frames_missing"] += self.buffer.skipped
        if self.buffer.late:
            total["frames_late"] += self.buffer.late
        return total

    @property
    def has_losses(self) -> bool:
        """Whether ``dropped`` holds anything."""
        return bool(self.reported or self.lost or self.buffer.skipped or self.buffer.late)

    def note(self, frame: Frame, received_wall_ns: int) -> None:
        """Take what a frame says beside its records."""
        self.node = frame.node or self.node
        self.last_seen_wall_ns = max(self.last_seen_wall_ns, received_wall_ns)
        self.clock.anchor(frame.anchor_mono_ns, frame.anchor_wall_ns)
        self.note_told(frame)

    def note_told(self, frame: Frame | Extra) -> None:
        """Take losses, an end and facts about the process."""
        if frame.dropped or self.reported:
            self.reported = {name: count for name, count in frame.dropped.items() if count > 0}
        if frame.ended:
            self.ended = frame.ended
        if frame.info:
            told = {name: frame.info[name][:MAX_VERSION_CHARS] for name in VERSIONS
                    if frame.info.get(name)}  # fmt: skip
            self.versions = told or self.versions

    def set_group(self, definition: GroupDef, job_index: int) -> None:
        """Remember which job-wide group a local number means."""
        size = definition.index + 1
        if size > len(self.group_of_local):
            grown = np.full(size, -1, dtype=np.int64)
            grown[: len(self.group_of_local)] = self.group_of_local
            self.group_of_local = grown
        self.group_of_local[definition.index] = job_index
        self.definitions[definition.index] = definition

    @staticmethod
    def may_define(definition: GroupDef) -> bool:
        """Whether the number and the epoch of a definition are in their ranges."""
        return 0 <= definition.index < MAX_LOCAL_GROUP and definition.epoch >= 0

    def group(self, definition: GroupDef, world_size: int) -> Group | None:
        """Return the group that a definition means, or None where it makes no sense."""
        if not self.may_define(definition):
            return None
        try:
            ranks = parse_rank_list(definition.ranks)
        except InputError:
            return None
        members = set(ranks)
        if self.rank not in members or len(members) != len(ranks) or max(ranks) >= world_size:
            return None
        return Group(
            name=definition.name,
            ranks=ranks,
            epoch=definition.epoch + self.generation * EPOCHS_PER_GENERATION,
            mesh_dim=definition.mesh_dim,
        )
