"""An exported job gives the same report, telemetry included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.vocabulary import Phase
from paceline.wire.frames import Sample
from paceline_service.client import Client
from paceline_service.importers.events import read_event_log
from paceline_service.importers.offline import analyze_log
from tests.integration.collector.kit import (
    CollectorProcess,
    RankSender,
    senders,
    steps_of,
    wait_for_state,
)
from tests.simulator.job import Fault, Scenario, Simulated, simulate
from tests.simulator.samples import samples

SLOW = 5
HOT = {"sm_clock_hz": 1.1e9, "throttle_reasons": ["hw_thermal_slowdown"], "temperature_c": 91}


def send_with_telemetry(client: Client, job: Simulated, ranks: list[RankSender]) -> None:
    """Send a job whose rank 5 is hot from step 60 on, ten steps to a frame."""
    told = samples(job, {SLOW: HOT}, first=60)
    per_step = len(told) // len(ranks)
    for first in range(0, per_step, 10):
        body = b""
        for sender in ranks:
            began = sender.rank * per_step + first
            sender.telemetry = [
                Sample(time_ns=one.time_ns, values=dict(one.values))
                for one in told[began : began + 10]
            ]
            rows = steps_of(job.rows[sender.rank], first, first + 10)
            body += sender.frame(rows, ended="closed" if first + 10 >= per_step else "")
        client.post_frames(body)


def without_the_collector(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without what only a collector knows."""
    figures = ("world_size", "ranks_observed", "steps", "collectives")
    return {**report, "job": {name: report["job"][name] for name in figures}}


def test_an_exported_job_gives_the_same_report_with_its_telemetry(
    shared: CollectorProcess, tmp_path: Path
) -> None:
    fault = Fault(rank=SLOW, phase=Phase.BACKWARD, extra_ms=8, first=60)
    job = simulate(Scenario(data_parallel=8, steps=160, jitter=0.01, faults=(fault,)))
    client = shared.client()
    send_with_telemetry(client, job, senders(job, job="hot"))
    wait_for_state(client, "hot", "ended", 40)
    live = dict(client.report("hot"))
    assert live["findings"][0]["cause"] == "gpu_throttle"
    path = tmp_path / "hot.ndjson"
    path.write_bytes(b"".join(client.event_log("hot")))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("telemetry" in line for line in lines) == 8 * 160
    with read_event_log([path]) as log:
        offline = analyze_log(log).to_dict()
    assert offline == without_the_collector(live)
