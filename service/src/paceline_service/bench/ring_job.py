"""Writes the rings of several ranks at a steady rate: what a node's sidecar has to read.

Runs as a process of its own until its standard input ends.
"""

from __future__ import annotations

import argparse
import random
import select
import sys
import time
from pathlib import Path

from paceline.clock import boot_id, time_namespace
from paceline.ring import RingWriter, new_identity
from paceline.vocabulary import Flag, Op, Phase, RecordKind

BURST_S = 0.01
COLLECTIVES_PER_STEP = 50
"""With one step and three phases a step: eight in a hundred records are no collective."""
_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_OPS = (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE)


class Rank:
    """The ring of one rank; times and sizes vary as those of real collectives do.

    Args:
        directory: where its ring goes.
        rank: of ``world_size``.
        world_size: ranks of the job.
        device_times: write what the hooks write for device tensors, and a second ring with what
            the NCCL plugin measured, for the sidecar to join.
    """

    def __init__(self, directory: Path, rank: int, world_size: int, *, device_times: bool) -> None:
        self._rings = [
            RingWriter(
                directory,
                new_identity(
                    job="bench", run_id="bench", attempt=0, rank=rank, local_rank=rank,
                    world_size=world_size, node="bench", boot_id=boot_id(),
                    time_namespace=time_namespace(), producer=producer,
                ),
            )
            for producer in (("hooks", "nccl") if device_times else ("hooks",))
        ]  # fmt: skip
        for group in range(len(_OPS)):
            self._rings[0].meta({
                "group": group, "name": f"mesh_{group}", "ranks": f"0-{world_size - 1}",
                "epoch": 0, "mesh_dim": f"d{group}", "backend": "nccl",
            })  # fmt: skip
            if device_times:
                self._rings[1].meta({
                    "comm": group, "hash": f"{group:016x}", "name": "", "rank": rank,
                    "nranks": world_size, "nnodes": 1,
                })  # fmt: skip
        self._random = random.Random(rank)
        self._written = 0
        self._device_ns = 0

    def write(self, collectives: int, until_ns: int, duration_ns: int) -> int:
        """Write so many collectives of the time before ``until_ns``; return records written."""
        spacing_ns = duration_ns // collectives
        others = 0
        for number in range(collectives):
            now_ns = until_ns - duration_ns + number * spacing_ns
            self._collective(now_ns, spacing_ns)
            self._written += 1
            if self._written % COLLECTIVES_PER_STEP == 0:
                others += self._step(now_ns + spacing_ns, spacing_ns * COLLECTIVES_PER_STEP)
        for ring in self._rings:
            ring.heartbeat(self._written // COLLECTIVES_PER_STEP)
        return collectives + others

    def close(self) -> None:
        """End as a rank does."""
        for ring in self._rings:
            ring.close()

    def _collective(self, now_ns: int, spacing_ns: int) -> None:
        step = self._written // COLLECTIVES_PER_STEP
        seq, group = divmod(self._written, len(_OPS))
        start_ns = now_ns + self._random.randrange(spacing_ns // 10)
        payload_bytes = 4096 * (1 + self._written % COLLECTIVES_PER_STEP)
        call = (RecordKind.COLLECTIVE, _OPS[group], group, seq, step, -1, payload_bytes)
        if len(self._rings) == 1:
            join_ns = start_ns + self._random.randrange(spacing_ns // 10)
            end_ns = join_ns + self._random.randrange(spacing_ns // 2)
            self._rings[0].record(*call, start_ns, end_ns, join_ns, start_ns, Flag.ASYNC)
            return
        returned_ns = start_ns + self._random.randrange(20_000, 60_000)
        self._rings[0].record(*call, start_ns, returned_ns, 0, start_ns, Flag.HOST_RETURN)
        begun_ns = max(self._device_ns, start_ns + 20_000)
        self._device_ns = begun_ns + self._random.randrange(spacing_ns // 2, spacing_ns)
        issue_ns = start_ns + 10_000
        self._rings[1].record(
            RecordKind.COLLECTIVE, _OPS[group], group, seq, 0, -1, payload_bytes,
            begun_ns, self._device_ns, 0, issue_ns, Flag.GPU_TIME,
        )  # fmt: skip

    def _step(self, now_ns: int, duration_ns: int) -> int:
        step = (self._written - 1) // COLLECTIVES_PER_STEP
        begun_ns = now_ns - duration_ns
        for number, phase in enumerate(_PHASES):
            start_ns = begun_ns + number * duration_ns // 3
            self._rings[0].record(
                RecordKind.PHASE, phase, 0, 0, step, -1, 0, start_ns, start_ns + duration_ns // 3
            )
        self._rings[0].record(RecordKind.STEP, 0, 0, 0, step, -1, 0, begun_ns, now_ns)
        return 1 + len(_PHASES)


def main() -> None:
    """Write at the rate that was asked for until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--per-second", type=int, required=True, help="collectives of a rank")
    parser.add_argument("--device-times", action="store_true")
    options = parser.parse_args()
    ranks = [
        Rank(options.directory, rank, options.ranks, device_times=options.device_times)
        for rank in range(options.ranks)
    ]
    burst = round(options.per_second * BURST_S)
    next_s = time.monotonic()
    until_ns = round(next_s * 1e9)
    while not select.select([sys.stdin], [], [], max(next_s - time.monotonic(), 0))[0]:
        next_s += BURST_S
        # By plan and not by the clock: late bursts would overlap, which calls of one thread do not.
        until_ns += round(BURST_S * 1e9)
        for rank in ranks:
            rank.write(burst, until_ns, round(BURST_S * 1e9))
    for rank in ranks:
        rank.close()


if __name__ == "__main__":
    main()
