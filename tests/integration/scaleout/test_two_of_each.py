from __future__ import annotations

from typing import Any

from tests.integration.collector.kit import bodies, senders, wait_until
from tests.integration.scaleout.conftest import without_name
from tests.integration.scaleout.kit import Cluster, ended_report, send, send_one
from tests.simulator.job import Simulated


def test_frames_sent_to_both_gateways_count_once_and_the_straggler_is_named(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    first, second = (one.client() for one in cluster.gateways)
    answers = []
    for body in bodies(slow, senders(slow, job="both")):
        answers.append((send_one(first, body), send_one(second, body)))
    assert [one["accepted"] for one, _ in answers] == [4] * 16
    assert [two["duplicate"] for _, two in answers] == [4] * 16
    report = ended_report(second, "both")
    assert report["verdict"] == "straggler"
    assert report["findings"][0]["ranks"] == [2]
    assert without_name(report) == expected
    assert cluster.frames("both") == 64


def test_an_analyzer_that_is_killed_loses_its_jobs_to_the_other_and_nothing_is_lost(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    sent = list(bodies(slow, senders(slow, job="orphan")))
    gateway = cluster.gateways[0].client()
    send(gateway, sent[:8])
    wait_until(lambda: cluster.frames("orphan") > 0, 30)
    victim = cluster.owner_of("orphan")
    victim.kill()
    send(gateway, sent[8:])
    report = ended_report(gateway, "orphan")
    assert without_name(report) == expected
    assert cluster.frames("orphan") == 64
    assert cluster.owned() == [64]
    cluster.start()
