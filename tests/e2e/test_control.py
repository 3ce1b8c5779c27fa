"""Settings all the way: command, collector, sidecar, rings, ranks, and back in the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Flag
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until

JOBS = Path(__file__).parent / "jobs"
PATIENCE_S = 90
"""A change takes some 15 s: heartbeats, the margin, and the heartbeat that tells."""

pytestmark = pytest.mark.timeout(300)


class Job:
    """``paceline run`` of a job that trains until it is told to stop."""

    def __init__(self, directory: Path, url: str, *launcher: str, **environment: str) -> None:
        self.stop_file, self.die_file = directory / "stop", directory / "die"
        self.environment = {
            **os.environ,
            "PACELINE_URL": url,
            "PACELINE_TOKEN": TOKEN,
            "PACELINE_RUNTIME_DIR": str(directory / "rings"),
            "PACELINE_NATIVE": "off",
            "OMP_NUM_THREADS": "1",
            "STOP": str(self.stop_file),
            "DIE": str(self.die_file),
            **environment,
        }
        self.log = (directory / "job.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paceline", "run", "--job", "long", "--", *launcher,
             str(JOBS / "until.py")],
            env=self.environment, cwd=directory, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def settings(self, *arguments: str) -> dict[str, Any]:
        """Run `paceline settings` and return what it says."""
        command = [sys.executable, "-m", "paceline", "settings", "long", "--format", "json"]
        done = subprocess.run(
            [*command, *arguments], env=self.environment, capture_output=True, text=True,
            timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def finish(self) -> None:
        self.stop_file.touch()
        assert self.process.wait(60) == 0

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop_file.touch()
            self.process.terminate()
            self.process.wait(30)
        self.log.close()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(tmp_path / "state").start()
    yield collector
    collector.stop()


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


def torchrun(ranks: int) -> tuple[str, ...]:
    return (
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
    )  # fmt: skip


def shown(collector: CollectorProcess) -> dict[str, Any]:
    return dict(collector.client().get_json("/v1/jobs/long/settings"))


def agreed(collector: CollectorProcess, attempt: int = 1) -> int:
    """Return the step that was agreed, once it is."""

    def step() -> Any:
        now = shown(collector)
        return now["effective_step"] if now["attempt"] == attempt else None

    return int(wait_until(step, PATIENCE_S))


def followed(collector: CollectorProcess, ranks: str) -> None:
    wait_until(lambda: shown(collector)["ranks"]["follows"] == ranks, PATIENCE_S)


def wait_for_job(collector: CollectorProcess, attempt: int = 1) -> None:
    def running() -> bool:
        listed = collector.client().get_json("/v1/jobs")["jobs"]
        return any(row["attempt"] == attempt and row["steps"] > 5 for row in listed)

    wait_until(running, PATIENCE_S)


def kept_steps(collector: CollectorProcess, attempt: int = 1) -> dict[int, dict[int, bool]]:
    """Return by rank the steps that were recorded, and whether with their all-reduces.

    Both ways of knowing it must agree: the flag of the step, and the all-reduces themselves.
    """
    stream = collector.client().stream(f"/v1/jobs/long/event-log?attempt={attempt}")
    lines = [json.loads(line) for line in b"".join(stream).decode().splitlines()]
    steps: defaultdict[int, dict[int, bool]] = defaultdict(dict)
    reduced: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for line in lines:
        if "step_start_ns" in line:
            steps[line["rank"]][line["step"]] = not line.get("flags", 0) & Flag.NO_COLLECTIVES
        elif line.get("op") == "all_reduce":
            reduced[line["rank"]][line["step"]] += 1
    for rank, of_rank in steps.items():
        assert {step for step, whole in of_rank.items() if whole} == set(reduced[rank]) & set(
            of_rank
        )
    return dict(steps)


def test_four_ranks_change_together_from_full_to_every_fifth_to_nothing_and_back(
    collector: CollectorProcess, tmp_path: Path, jobs: list[Job]
) -> None:
    jobs.append(job := Job(tmp_path, collector.url, *torchrun(4)))
    wait_for_job(collector)
    assert shown(collector)["generation"] == 0
    job.settings("--level", "collectives", "--stride", "5", "--telemetry-interval-s", "0.5")
    strided = agreed(collector)
    followed(collector, "0-3")
    assert job.settings("--off")["enabled"] is False
    off = agreed(collector)
    followed(collector, "0-3")
    job.settings("--on", "--level", "full", "--stride", "1")
    again = agreed(collector)
    followed(collector, "0-3")
    assert shown(collector)["ranks"] == {
        "follows": "0-3", "waits": "", "missed": {}, "silent": "",
    }  # fmt: skip
    job.finish()
    wait_until(lambda: collector.client().get_json("/v1/jobs/long")["state"] == "ended", 30)

    steps = kept_steps(collector)
    assert steps[0] == steps[1] == steps[2] == steps[3]
    end = max(steps[0])
    assert sorted(steps[0]) == [*range(off), *range(again, end + 1)]
    assert [step for step, whole in sorted(steps[0].items()) if whole] == [
        *range(strided), *range(-(-strided // 5) * 5, off, 5), *range(again, end + 1),
    ]  # fmt: skip
    report = collector.client().report("long")
    assert report["data"]["complete"], report["data"]
    left_out = sum(not whole for whole in steps[0].values())
    assert report["data"]["steps_left_out"] == left_out
    assert report["job"]["steps"] == len(steps[0]) - left_out
    assert not any("changed what it records" in note for note in report["data"]["notes"])


def test_a_collector_that_is_killed_tells_the_same_step_and_a_new_attempt_gets_its_own(
    collector: CollectorProcess, tmp_path: Path, jobs: list[Job]
) -> None:
    port = collector.url.rpartition(":")[2]
    jobs.append(job := Job(tmp_path, collector.url, sys.executable, str(JOBS / "launcher.py")))
    wait_for_job(collector)
    job.settings("--stride", "4")
    step = agreed(collector)
    collector.kill()
    collector.start("--port", port)
    assert shown(collector)["effective_step"] == step
    followed(collector, "0-1")
    job.die_file.touch()
    wait_until(lambda: shown(collector)["attempt"] == 2, PATIENCE_S)
    second = agreed(collector, attempt=2)
    followed(collector, "0-1")

    def went_on() -> bool:
        return max(step for step, whole in kept_steps(collector, 2)[0].items() if whole) > second

    wait_until(went_on, PATIENCE_S)
    job.finish()
    wait_until(lambda: collector.client().get_json("/v1/jobs/long")["state"] == "ended", 30)
    for attempt, since in ((1, step), (2, second)):
        steps = kept_steps(collector, attempt)
        assert steps[0] == steps[1]
        whole = sorted(step for step, is_whole in steps[0].items() if is_whole)
        assert whole == [*range(since), *range(-(-since // 4) * 4, max(steps[0]) + 1, 4)]
        assert max(whole) > since


def test_ranks_that_are_restarted_within_their_attempt_get_the_setting_again(
    collector: CollectorProcess, tmp_path: Path, jobs: list[Job]
) -> None:
    launcher = (sys.executable, str(JOBS / "launcher.py"))
    jobs.append(job := Job(tmp_path, collector.url, *launcher, SAME_ATTEMPT="1"))
    wait_for_job(collector)
    job.settings("--stride", "3")
    agreed(collector)
    followed(collector, "0-1")
    before = max(max(of_rank) for of_rank in kept_steps(collector).values())
    job.die_file.touch()
    wait_until(lambda: not job.die_file.exists(), PATIENCE_S)
    wait_until(
        lambda: max(max(of_rank) for of_rank in kept_steps(collector).values()) > before + 200,
        PATIENCE_S,
    )
    followed(collector, "0-1")
    assert shown(collector)["attempt"] == 1
    job.finish()
    wait_until(lambda: collector.client().get_json("/v1/jobs/long")["state"] == "ended", 30)
    for of_rank in kept_steps(collector).values():
        newest = sorted(of_rank)[-90:]
        assert sum(of_rank[step] for step in newest) == 30
