"""The short run of the fuzzing: every seed and every input that ever found something, mutated.

``make fuzz`` runs the same targets guided by coverage, for as long as it is told to.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import resource
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.fuzz.targets import NAMES

CORPUS = Path(__file__).parent / "corpus"
INPUTS = {"frames": 300, "ring": 700, "events": 500, "kineto": 250, "dumps": 700, "parquet": 250}
SLOW_FACTOR = 20
TIME_LIMIT_S = 20.0
"""Of one input; a generous one, since other tests run beside it."""
GROWTH_LIMIT_BYTES = 512 << 20


def target_of(name: str) -> ModuleType:
    if name == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install pyarrow")
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def corpus(name: str) -> dict[str, bytes]:
    directory = CORPUS / name
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*"))}


def try_one(target: ModuleType, data: bytes, name: str, keep: Path) -> None:
    began_s = time.monotonic()
    try:
        target.check(data)
    except Exception:
        path = keep / hashlib.sha256(data).hexdigest()[:12]
        path.write_bytes(data)
        print(f"a mutation of {name}; kept in {path}")
        raise
    assert time.monotonic() - began_s < TIME_LIMIT_S, name


@pytest.mark.parametrize("name", NAMES)
def test_what_once_broke_an_input_and_what_our_writers_write_is_taken(
    name: str, tmp_path: Path
) -> None:
    target = target_of(name)
    for label, data in {**target.seeds(), **corpus(name)}.items():
        try_one(target, data, label, tmp_path)


def mutated(name: str, inputs: int, tmp_path: Path) -> None:
    target = target_of(name)
    known = {**target.seeds(), **corpus(name)}
    labels = sorted(known)
    rng = random.Random(f"paceline {name}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    for _ in range(inputs):
        label = rng.choice(labels)
        data = known[label]
        for _ in range(rng.randrange(1, 5)):
            data = target.mutate(data, rng)
        try_one(target, data, label, tmp_path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert after - before < GROWTH_LIMIT_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_mutated_inputs_give_an_answer_or_a_documented_error_in_bounded_time_and_memory(
    name: str, tmp_path: Path
) -> None:
    mutated(name, INPUTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_many_more_mutated_inputs(name: str, tmp_path: Path) -> None:
    mutated(name, INPUTS[name] * SLOW_FACTOR, tmp_path)
