from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.ring import RingReader
from paceline.vocabulary import Flag, Op, RecordKind
from tests.integration.hooks.kit import Ring, read_rings, run_ranks

pytestmark = pytest.mark.integration
WEIGHT = 4 - (1 + 2 + 3) * 4 * 0.1
CASES: dict[str, dict[str, str]] = {
    "failing_writer": {},
    "no_directory": {"PACELINE_RUNTIME_DIR": "/proc/nowhere"},
    "fork": {},
    "threads": {},
    "close": {},
    "disabled": {"PACELINE_DISABLE": "1"},
    "token": {"PACELINE_TOKEN": "secret"},
    "raises": {},
    "compiled": {},
    "level_steps": {"PACELINE_LEVEL": "steps"},
    "level_off": {"PACELINE_LEVEL": "off"},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    said: dict[str, Any]
    log: str
    ring: Ring | None


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, hooks: Mapping[str, str]) -> dict[str, Case]:
    directory = tmp_path_factory.mktemp("alone")
    env = {}
    for name, extra in CASES.items():
        (directory / name).mkdir()
        env[name] = {
            "LOG": str(directory / name / "log"),
            "OUT": str(directory / name / "said"),
            "PACELINE_RUNTIME_DIR": str(directory / name / "rings"),
            **extra,
        }
    job_env = {**hooks, "CASES": json.dumps(env), "PACELINE_INJECT": "0"}
    job = run_ranks("alone.py", directory, 1, env=job_env)
    logs = {name: (directory / name / "log").read_text() for name in CASES}
    assert job.returncodes == [0], (job.output, logs)
    return {
        name: Case(
            said=json.loads((directory / name / "said").read_text()),
            log=logs[name],
            ring=read_rings(directory / name / "rings").get(0),
        )
        for name in CASES
    }


@pytest.mark.parametrize("name", CASES)
def test_training_is_right_whatever_happens_to_paceline(cases: dict[str, Case], name: str) -> None:
    assert cases[name].said["weight"] == pytest.approx(WEIGHT)


def test_a_ring_that_fails_is_told_once_and_counted(cases: dict[str, Case]) -> None:
    case = cases["failing_writer"]
    assert case.ring is not None
    assert case.ring.errors >= 6
    assert case.log.count("a hook failed") == 1
    assert case.log.count("Traceback") == 1


def test_a_directory_that_cannot_be_used_is_told_with_its_remedy(cases: dict[str, Case]) -> None:
    case = cases["no_directory"]
    assert case.said["active"] is False
    assert "PACELINE_RUNTIME_DIR" in case.log


def test_a_forked_child_writes_nothing_into_its_parents_ring(cases: dict[str, Case]) -> None:
    ring = cases["fork"].ring
    assert ring is not None
    assert len(ring.collectives()) == 3
    assert ring.closed


def test_threads_share_a_ring(cases: dict[str, Case]) -> None:
    ring = cases["threads"].ring
    assert ring is not None
    assert ring.errors == 0
    assert sorted(r.seq for r in ring.collectives()) == list(range(203))


def test_closing_stops_the_capture_and_nothing_else(cases: dict[str, Case]) -> None:
    ring = cases["close"].ring
    assert ring is not None
    assert len(ring.collectives()) == 1
    assert ring.closed


def test_disabled_means_no_ring_and_no_hook(cases: dict[str, Case]) -> None:
    case = cases["disabled"]
    assert case.said["active"] is False
    assert case.ring is None
    assert "paceline" not in case.log


def test_the_token_does_not_stay_in_the_training_process(cases: dict[str, Case]) -> None:
    assert cases["token"].said["token"] is None


def test_the_compiler_traces_no_hook_and_breaks_no_graph_at_one(cases: dict[str, Case]) -> None:
    said = cases["compiled"].said
    assert (said["breaks"], said["traced"]) == ([], [])


def test_an_operation_that_raises_is_recorded_as_failed_and_raises(
    cases: dict[str, Case],
) -> None:
    case = cases["raises"]
    assert case.ring is not None
    assert case.said["raised"] is True
    first = case.ring.collectives()[0]
    assert first.code == Op.ALL_TO_ALL
    assert first.flags & Flag.FAILED
    assert case.ring.inflight == []


@pytest.mark.parametrize(("name", "kinds"), [("level_steps", {2, 3}), ("level_off", set())])
def test_lower_levels_record_less(cases: dict[str, Case], name: str, kinds: set[int]) -> None:
    ring = cases[name].ring
    assert ring is not None
    assert {r.kind for r in ring.records} == kinds


def test_a_rank_that_is_killed_leaves_a_readable_ring(
    tmp_path: Path, hooks: Mapping[str, str]
) -> None:
    job = run_ranks("killed.py", tmp_path, env=hooks)
    assert job.returncodes[1] == -9
    assert job.returncodes[0] not in (0, -9)
    killed, waiting = job.rings[1], job.rings[0]
    assert not killed.closed
    assert [r.step for r in killed.steps()] == [0, 1]
    assert {r.kind for r in killed.records} == set(RecordKind)
    path = next((tmp_path / "rings").glob("kit.r1.*.ring"))
    reader = RingReader(path)
    assert not reader.writer_alive()
    reader.close()
    # The gradients of step 2 were waited for, and never came.
    reduced = [r for r in waiting.collectives() if r.code == Op.ALL_REDUCE and r.step == 2]
    assert len(reduced) == 1
    assert not [r for r in killed.collectives() if r.seq == reduced[0].seq and r.end_ns]
