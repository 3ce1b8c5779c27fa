"""A real recorder over a real ring, without a process group."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from paceline.hooks.groups import Groups
from paceline.hooks.recorder import Recorder
from paceline.ring import Record, RingReader
from paceline.ring.writer import RingWriter, new_identity
from paceline.vocabulary import Phase, RecordKind


def recorder(directory: Path, level: str = "full") -> Recorder:
    identity = new_identity(
        job="unit", run_id="run", attempt=0, rank=0, local_rank=0, world_size=1, node="n",
        boot_id="b", time_namespace=1, producer="hooks",
    )  # fmt: skip
    groups = Groups(ModuleType("c10d"), lambda entry: None)
    return Recorder(RingWriter(directory, identity), groups, level)


def records(made: Recorder) -> list[Record]:
    reader = RingReader(made.writer.path)
    try:
        return reader.poll(limit=100_000).records
    finally:
        reader.close()


def phases(made: Recorder, phase: Phase) -> list[Record]:
    return [r for r in records(made) if (r.kind, r.code) == (RecordKind.PHASE, phase)]
