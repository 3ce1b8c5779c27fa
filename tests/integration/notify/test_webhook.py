"""Signed webhooks, from a job with a straggler to a receiver on a real socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from paceline.vocabulary import Phase
from paceline_service.notify.signing import verify
from tests.integration.collector.kit import CollectorProcess, wait_until
from tests.integration.notify.conftest import with_webhook
from tests.integration.notify.kit import (
    SECRET,
    Answer,
    Incidents,
    Receiver,
    Request,
    fine,
    run_job,
)
from tests.simulator.job import Fault, Scenario, simulate

pytestmark = pytest.mark.integration
QUIET_S = 1.0
"""Several looks: what would be sent has been sent."""


@pytest.fixture(scope="module")
def hooks() -> Iterator[Receiver]:
    made = Receiver().start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def collector(
    tmp_path_factory: pytest.TempPathFactory, hooks: Receiver
) -> Iterator[CollectorProcess]:
    process = with_webhook(tmp_path_factory.mktemp("webhook") / "state", hooks).start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def incidents(collector: CollectorProcess) -> Iterator[Incidents]:
    made = Incidents(f"sqlite:///{collector.database}")
    yield made
    made.end()


def events(requests: list[Request]) -> list[str]:
    return [one.json["event"] for one in requests]


def refuse(status: int, **headers: str) -> Answer:
    return status, headers, b"no"


def test_a_straggler_is_told_of_with_its_node_reason_cost_and_next_command(
    collector: CollectorProcess, hooks: Receiver
) -> None:
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    run_job(collector, simulate(Scenario(steps=140, faults=(fault,), seed=11)), "train")
    (told,) = hooks.wait(1, "train")
    headers = told.headers
    assert verify(SECRET, headers["paceline-timestamp"], headers["paceline-signature"], told.body)
    assert headers["idempotency-key"] == headers["paceline-message"] == told.json["id"]
    incident = told.json["incident"]
    assert told.json["event"] == "opened"
    assert (incident["nodes"], incident["cause"]) == (["node-a"], "input")
    assert incident["wasted_gpu_s"] > 0
    assert incident["action"]
    client = collector.client()
    path = f"/v1/incidents/{incident['id']}"
    client.post_json(f"{path}/ack", {"who": "ana", "note": "looking"})
    assert hooks.wait(2, "train")[1].json["changes"] == ["acknowledged by ana: looking"]
    wait_until(lambda: client.get_json(f"{path}/notifications")["messages"][0]["messages"] == 2)
    scraped = b"".join(client.stream("/metrics")).decode()
    assert 'paceline_notifications_total{channel="webhook",outcome="delivered"}' in scraped
    assert "paceline_notifications_waiting 0.0" in scraped
    log = collector.log.read_text()
    assert SECRET not in log
    assert "path-secret" not in log


def test_a_message_is_as_the_documentation_describes_it(
    hooks: Receiver, incidents: Incidents, repository: Path
) -> None:
    page = (repository / "docs/messages.md").read_text(encoding="utf-8")
    schema = json.loads(page.split("```json schema\n")[1].split("```")[0])
    incidents.open("described", evidence=["a\u202eb"])
    (told,) = hooks.wait(1, "described")
    jsonschema_rs.validator_for(schema).validate(told.json)
    assert set(told.json) == set(schema["properties"])
    assert set(told.json["incident"]) == set(schema["properties"]["incident"]["properties"])


def test_one_incident_is_told_once_and_then_what_changes(
    collector: CollectorProcess, hooks: Receiver, incidents: Incidents
) -> None:
    number = incidents.open("news", cause="unknown", recoverable_ratio=0.1)
    hooks.wait(1, "news")
    time.sleep(QUIET_S)
    assert events(hooks.of("news")) == ["opened"]
    incidents.change(number, cause="gpu_throttle", recoverable_ratio=0.2)
    changed = hooks.wait(2, "news")[1].json["changes"]
    assert changed == ["now page, before ticket", "its cause is gpu_throttle"]
    path = f"/v1/incidents/{number}/silence"
    collector.client().post_json(path, {"for_s": 600, "who": "ben"})
    assert hooks.wait(3, "news")[2].json["status"] == "silenced"
    incidents.change(number, wasted_gpu_s=10**6, cause="gpu_fault")
    incidents.close(number)
    told = hooks.wait(4, "news")
    assert events(told) == ["opened", "updated", "silenced", "resolved"]
    assert len({one.json["incident"]["key"] for one in told}) == 1
    assert [one.json["sequence"] for one in told] == [1, 2, 3, 4]


def test_a_receiver_that_was_away_is_told_in_the_end_and_not_more_than_once(
    collector: CollectorProcess, hooks: Receiver, incidents: Incidents
) -> None:
    hooks.stop()  # nobody listens
    for number in range(3):
        incidents.open(f"away-{number}")
    over = incidents.open("away-over-by-then")
    wait_until(lambda: "Connection refused" in collector.log.read_text())
    incidents.close(over)
    wait_until(
        lambda: incidents.rows(
            "SELECT * FROM notifications WHERE message LIKE '%away-over%resolved%' "
            "OR message LIKE '%resolved%away-over%'"
        )
    )
    hooks.start()
    told = hooks.wait(4, "away-", 40)
    time.sleep(QUIET_S)
    assert len(hooks.of("away-")) == 4
    by_job = {one.json["incident"]["job"]: one.json["event"] for one in told}
    assert by_job.pop("away-over-by-then") == "resolved", "it was not told of while it went on"
    assert set(by_job.values()) == {"opened"}


def test_a_repeated_attempt_is_the_same_message_and_waits_as_it_is_told(
    hooks: Receiver, incidents: Incidents
) -> None:
    answers = iter([refuse(500), refuse(429, **{"Retry-After": "2"})])
    hooks.respond = lambda _: next(answers, (204, {}, b""))
    number = incidents.open("repeated")
    hooks.wait(1, "repeated")
    incidents.change(number, cause="gpu_fault")
    first, second, third = hooks.wait(3, "repeated")[:3]
    assert first.body == second.body == third.body, "it may have arrived: it stays what it was"
    assert first.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert third.at_s - second.at_s >= 2
    hooks.respond = fine


def test_what_a_receiver_refuses_is_not_sent_again_and_is_shown(
    collector: CollectorProcess, hooks: Receiver, incidents: Incidents
) -> None:
    hooks.respond = lambda _: refuse(301, Location="http://169.254.169.254/")
    number = incidents.open("turned-away")
    client = collector.client()
    path = f"/v1/incidents/{number}/notifications"

    def failed() -> bool:
        told = client.get_json(path)["messages"]
        return bool(told) and told[0]["state"] == "failed"

    wait_until(failed)
    hooks.respond = fine
    assert "redirects are not followed" in client.get_json(path)["messages"][0]["last_error"]
    assert client.get_json("/v1/notifications")["channels"][0]["failed"] == 1
    assert len(hooks.of("turned-away")) == 1


def test_a_channel_that_is_tried_says_whether_it_arrives(
    collector: CollectorProcess, hooks: Receiver
) -> None:
    client = collector.client()
    told = client.post_json("/v1/notifications/webhook/test", {})
    assert told == {
        "channel": "webhook", "where": hooks.url, "delivered": True, "reason": ""
    }  # fmt: skip
    assert events(hooks.of("paceline-test")) == ["test"]
    hooks.respond = lambda _: refuse(403)
    told = client.post_json("/v1/notifications/webhook/test", {})
    hooks.respond = fine
    assert told["delivered"] is False
    assert "403" in told["reason"]
    entries = client.get_json("/v1/audit", limit=5)["entries"]
    assert [one["action"] for one in entries][:2] == ["notify.test", "notify.test"]


def test_a_restart_in_the_middle_loses_nothing_and_repeats_the_same_message_only(
    tmp_path: Path, receiver: Receiver
) -> None:
    collector = with_webhook(tmp_path / "state", receiver).start()
    incidents = Incidents(f"sqlite:///{collector.database}")
    incidents.open("told")
    receiver.wait(1)
    wait_until(lambda: incidents.rows("SELECT delivered FROM notifications")[0]["delivered"])
    hold = threading.Event()

    def hang(_: Request) -> Answer:
        hold.wait(20)
        return 200, {}, b""

    receiver.respond = hang
    incidents.open("in-the-middle")
    receiver.wait(2)
    collector.kill()  # it has sent the message, and will never hear the answer
    hold.set()
    receiver.respond = fine
    incidents.open("while-away")
    collector.start()
    told = receiver.wait(4)
    time.sleep(QUIET_S)
    assert collector.stop() == 0
    incidents.end()
    assert len(receiver.requests) == 4
    jobs = [one.json["incident"]["job"] for one in told]
    assert jobs[:2] == ["told", "in-the-middle"]
    assert sorted(jobs[2:]) == ["in-the-middle", "while-away"]
    first, second = receiver.of("in-the-middle")
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
