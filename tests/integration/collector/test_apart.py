"""Jobs that are analysed in a process of their own are told of as all others are."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_service.jobs import apart_engine
from paceline_service.settings import CollectorSettings
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Scenario, Simulated, simulate
from tests.unit.service.checkpointed import committed, frames_of


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(tmp_path / "apart", PACELINE_SERVE_APART_RANKS="1")
    yield collector.start()
    collector.stop()


def test_the_verdict_and_the_steps_are_those_of_an_analysis_in_the_collector(
    apart: CollectorProcess, collector: CollectorProcess, slow_backward: Simulated
) -> None:
    told = []
    for one in (apart, collector):
        client = one.client()
        post_all(client, bodies(slow_backward, senders(slow_backward)))
        wait_for_state(client, "train", "ended")
        told.append(
            (
                client.report("train"),
                client.get_json("/v1/jobs/train/steps", phases=1),
                [{**row, "last_seen_wall_ns": 0} for row in client.iter_ranks("train")],
            )
        )
    assert told[0] == told[1]
    assert told[0][0]["verdict"] == "straggler"
    assert len(processes_of(apart)) == 1
    assert not processes_of(collector)


def test_when_its_process_dies_the_job_is_analysed_again_from_the_store(
    apart: CollectorProcess, slow_backward: Simulated
) -> None:
    client = apart.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    half = len(posted) // 2
    post_all(client, posted[:half])
    wait_until(lambda: client.report("train")["job"]["steps"] > 0)
    (first,) = processes_of(apart)
    os.kill(first, signal.SIGKILL)
    post_all(client, posted[half:])  # taken and stored meanwhile
    wait_for_state(client, "train", "ended")
    assert client.report("train")["verdict"] == "straggler"
    assert processes_of(apart) not in ([], [first])


def test_it_ends_with_the_collector_and_leaves_a_checkpoint(
    apart: CollectorProcess, slow_backward: Simulated
) -> None:
    posted = list(bodies(slow_backward, senders(slow_backward)))
    post_all(apart.client(), posted[: len(posted) // 2])
    wait_until(lambda: apart.client().report("train")["job"]["steps"] > 0)
    (child,) = processes_of(apart)
    before = apart.client().report("train")["job"]["steps"]
    assert apart.stop() == 0
    assert not Path(f"/proc/{child}").exists()
    assert apart.rows("SELECT count(*) FROM checkpoints") == [(1,)]
    apart.start()
    assert apart.client().report("train")["job"]["steps"] >= before
    (child,) = processes_of(apart)
    apart.kill()
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def processes_of(collector: CollectorProcess) -> list[int]:
    pid = collector.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_where_no_process_can_be_started_frames_are_taken_and_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart_engine, "RESTART_S", 0.05)
    settings = CollectorSettings(state_dir=tmp_path, log_level="error")
    engine = apart_engine.ApartEngine(settings, lambda _: None, lambda _: None)
    engine.start()
    frames = committed(frames_of(simulate(Scenario(steps=4)), end=False), 4)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(tmp_path / "gone"))
        engine.put(frames[:2])
        await asyncio.sleep(0.2)
        engine.put(frames[2:])
        assert not engine.running
        assert engine.backlog_bytes == 0  # they are read from the store
        begun = tmp_path / "begun"
        (tmp_path / "gone").write_text(f"#!/bin/sh\ntouch {begun}\n")
        (tmp_path / "gone").chmod(0o700)
        for _ in range(400):
            if begun.exists():
                break
            await asyncio.sleep(0.1)
        assert begun.exists()
        await engine.stop()
