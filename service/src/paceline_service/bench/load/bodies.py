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
    """

    def __init__(self, shape: LoadShape, directory: Path, begins_wall_ns: int) -> None:
        self.shape = shape
        self._begins_wall_ns = begins_wall_ns
        self._job = MadeUpJob(shape)
        rng = np.random.default_rng(shape.seed + 1)
        self._incarnations = [rng.bytes(16).hex() for _ in range(shape.ranks)]
        self._streams = [rng.bytes(16).hex() for _ in range(shape.nodes)]
        self._rng = rng
        self._groups = [self._job.groups(rank) for rank in range(shape.ranks)]
        self._directory = directory
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  closed by close()
        self._offsets: Int64Array = np.zeros((shape.blocks, shape.nodes + 1), dtype=np.int64)

    def encode(self, progress: Callable[[int], None] = lambda block: None) -> float:
        """Encode everything; return the CPU seconds that it took.

        Raises:
            InputError: the disk has no room for it.
        """
        began_s = time.process_time()
        end = 0
        for block in range(self.shape.blocks):
            sizes = self._encode_block(block)
            self._offsets[block] = end + np.cumsum([0, *sizes])
            end = int(self._offsets[block, -1])
            if block == 0:
                self._check_room(end * self.shape.blocks)
            progress(block)
        self._file.flush()
        return time.process_time() - began_s

    @property
    def total_bytes(self) -> int:
        """How long all bodies are together."""
        return int(self._offsets[-1, -1])

    def size(self, block: int, node: int) -> int:
        """Return how long one body is."""
        first, end = self._offsets[block, node : node + 2].tolist()
        return int(end - first)

    def read(self, block: int, node: int) -> bytes:
        """Return one body."""
        first, end = self._offsets[block, node : node + 2].tolist()
        return os.pread(self._file.fileno(), end - first, first)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _encode_block(self, block: int) -> list[int]:
        shape = self.shape
        table = np.concatenate([self._job.step(step) for step in shape.steps_of(block)], axis=1)
        times = [ROW_FIELDS.index(name) for name in _TIMES]
        table[:, :, times] -= table[:, :, times] % RESOLUTION_NS
        ranks, rows, fields = table.shape
        size = shape.ranks_per_bundle
        whole = ranks // size
        encoded = columns_of_bundles(table[: whole * size].reshape(whole, size * rows, fields))
        if ranks % size:
            encoded += columns_of_bundles(table[whole * size :].reshape(1, -1, fields))
        sizes = [0] * shape.nodes
        for place, (columns, bases) in enumerate(encoded):
            members = range(place * size, min((place + 1) * size, ranks))
            packed = encode_bundle(self._body(block, members, rows, columns, bases))
            self._file.write(packed)
            sizes[members.start // RANKS_PER_NODE] += len(packed)
        return sizes

    def _body(
        self, block: int, members: range, rows: int, columns: list[BundleColumn], bases: list[int]
    ) -> Body:
        shape = self.shape
        steps = shape.steps_of(block)
        sent_ns = round(steps.stop * shape.step_s * 1e9 + shape.flush_s * 1e9)
        node = members.start // RANKS_PER_NODE
        in_node = range(node * RANKS_PER_NODE, min((node + 1) * RANKS_PER_NODE, shape.ranks))
        bundles = -(-len(in_node) // shape.ranks_per_bundle)
        offsets_ns = [int(self._job.offset_ns[rank]) for rank in members]
        # Every ring has an anchor of its own, some seconds old.
        anchored_ns = [sent_ns - int(self._rng.integers(0, ANCHORED_NS)) for _ in members]
        ended = Extra(ended="closed")
        return Body(
            origin=self._origin(members),
            seq=block * bundles + (members.start - in_node.start) // shape.ranks_per_bundle,
            sent_wall_ns=self._begins_wall_ns + sent_ns,
            frame_seqs=[block] * len(members),
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
