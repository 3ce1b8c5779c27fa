"""The bodies of all POSTs of a load, encoded before the clock starts and kept in a file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.errors import InputError
from paceline.wire.codec import ROW_FIELDS, encode_frame
from paceline.wire.columns import RESOLUTION_NS
from paceline.wire.frames import Frame
from paceline_service.analysis.records import Int64Array
from paceline_service.bench.load.encode import columns_of_ranks
from paceline_service.bench.load.job import MadeUpJob
from paceline_service.bench.load.shape import RANKS_PER_NODE, LoadShape

_TIMES = ("start_ns", "end_ns", "join_ns", "issue_ns")
SPARE_RATIO = 0.1
"""Of the disk; a load that would take more is refused."""


class Bodies:
    """One body for each frame number and node: the frames of its ranks back to back.

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
        steps = shape.steps_of(block)
        table = np.concatenate([self._job.step(step) for step in steps], axis=1)
        times = [ROW_FIELDS.index(name) for name in _TIMES]
        table[:, :, times] -= table[:, :, times] % RESOLUTION_NS
        sizes = []
        size = 0
        for rank, columns in enumerate(columns_of_ranks(table)):
            sent_ns = round(steps.stop * shape.step_s * 1e9 + shape.flush_s * 1e9)
            offset_ns = int(self._job.offset_ns[rank])
            packed = encode_frame(
                Frame(
                    job=shape.job,
                    run_id=f"{shape.job}-{self._begins_wall_ns}",
                    attempt=0,
                    rank=rank,
                    local_rank=rank % RANKS_PER_NODE,
                    world_size=shape.ranks,
                    incarnation=self._incarnations[rank],
                    frame_seq=block,
                    node=f"node-{rank // RANKS_PER_NODE}",
                    producer="hooks",
                    count=table.shape[1],
                    columns=columns,
                    groups=self._groups[rank],
                    clock_domain=f"boot-{rank // RANKS_PER_NODE}",
                    anchor_mono_ns=offset_ns + sent_ns,
                    anchor_wall_ns=self._begins_wall_ns + sent_ns,
                    sent_wall_ns=self._begins_wall_ns + sent_ns,
                    read_mono_ns=offset_ns + sent_ns,
                    step=steps.stop,
                    ended="closed" if steps.stop == shape.steps else "",
                )
            )
            self._file.write(packed)
            size += len(packed)
            if rank % RANKS_PER_NODE == RANKS_PER_NODE - 1 or rank == shape.ranks - 1:
                sizes.append(size)
                size = 0
        return sizes

    def _check_room(self, wanted_bytes: int) -> None:
        disk = os.statvfs(self._directory)
        free_bytes = disk.f_bavail * disk.f_frsize - SPARE_RATIO * disk.f_blocks * disk.f_frsize
        if wanted_bytes > free_bytes:
            raise InputError(
                f"the frames take {wanted_bytes / 1e9:.1f} GB and {self._directory} has "
                f"{max(free_bytes, 0) / 1e9:.1f} GB to spare: shorten the run, or set TMPDIR to "
                "a directory with more room"
            )
