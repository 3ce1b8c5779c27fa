"""Traces of the PyTorch profiler (JSON)."""

from __future__ import annotations

import json
import random

from tests.fuzz.mutate import mutate_bytes, mutate_value
from tests.fuzz.targets.files import check_files, join, mutate_files
from tests.unit.importers.pairing_jobs import Call, Group, PairingJob, record
from tests.unit.importers.traces import TraceJob, traces

_GROUP = Group(name="0", ranks=(0, 1), stream=20)
_PROGRAM = (
    Call(what="p2p", group=_GROUP, source=0, destination=1),
    Call(what="p2p", group=_GROUP, source=0, destination=1, both_ways=True),
    Call(what="allreduce", group=_GROUP),
)


def seeds() -> dict[str, bytes]:
    """Return traces of small jobs, all ranks of one in each."""
    jobs = {
        "plain": TraceJob(world_size=2, steps=4, slow=1),
        "labelled": TraceJob(world_size=2, steps=4, labelled=True, slow=0, host_late=True),
        "unnumbered": TraceJob(world_size=2, steps=5, numbered=False),
        "groups": TraceJob(world_size=4, steps=3, labelled=True, groups=((0, 1), (2, 3))),
    }
    pipelines = {
        "batched": PairingJob(world_size=2, program=_PROGRAM, steps=4, batched=True, seq=3),
        "titled": PairingJob(world_size=2, program=_PROGRAM, steps=4, titled=True, labels="none"),
        "strided": PairingJob(world_size=2, program=_PROGRAM, steps=4, seq=3, labels="strided"),
    }
    documents = {name: traces(job) for name, job in jobs.items()}
    documents |= {name: record(job).documents for name, job in pipelines.items()}
    return {
        name: join([json.dumps(one, separators=(",", ":")).encode() for one in own])
        for name, own in documents.items()
    }


def check(data: bytes) -> None:
    """See ``check_files``."""
    check_files(data, lambda number: f"rank{number}.json")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with something in a trace changed as a value."""
    return mutate_files(data, rng, change_json)


def change_json(content: bytes, rng: random.Random) -> bytes:
    """Return a JSON text with some values changed; text that is no JSON is changed as bytes."""
    try:
        value = json.loads(content)
        for _ in range(1 << rng.randrange(4)):
            value = mutate_value(value, rng)
        return json.dumps(value, separators=(",", ":"), default=_text).encode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):
        return mutate_bytes(content, rng)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
