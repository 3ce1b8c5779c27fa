"""What the collector says about itself, asked of the real process."""

from __future__ import annotations

import json
import time
import urllib.request

from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Simulated


def scraped(collector: CollectorProcess) -> dict[str, float]:
    text = b"".join(collector.client().stream("/metrics")).decode()
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_the_lag_of_verdicts_is_measured_for_steps_that_are_live(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    before = scraped(shared)
    old = list(bodies(healthy, senders(healthy, job="lag-of-old"), steps_per_frame=40))
    post_all(shared.client(), old)
    wait_for_state(shared.client(), "lag-of-old", "ended")
    name = "paceline_verdict_lag_seconds_count"
    assert scraped(shared)[name] == before[name]  # those were over long before they came

    begun = min(row[7] for row in healthy.rows[0])
    in_a_minute = (begun, time.time_ns() + 60 * 10**9)
    new = bodies(healthy, senders(healthy, job="lag-of-new", anchor=in_a_minute), end=False)
    post_all(shared.client(), [next(new) for _ in range(4)])
    wait_until(lambda: scraped(shared)[name] >= before[name] + 30)
    after = scraped(shared)
    assert after["paceline_ingest_commit_duration_seconds_count"] > 0
    assert after["paceline_analysis_frames_total"] > before["paceline_analysis_frames_total"]
    assert after["paceline_process_cpu_seconds_total"] > 0
    assert after["paceline_process_resident_bytes"] > 10 << 20
    assert after["paceline_store_free_bytes"] > 0
    assert after["paceline_persist_waiting_steps"] >= 0


def test_readyz_names_what_was_tried_and_answers_carry_the_name_of_their_request(
    shared: CollectorProcess,
) -> None:
    url = f"{shared.url}/readyz"
    request = urllib.request.Request(url, headers={"X-Request-Id": "asked-by-a-test"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        told = json.load(answer)
        assert answer.headers["X-Request-Id"] == "asked-by-a-test"
    assert {"database", "disk", "commits", "analysis", "backlog", "persister", "rebuilt"} <= set(
        told["checks"]
    )
    assert told["failing"] == []
