"""Server-sent events: resumed where they broke off, for several clients, bounded."""

from __future__ import annotations

import http.client
import itertools
import threading
from urllib.parse import urlsplit

import pytest

from paceline_service.client import Client, Event, ProblemError
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Simulated


def events(client: Client, job: str, count: int, last: str | None = None) -> list[Event]:
    return list(itertools.islice(client.stream_events(job, last_event_id=last), count))


def steps(told: list[Event]) -> list[int]:
    return [step for event in told if event.name == "steps" for step in event.data["steps"]]


def test_a_client_that_resumes_over_a_new_attempt_is_told_to_begin_anew(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client = shared.client()
    post_all(client, bodies(healthy, senders(healthy, job="relaunched")))
    wait_for_state(client, "relaunched", "ended")
    ranks = senders(healthy, job="relaunched", run_id="run-2")
    for sender in ranks:
        sender.incarnation = f"{99 + sender.rank:032x}"
    post_all(client, bodies(healthy, ranks))
    wait_until(lambda: client.get_json("/v1/jobs/relaunched")["attempt"] == 2)
    wait_for_state(client, "relaunched", "ended")
    told = events(client, "relaunched", 2, "1-59")
    assert told[0].name == "reload"
    assert "attempt 2, not 1" in told[0].data["reason"]
    assert (told[1].data["attempt"], told[1].id) == (2, "2-59")


@pytest.mark.parametrize("identity", ["", "nonsense", "1-", "-3", "1-2-3", "9" * 40])
def test_an_id_that_is_none_begins_with_the_newest_steps(
    shared: CollectorProcess, healthy: Simulated, identity: str
) -> None:
    client = shared.client()
    post_all(client, bodies(healthy, senders(healthy, job="strange")))
    wait_for_state(client, "strange", "ended")
    assert steps(events(client, "strange", 1, identity)) == list(range(60))


def test_several_clients_each_hear_everything(shared: CollectorProcess, healthy: Simulated) -> None:
    client = shared.client()
    posted = list(bodies(healthy, senders(healthy, job="heard")))
    client.post_frames(posted[0])
    wait_until(lambda: client.get_json("/v1/jobs/heard")["steps"] > 5)
    heard: list[list[Event]] = [[] for _ in range(8)]

    def listen(mine: list[Event]) -> None:
        for event in shared.client().stream_events("heard"):
            mine.append(event)
            if event.name == "report" and event.data["job"]["state"] == "ended":
                return

    readers = [threading.Thread(target=listen, args=(mine,), daemon=True) for mine in heard]
    for reader in readers:
        reader.start()
    for body in posted[1:]:
        client.post_frames(body)
    for reader in readers:
        reader.join(30)
    assert [steps(mine) for mine in heard] == [list(range(60))] * 8


def test_a_stream_that_has_nothing_to_tell_says_that_it_lives(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    post_all(shared.client(), bodies(healthy, senders(healthy, job="quiet")))
    wait_for_state(shared.client(), "quiet", "ended")
    parts = urlsplit(shared.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("GET", "/v1/jobs/quiet/events")
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    for line in response:
        if line.startswith(b": keep-alive"):
            break
    connection.close()


def test_a_stream_ends_when_its_token_is_revoked(
    shared: CollectorProcess, healthy: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = shared.client()
    post_all(admin, bodies(healthy, senders(healthy, job="secret")))
    made = admin.post_json("/v1/tokens", {"scopes": ["read"]})
    reader = shared.client(made["token"])
    assert events(reader, "secret", 1)[0].name == "steps"
    admin.delete_json(f"/v1/tokens/{made['id']}")
    with pytest.raises(ProblemError) as refused:
        wait_until(lambda: events(reader, "secret", 1) and None, 20)
    assert refused.value.status == 401
