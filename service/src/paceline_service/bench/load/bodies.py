"""The bodies of all POSTs of a load, encoded before the clock starts and kept in a file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.errors import InputError
from paceline.wire.bundle_codec import encode_bundle, encode_origin
from paceline.wire.bundles import (
    Body,
    BundleColumn,
    Extra,
    Member,
    OriginPart,
    SharedGroup,
    relative,
)
from paceline.wire.codec import ROW_FIELDS
from paceline.wire.columns import RESOLUTION_NS
from paceline_service.analysis.records import Int64Array
from paceline_service.bench.load.encode import columns_of_bundles
from paceline_service.bench.load.job import MadeUpJob
from paceline_service.bench.load.shape import RANKS_PER_NODE, LoadShape

_TIMES = ("start_ns", "end_ns", "join_ns", "issue_ns")
ANCHORED_NS = 10_000_000_000
"""A rank reads both clocks about so often."""
SPARE_RATIO = 0.1
"""Of the disk; a load that would take more is refused."""


class Bodies:
    """One body for each frame number and node: a bundle of its ranks, or several if it is large.

    Args:
        shape: the load.
        directory: where the file goes; it has no name there and takes no room once closed.
        begins_wall_ns: the wall clock that the first step began at, as the frames tell it.
        first: the number of the first frame of each rank: what came before is gone.
    """

    def __init__(
        self, shape: LoadShape, directory: Path, begins_wall_ns: int, *, first: int = 0
    ) -> None:
        self.shape = shape
        self._first = first
        self._begins_wall_ns = begins_wall_ns
        self._job = MadeUpJob(shape)
        rng = np.random.default_rng(shape.seed + 1)
        self._incarnations = [rng.bytes(16).hex() for _ in range(shape.ranks)]
        self._streams = [rng.bytes(16).hex() for _ in range(shape.nodes)]
        self._rng = rng
        self._groups = [self._job.groups(rank) for rank in range(shape.ranks)]
        self._directory = directory
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  closed by close()
        phases = rng.random(shape.nodes) * (shape.flush_s if shape.rate else 0.0)
        self._phase_s: list[float] = phases.tolist()
        self._leads = np.array([shape.lead(phase_s) for phase_s in self._phase_s], dtype=np.int64)
        self._steps: dict[int, Int64Array] = {}
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        """By frame number and node: where a body lies, and how long it is."""
        self._end = 0

    def encode(self, progress: Callable[[int], None] = lambda block: None) -> float:
        """Encode everything; return the CPU seconds that it took.

        Raises:
            InputError: the disk has no room for it.
        """
        began_s = time.process_time()
        for step in range(self.shape.steps):
            self._steps[step] = self._times_rounded(self._job.step(step))
            for lead in np.unique(self._leads).tolist():
                self._encode_ended(step, lead)
            self._steps.pop(step - self.shape.steps_per_frame, None)
            if step + 1 == self.shape.steps_per_frame:
                self._check_room(self._end * self.shape.blocks())
            progress(step)
        self._steps.clear()
        self._file.flush()
        return time.process_time() - began_s

    @property
    def total_bytes(self) -> int:
        """How long all bodies are together."""
        return self._end

    @property
    def frames(self) -> int:
        """How many times a rank's records are sent, over all ranks."""
        return sum(
            self.blocks(node) * len(self._ranks_of(node)) for node in range(self.shape.nodes)
        )

    @property
    def bundles(self) -> int:
        """How many bundles all nodes send."""
        size = self.shape.ranks_per_bundle
        return sum(
            self.blocks(node) * -(-len(self._ranks_of(node)) // size)
            for node in range(self.shape.nodes)
        )

    def blocks(self, node: int) -> int:
        """Return how many bodies a node sends."""
        return self.shape.blocks(int(self._leads[node]))

    def due_s(self, block: int, node: int) -> float:
        """Return when a body is to leave, from the begin of the job."""
        shape, lead = self.shape, int(self._leads[node])
        if block + 1 == shape.blocks(lead) or not shape.rate:
            return shape.steps * shape.step_s + self._phase_s[node] % shape.step_s
        ended_s = shape.steps_of(block, lead).stop * shape.step_s
        return ended_s + self._phase_s[node] - lead * shape.step_s

    def phase_s(self, node: int) -> float:
        """Return how long after others a node sends."""
        return self._phase_s[node]

    def size(self, block: int, node: int) -> int:
        """Return how long one body is."""
        return self._places[block, node][1]

    def read(self, block: int, node: int) -> bytes:
        """Return one body."""
        first, size = self._places[block, node]
        return os.pread(self._file.fileno(), size, first)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _times_rounded(self, table: Int64Array) -> Int64Array:
        times = [ROW_FIELDS.index(name) for name in _TIMES]
        table[:, :, times] -= table[:, :, times] % RESOLUTION_NS
        return table

    def _encode_ended(self, step: int, lead: int) -> None:
        """Encode the bodies that end with ``step``, of the nodes that begin with ``lead`` steps."""
        shape = self.shape
        block = (step - lead) // shape.steps_per_frame + bool(lead) if step >= lead else 0
        steps = shape.steps_of(block, lead)
        if step + 1 != steps.stop:
            return
        nodes = np.flatnonzero(self._leads == lead).tolist()
        parts = [
            members
            for node in nodes
            for members in _cut(self._ranks_of(node), shape.ranks_per_bundle)
        ]
        for alike in (
            [one for one in parts if len(one) == len(parts[0])],
            [one for one in parts if len(one) != len(parts[0])],
        ):
            if not alike:
                continue
            ranks = np.array([rank for one in alike for rank in one])
            table = np.concatenate([self._steps[at][ranks] for at in steps], axis=1)
            rows, fields = table.shape[1:]
            encoded = columns_of_bundles(table.reshape(len(alike), -1, fields))
            for members, (columns, bases) in zip(alike, encoded, strict=True):
                self._write(block, steps, members, rows, columns, bases)

    def _write(
        self,
        block: int,
        steps: range,
        members: range,
        rows: int,
        columns: list[BundleColumn],
        bases: list[int],
    ) -> None:
        node = members.start // RANKS_PER_NODE
        packed = encode_bundle(self._body(block, steps, members, rows, columns, bases))
        self._file.write(packed)
        first, size = self._places.get((block, node), (self._end, 0))
        self._places[block, node] = (first, size + len(packed))
        self._end += len(packed)

    def _ranks_of(self, node: int) -> range:
        first = node * RANKS_PER_NODE
        return range(first, min(first + RANKS_PER_NODE, self.shape.ranks))

    def _body(
        self,
        block: int,
        steps: range,
        members: range,
        rows: int,
        columns: list[BundleColumn],
        bases: list[int],
    ) -> Body:
        shape = self.shape
        sent_ns = round(steps.stop * shape.step_s * 1e9 + shape.flush_s * 1e9)
        node = members.start // RANKS_PER_NODE
        in_node = self._ranks_of(node)
        bundles = -(-len(in_node) // shape.ranks_per_bundle)
        offsets_ns = [int(self._job.offset_ns[rank]) for rank in members]
        # Every ring has an anchor of its own, some seconds old.
        anchored_ns = [sent_ns - int(self._rng.integers(0, ANCHORED_NS)) for _ in members]
        ended = Extra(ended="closed")
        number = self._first + block
        place = (members.start - in_node.start) // shape.ranks_per_bundle
        return Body(
            origin=self._origin(members),
            seq=number * bundles + place,
            sent_wall_ns=self._begins_wall_ns + sent_ns,
            frame_seqs=[number] * len(members),
            counts=[rows] * len(members),
            steps=[steps.stop] * len(members),
            read_mono_ns=relative([offset_ns + sent_ns for offset_ns in offsets_ns]),
            anchor_mono_ns=relative(
                [one + ago for one, ago in zip(offsets_ns, anchored_ns, strict=True)]
            ),
            anchor_ahead_ns=relative([self._begins_wall_ns - one for one in offsets_ns]),
            bases=bases,
            columns=columns,
            extras=dict.fromkeys(range(len(members)), ended) if steps.stop == shape.steps else {},
        )

    def _origin(self, members: range) -> bytes:
        node = members.start // RANKS_PER_NODE
        shared: dict[SharedGroup, int] = {}
        written = []
        for rank in members:
            groups = [
                (one.index, shared.setdefault(SharedGroup(one.name, one.ranks, one.epoch,
                                                          one.mesh_dim, one.backend), len(shared)))
                for one in self._groups[rank]
            ]  # fmt: skip
            written.append(
                Member(
                    rank=rank, local_rank=rank % RANKS_PER_NODE,
                    incarnation=self._incarnations[rank], producer="hooks",
                    clock_domain=f"boot-{node}", groups=groups,
                )
            )  # fmt: skip
        return encode_origin(
            OriginPart(
                job=self.shape.job, run_id=f"{self.shape.job}-{self._begins_wall_ns}", attempt=0,
                world_size=self.shape.ranks, stream=self._streams[node], node=f"node-{node}",
                members=written, groups=list(shared),
            )
        )  # fmt: skip

    def _check_room(self, wanted_bytes: int) -> None:
        disk = os.statvfs(self._directory)
        free_bytes = disk.f_bavail * disk.f_frsize - SPARE_RATIO * disk.f_blocks * disk.f_frsize
        if wanted_bytes > free_bytes:
            raise InputError(
                f"the frames take {wanted_bytes / 1e9:.1f} GB and {self._directory} has "
                f"{max(free_bytes, 0) / 1e9:.1f} GB to spare: shorten the run, or set TMPDIR to "
                "a directory with more room"
            )


def _cut(ranks: range, size: int) -> list[range]:
    """Return ranks in pieces of ``size``."""
    return [ranks[first : first + size] for first in range(0, len(ranks), size)]
