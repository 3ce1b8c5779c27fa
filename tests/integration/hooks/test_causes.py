from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase
from tests.integration.hooks.kit import JOBS, Finished, Ring, read_rings, run_ranks

pytestmark = pytest.mark.integration
SAVE_NS = 30e6


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    directory: Path = tmp_path_factory.mktemp("causes")
    env = {"DIRECTORY": str(directory), "PACELINE_NATIVE": "off"}
    finished = run_ranks("causes.py", directory, 1, env=env)
    assert finished.returncodes == [0], "\n".join(finished.output)
    assert finished.rings[0].errors == 0
    return finished


@pytest.fixture
def ring(job: Finished) -> Ring:
    return job.rings[0]


@pytest.fixture
def said(job: Finished) -> dict[str, Any]:
    found: dict[str, Any] = job.said[0]
    return found


def steps_of(said: dict[str, Any], name: str) -> range:
    names = list(said["first"])
    return range(said["first"][name], said["first"][names[names.index(name) + 1]])


def test_a_checkpoint_is_a_phase_of_the_step_that_follows(ring: Ring, said: dict[str, Any]) -> None:
    before, after = steps_of(said, "torch_save")
    assert ring.phases(Phase.CHECKPOINT, before) == []
    (saved,) = ring.phases(Phase.CHECKPOINT, after)
    assert saved.end_ns - saved.start_ns >= SAVE_NS


def test_what_another_thread_saves_is_no_phase(ring: Ring, said: dict[str, Any]) -> None:
    (step,) = steps_of(said, "saved_elsewhere")
    assert ring.phases(Phase.CHECKPOINT, step) == []


def test_a_distributed_save_counts_once(ring: Ring, said: dict[str, Any]) -> None:
    (step,) = steps_of(said, "distributed_save")
    assert len(ring.phases(Phase.CHECKPOINT, step)) == 1


def test_of_an_asynchronous_save_only_what_blocks_counts(ring: Ring, said: dict[str, Any]) -> None:
    (step,) = steps_of(said, "asynchronous_save")
    (saved,) = ring.phases(Phase.CHECKPOINT, step)
    assert saved.end_ns <= said["blocked_until"]


def test_a_trainer_that_calls_autograds_engine_itself_has_backwards(
    ring: Ring, said: dict[str, Any]
) -> None:
    steps = steps_of(said, "engine")
    assert len(steps) == 2
    assert [len(ring.phases(Phase.BACKWARD, step)) for step in steps] == [1, 1]
    assert said["engine_is_torchs"]


def test_a_copy_between_the_batch_and_the_forward_is_a_phase(
    ring: Ring, said: dict[str, Any]
) -> None:
    steps = steps_of(said, "copies")
    assert len(steps) == 2
    for step in steps:
        (batch,) = ring.phases(Phase.INPUT, step)[:1]
        (copy,) = ring.phases(Phase.COPY, step)
        (backward,) = ring.phases(Phase.BACKWARD, step)
        assert batch.end_ns + 5e6 <= copy.start_ns < copy.end_ns <= backward.start_ns - 5e6


def test_subclasses_other_threads_and_the_compiler_see_torchs_own_method(
    ring: Ring, said: dict[str, Any]
) -> None:
    (step,) = steps_of(said, "no_copies")
    assert ring.phases(Phase.COPY, step) == []
    assert said["subclass_got"] >= 1
    assert said["class_has"]
    assert said["compiled"] == [10.0, 10.0]
    assert said["graphs"] == 1
    assert said["undone"]


def test_a_collection_is_found_in_its_step(ring: Ring, said: dict[str, Any]) -> None:
    (step,) = steps_of(said, "collected")
    start_ns, end_ns, _ = said["collected"]
    inside = [
        pause
        for pause in ring.phases(Phase.GC, step)
        if start_ns <= pause.start_ns < pause.end_ns <= end_ns
    ]
    assert [pause.seq for pause in inside] == [2]


def test_steps_go_on_when_training_moves_to_another_thread(
    ring: Ring, said: dict[str, Any]
) -> None:
    # The other thread is known to train with its second step, its first is lost.
    assert len(steps_of(said, "moved")) == 3


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_a_script_starts_itself_are_captured(tmp_path: Path, method: str) -> None:
    launcher = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    env = {name: value for name, value in os.environ.items() if name not in launcher}
    env |= {
        "PACELINE_INJECT": "1",
        "PACELINE_JOB": "spawned",
        "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"),
        "PACELINE_NATIVE": "off",
        "METHOD": method,
        "STORE": str(tmp_path / "store"),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run([sys.executable, str(JOBS / "spawned.py")], env=env, check=True, timeout=90)
    rings = read_rings(tmp_path / "rings")
    assert sorted(rings) == [0, 1]
    for rank, ring in rings.items():
        assert (len(ring.collectives()), ring.closed, ring.errors) == (3, True, 0)
        assert (ring.identity.local_rank, ring.identity.job) == (rank, "spawned")
