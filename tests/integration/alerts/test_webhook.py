"""From a job with a slow rank to the message: collector, Prometheus, Alertmanager, webhook."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_dashboards import alerts_collector
from tests.integration.alerts.kit import Server, Webhook, alertmanager, prometheus, webhook
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, simulate

SLOW = 2
NODES = ("node-a", "node-a", "node-b", "node-b")
PATIENCE_S = 60


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything that stands between a job and whoever is told."""

    collector: CollectorProcess
    prometheus: Server
    alertmanager: Server
    webhook: Webhook


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("alerts")
    with webhook() as hook, alertmanager(directory, hook) as manager:
        collector = CollectorProcess(directory / "state").start()
        with prometheus(directory, collector.url, TOKEN, manager) as server:
            yield Stack(
                collector=collector, prometheus=server, alertmanager=manager, webhook=hook
            )  # fmt: skip
        collector.stop()


@pytest.fixture
def slow_job(stack: Stack) -> Iterator[str]:
    """A job that goes on for as long as the test, with a slow rank on the second of two nodes."""
    fault = Fault(rank=SLOW, phase=Phase.BACKWARD, extra_ms=20, first=40)
    job = simulate(Scenario(steps=1000, faults=(fault,), seed=3))
    ranks = senders(job, job="slow")
    for sender, node in zip(ranks, NODES, strict=True):
        sender.node = node
    over = threading.Event()

    def send() -> None:
        client = stack.collector.client()
        posted = bodies(job, ranks, steps_per_frame=5, end=False)
        post_all(client, [next(posted) for _ in range(24)])
        for body in posted:
            if over.wait(0.3):
                return
            post_all(client, [body])

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield "slow"
    over.set()
    thread.join(20)
    assert not thread.is_alive()


def told(stack: Stack, status: str, receiver: str) -> dict[str, Any] | None:
    found = stack.webhook.alerts("PacelineStragglerRank", status)
    return next((alert for to, alert in found if to == receiver), None)


def active(stack: Stack) -> set[str]:
    """Return the names of the alerts that hold now, told or not yet."""
    found = stack.prometheus.get("/api/v1/alerts")["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in found}


def test_an_injected_straggler_reaches_the_webhook_and_a_silence_ends_it(
    stack: Stack, slow_job: str
) -> None:
    alert = wait_until(lambda: told(stack, "firing", "page"), PATIENCE_S)
    labels, texts = alert["labels"], alert["annotations"]
    assert (labels["job"], labels["rank"], labels["node"]) == (slow_job, str(SLOW), "node-b")
    assert (labels["kind"], labels["cause"]) == ("straggler", "compute")
    assert texts["summary"].startswith(f"Rank {SLOW} on node-b slows job slow: ")
    assert "its computation takes longer than that of its peers" in texts["description"]
    assert " GPU-hours are lost every hour" in texts["description"]
    assert " % less time" in texts["description"]
    assert "scontrol update nodename=node-b state=drain" in texts["command"]
    assert "kubectl cordon node-b" in texts["description"]
    assert texts["runbook_url"] == "docs/runbooks/PacelineStragglerRank.md"
    (message,) = [
        message
        for receiver, message in stack.webhook.messages
        if receiver == "page" and alert in message["alerts"]
    ][:1]
    assert message["groupLabels"] == {"job": "slow", "node": "node-b"}

    def lesser_ones_are_hidden() -> bool:
        asked = "/api/v2/alerts?filter=alertname%3DPacelineStragglerRank"
        states = {
            row["labels"]["severity"]: row["status"]["state"]
            for row in stack.alertmanager.get(asked)
        }
        return states == {"page": "active", "ticket": "suppressed", "info": "suppressed"}

    wait_until(lesser_ones_are_hidden, PATIENCE_S)

    client = stack.collector.client()
    client.post_json("/v1/silences", {"job": slow_job, "kind": "straggler", "for_s": 3600})
    resolved = wait_until(lambda: told(stack, "resolved", "page"), PATIENCE_S)
    assert resolved["labels"] == labels
    wait_until(lambda: "PacelineStragglerRank" not in active(stack), PATIENCE_S)
    # It is silenced, not gone: whoever looks at the dashboard still sees it.
    asked = "/api/v1/query?query=paceline_rank_flagged"
    (flagged,) = stack.prometheus.get(asked)["data"]["result"]
    assert flagged["metric"]["rank"] == str(SLOW)


def test_the_watchdog_is_told_again_and_again_to_its_receiver_alone(stack: Stack) -> None:
    def beats() -> list[str]:
        return [to for to, _ in stack.webhook.alerts("PacelineWatchdog")]

    wait_until(lambda: len(beats()) >= 3, PATIENCE_S)
    assert set(beats()) == {"watchdog"}


def test_prometheus_evaluates_every_rule_of_the_committed_files(stack: Stack) -> None:
    def groups() -> Any:
        found = stack.prometheus.get("/api/v1/rules")["data"]["groups"]
        rules = [rule for group in found for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in rules) else None

    evaluated = wait_until(groups, PATIENCE_S)
    assert {group["name"] for group in evaluated} == {
        "paceline-records", "paceline-jobs", "paceline-collector", "paceline-watchdog",
    }  # fmt: skip
    failing = [
        (rule["name"], rule.get("lastError"))
        for group in evaluated
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]
    assert not failing


def test_a_collector_that_is_well_has_nothing_to_tell_of_itself(stack: Stack) -> None:
    of_itself = {alert.name for alert in alerts_collector.alerts()}
    wait_until(lambda: not of_itself & active(stack), PATIENCE_S)
