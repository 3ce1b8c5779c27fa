"""Frames of a made-up job, encoded before the clock starts.

Every time has fresh random digits down to the nanosecond: constant times would
compress to nothing and make ingest look faster than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline.vocabulary import Op, Phase, RecordKind
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef

STEP_NS = 1_000_000_000
PHASES = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large the job is, and how its records are cut into frames."""

    ranks: int
    steps: int
    collectives: int
    """A step and rank."""
    steps_per_frame: int
    frames_per_body: int = 32

    @property
    def records(self) -> int:
        """How many records there are in all."""
        return self.ranks * self.steps * (self.collectives + len(PHASES) + 1)


def bodies(shape: Shape, job: str, seed: int) -> Iterator[list[bytes]]:
    """Yield request bodies as lists of frames: all ranks of some steps, then the next steps."""
    rng = np.random.default_rng(seed)
    incarnations = [rng.bytes(16).hex() for _ in range(shape.ranks)]
    body: list[bytes] = []
    for frame_seq, first_step in enumerate(range(0, shape.steps, shape.steps_per_frame)):
        steps = range(first_step, min(first_step + shape.steps_per_frame, shape.steps))
        rows = [_step_rows(shape, step, rng) for step in steps]
        for rank in range(shape.ranks):
            of_rank = [row for of_step in rows for row in of_step[rank]]
            body.append(_frame(shape, job, rank, incarnations[rank], frame_seq, of_rank))
            if len(body) == shape.frames_per_body:
                yield body
                body = []
    if body:
        yield body


def _step_rows(shape: Shape, step: int, rng: np.random.Generator) -> list[list[Row]]:
    """Return the records of one step for each rank; one clock serves all."""
    start_ns = 1_000_000_000_000 + step * STEP_NS
    slot_ns = STEP_NS // (shape.collectives + 2)
    size = (shape.collectives, shape.ranks)
    arrival_ns = (
        start_ns
        + (np.arange(shape.collectives)[:, None] + 1) * slot_ns
        + (np.abs(rng.normal(0.0, 0.02, size)) * slot_ns).astype(np.int64)
    )
    release_ns = arrival_ns.max(axis=1, keepdims=True) + (
        slot_ns * 0.1 * rng.lognormal(0.0, 0.2, (shape.collectives, 1))
    ).astype(np.int64)
    release_ns = release_ns + rng.integers(0, 60_000, size)
    edges_ns = start_ns + np.sort(rng.integers(0, STEP_NS, (shape.ranks, 2 * len(PHASES))), axis=1)
    first_seq = step * shape.collectives
    rows = []
    for rank in range(shape.ranks):
        mine: list[Row] = [
            (
                int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), 0, first_seq + i, step, -1, 1 << 20,
                int(arrival_ns[i, rank]), int(release_ns[i, rank]), int(arrival_ns[i, rank]) + 900,
                int(arrival_ns[i, rank]), 0,
            )
            for i in range(shape.collectives)
        ]  # fmt: skip
        for i, phase in enumerate(PHASES):
            begin_ns, end_ns = int(edges_ns[rank, 2 * i]), int(edges_ns[rank, 2 * i + 1])
            mine.append(
                (int(RecordKind.PHASE), int(phase), 0, 0, step, -1, 0, begin_ns, end_ns, 0, 0, 0)
            )
        mine.append(
            (
                int(RecordKind.STEP), 0, 0, 0, step, -1, 0,
                start_ns, start_ns + STEP_NS - int(rng.integers(0, 1_000_000)), 0, 0, 0,
            )
        )  # fmt: skip
        rows.append(mine)
    return rows


def _frame(
    shape: Shape, job: str, rank: int, incarnation: str, frame_seq: int, rows: list[Row]
) -> bytes:
    return encode_frame(
        Frame(
            job=job,
            run_id="bench",
            attempt=0,
            rank=rank,
            local_rank=rank % 8,
            world_size=shape.ranks,
            incarnation=incarnation,
            frame_seq=frame_seq,
            node=f"node-{rank // 8}",
            producer="bench",
            count=len(rows),
            columns=encode_rows(rows),
            groups=[GroupDef(index=0, name="dp", ranks=f"0-{shape.ranks - 1}", backend="gloo")],
            clock_domain="bench",
            anchor_mono_ns=1_000_000_000_000,
            anchor_wall_ns=1_700_000_000_000_000_000,
            step=rows[-1][4],
        )
    )
