"""What was measured is told by stretch and bucket, and comes to the figures that are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline_service.lab.figures import figures_of
from paceline_service.lab.links import fit_wires
from paceline_service.lab.plans import read_manifest
from paceline_service.lab.synclog import SCHEMA, write_log
from paceline_service.lab.syncs import Measured, read_measured
from paceline_service.lab.tables import modelled_sent_bytes, sent_bytes
from tests.unit.lab.job import BYTES, MS, Log, manifest, stretch, write_manifest

ARRIVALS = ((40.0, 50.0), (60.0, 60.0), (80.0, 89.0))


def ddp_log(steps: int, *, polled: bool = False) -> Log:
    """Rank 1 is 10 ms late at the first bucket and 9 ms at the last, which nothing hides."""
    log = Log()
    for step in range(steps):
        log.step(step)
        if step == 0:
            log.sync(step, "all_reduce", (1.0, 1.0), 1.0, size=16)  # before training
            log.sync(step, "broadcast", (3.0, 3.0), 1.0)
        for number, arrive in enumerate(ARRIVALS):
            last = number == len(ARRIVALS) - 1
            log.sync(step, "all_reduce", arrive, 2.0, join_ms=89.0 if last else None, polled=polled)
    return log


def measured(tmp_path: Path, log: Log, *stretches: object) -> Measured:
    return read_measured(log.write(tmp_path / "log.jsonl"), manifest(*stretches))  # type: ignore[arg-type]


def test_each_bucket_is_told_with_arrivals_waits_and_transfer(tmp_path: Path) -> None:
    one = stretch("ddp-1MiB", "ddp", first=0, steps=2)
    found = measured(tmp_path, ddp_log(2), one).of(one)
    assert [(sync.step, sync.call.bucket) for sync in found if sync.call] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    first = found[0]
    assert first.arrival_ns == (40 * MS, 50 * MS)
    assert first.wait_ns == (10 * MS, 0)
    assert first.last_rank == 1
    assert first.transfer_ns == 2 * MS
    assert first.still_ns == (0, 0)
    assert found[1].last_rank == -1
    assert found[2].still_ns[1] == 2 * MS


def test_what_comes_before_training_has_no_bucket(tmp_path: Path) -> None:
    one = stretch("ddp-1MiB", "ddp", first=0, steps=2)
    run = measured(tmp_path, ddp_log(2), one)
    others = [sync for sync in run.syncs if sync.call is None]
    assert [(sync.step, sync.op, sync.bucket) for sync in others] == [(0, "all_reduce", None)]


def test_an_end_that_was_seen_late_is_a_bound(tmp_path: Path) -> None:
    one = stretch("ddp-1MiB", "ddp", first=0, steps=2)
    assert all(sync.bound for sync in measured(tmp_path, ddp_log(2, polled=True), one).of(one))


def test_fully_sharded_units_are_known_in_forward_and_in_backward(tmp_path: Path) -> None:
    log = Log()
    log.step(0)
    at = 1.0
    order = ["all_gather"] * 5 + ["reduce_scatter", "all_gather", "reduce_scatter"]
    for op in [*order, "reduce_scatter"]:
        log.sync(0, op, (at, at), 1.0)
        at += 5.0
    one = stretch("zero3", "zero3", first=0, steps=1)
    calls = [sync.call for sync in measured(tmp_path, log, one).of(one) if sync.call]
    gathers = [(c.phase, c.bucket) for c in calls if c.op == "all_gather"]
    scatters = [(c.phase, c.bucket) for c in calls if c.op == "reduce_scatter"]
    assert gathers == [("forward", n) for n in (0, 1, 2)] + [("backward", n) for n in (0, 2, 1)]
    assert scatters == [("backward", n) for n in (2, 1, 0)]


def test_a_step_with_fewer_collectives_than_planned_is_told_without_buckets(tmp_path: Path) -> None:
    log = Log()
    log.step(0)
    log.sync(0, "all_reduce", (1.0, 1.0), 1.0)
    one = stretch("ddp-1MiB", "ddp", first=0, steps=1)
    run = measured(tmp_path, log, one)
    assert [sync.call for sync in run.syncs] == [None]


def test_figures_add_up_a_typical_step_and_the_model_stands_beside_it(tmp_path: Path) -> None:
    log = ddp_log(8)
    for size in (BYTES // 16, BYTES // 4, BYTES):
        for op in ("all_reduce", "all_gather", "reduce_scatter"):
            for _ in range(4):
                log.sync(0, op, (0.5, 0.5), 0.2 + size / 1e6, size=size, group="1")
    one = stretch("ddp-1MiB", "ddp", first=0, steps=8)
    told = manifest(one)
    run = read_measured(log.write(tmp_path / "log.jsonl"), told)
    wires = fit_wires(run.probe)
    cost = wires["all_reduce"].cost
    assert cost is not None
    assert cost.latency_s == pytest.approx(200e-6, rel=1e-3)
    assert cost.s_per_byte == pytest.approx(1e-9, rel=1e-3)
    figures = figures_of(one, run, wires, told, skip=3)
    assert figures.steps == 5
    assert figures.step_s == pytest.approx(0.1)
    assert figures.payload_bytes == 3 * BYTES
    assert figures.transfer_s == pytest.approx(6e-3)
    assert figures.modelled_transfer_s == pytest.approx(3 * (200e-6 + BYTES * 1e-9), rel=1e-3)
    assert figures.exposed_s == pytest.approx(2e-3)
    assert figures.modelled_exposed_s == pytest.approx(200e-6 + BYTES * 1e-9, rel=1e-3)
    assert [(s.last_rank, round(s.wait_s, 6)) for s in figures.syncs] == [
        (1, 0.01), (-1, 0.0), (1, 0.009),
    ]  # fmt: skip
    assert figures.learned
    assert sent_bytes(figures, ranks=2) == modelled_sent_bytes(figures, told) == 3 * BYTES


@pytest.mark.parametrize(("strategy", "times"), [("zero2", 1.0), ("zero3", 1.5)])
def test_sharding_sends_what_the_model_says(tmp_path: Path, strategy: str, times: float) -> None:
    log, one = Log(), stretch(strategy, strategy, first=0, steps=3)
    for step in range(3):
        log.step(step)
        for number, call in enumerate(one.plan.calls):
            log.sync(step, call.op, (5.0 + 5 * number,) * 2, 1.0)
    told = manifest(one)
    run = read_measured(log.write(tmp_path / "log.jsonl"), told)
    figures = figures_of(one, run, {}, told, skip=1)
    assert sent_bytes(figures, ranks=2) == modelled_sent_bytes(figures, told) == times * 3 * BYTES
    assert figures.modelled_transfer_s is None


def test_the_log_has_a_line_for_every_synchronization(tmp_path: Path) -> None:
    one = stretch("ddp-1MiB", "ddp", first=0, steps=2)
    told = read_manifest(write_manifest(tmp_path / "manifest.json", manifest(one)))
    run = read_measured(ddp_log(2).write(tmp_path / "log.jsonl"), told)
    path = tmp_path / "syncs.jsonl"
    assert write_log(path, told, run, {}) == 7
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["schema"] == SCHEMA
    line = lines[1]
    assert line["kind"] == "all-reduce"
    assert (line["step"], line["bucket"], line["pass"]) == (0, 0, "backward")
    assert (line["bytes"], line["parameters"]) == (BYTES, BYTES // 4)
    assert line["arrival_ns"] == [40 * MS, 50 * MS]
    assert line["wait_ns"] == [10 * MS, 0]
    assert (line["transfer_ns"], line["last_rank"]) == (2 * MS, 1)
    assert lines[0]["bucket"] is None
