"""Incidents as people handle them: acknowledged, silenced, listed page by page."""

from __future__ import annotations

import time
from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, simulate


@pytest.fixture(scope="module")
def hurt(shared: CollectorProcess) -> Client:
    """A collector with two jobs, of which one runs on with a slow rank 1."""
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=140, faults=(fault,), seed=11))
    client = shared.client()
    for name, end in (("pages.done", True), ("pages.running", False)):
        post_all(client, bodies(job, senders(job, job=name), end=end))
    wait_for_state(client, "pages.done", "ended")
    wait_until(lambda: incidents(client, "pages.running"), 20)
    # It is closed in the store about a second after the job has ended.
    wait_until(lambda: [one["open"] for one in incidents(client, "pages.done")] == [False], 20)
    return client


def incidents(client: Client, job: str) -> list[dict[str, Any]]:
    return list(client.get_json(f"/v1/jobs/{job}/incidents")["incidents"])


def newest(client: Client) -> dict[str, Any]:
    return incidents(client, "pages.running")[0]


def refused(client: Client, method: str, path: str, content: Any = None) -> ProblemError:
    with pytest.raises(ProblemError) as problem:
        client.delete_json(path) if method == "DELETE" else client.post_json(path, content)
    return problem.value


def scraped(client: Client, name: str) -> list[str]:
    text = b"".join(client.stream("/metrics")).decode()
    return [line for line in text.splitlines() if line.startswith(name + "{")]


def test_an_acknowledgement_says_who_and_why_and_its_history_is_kept(hurt: Client) -> None:
    path = f"/v1/incidents/{newest(hurt)['id']}"
    assert hurt.get_json(path)["acknowledged"] is None
    hurt.post_json(f"{path}/ack", {"who": "ana", "note": "node is being drained"})
    shown = hurt.post_json(f"{path}/ack", {"who": "ben", "note": "drained"})
    assert shown["acknowledged"]["by"] == "ben"
    taken_back = hurt.delete_json(f"{path}/ack")
    assert taken_back["acknowledged"] is None
    history = hurt.get_json(path)["acknowledgements"]
    assert [(one["by"], one["note"]) for one in history] == [
        ("ben", "drained"), ("ana", "node is being drained")
    ]  # fmt: skip
    assert all(one["withdrawn_wall_ns"] for one in history)
    assert refused(hurt, "DELETE", f"{path}/ack").status == 409
    done = [e for e in hurt.get_json("/v1/audit", limit=10)["entries"] if "ack" in e["action"]]
    assert [one["action"] for one in done][:3] == ["incident.unack", "incident.ack", "incident.ack"]


def test_a_silence_hides_from_alerts_and_never_from_the_report_or_the_flag(hurt: Client) -> None:
    incident = newest(hurt)
    flags = scraped(hurt, "paceline_rank_flagged")
    assert flags
    assert not scraped(hurt, "paceline_rank_silenced")
    path = f"/v1/incidents/{incident['id']}/silence"
    made = hurt.post_json(path, {"for_s": 3600, "note": "known"})
    assert (made["job"], made["ranks"], made["active"]) == ("pages.running", "1", True)
    assert newest(hurt)["silenced"]["id"] == made["id"]
    assert hurt.report("pages.running")["findings"][0]["ranks"] == [1]
    assert scraped(hurt, "paceline_rank_flagged") == flags
    hidden = scraped(hurt, "paceline_rank_silenced")
    assert [line.replace("silenced", "flagged") for line in hidden] == [
        line for line in flags if "pages.running" in line
    ]
    ended = hurt.delete_json(path)["silences"]
    assert [one["active"] for one in ended] == [False]
    assert newest(hurt)["silenced"] is None
    assert not scraped(hurt, "paceline_rank_silenced")
    assert refused(hurt, "DELETE", path).status == 409


@pytest.mark.parametrize(
    ("wanted", "covered"),
    [
        ({"job": "pages.running"}, True),
        ({"job": "pages.done"}, False),
        ({"ranks": "0-3"}, True),
        ({"ranks": "2-3"}, False),
        ({"node": "node-a"}, True),
        ({"node": "node-b"}, False),
        ({"kind": "straggler", "job": "pages.running"}, True),
        ({"kind": "hang"}, False),
    ],
)
def test_a_silence_covers_what_lies_within_all_that_it_names(
    hurt: Client, wanted: dict[str, str], covered: bool
) -> None:
    made = hurt.post_json("/v1/silences", {**wanted, "for_s": 60})
    try:
        assert (newest(hurt)["silenced"] is not None) is covered
    finally:
        hurt.delete_json(f"/v1/silences/{made['id']}")
    assert refused(hurt, "DELETE", f"/v1/silences/{made['id']}").status == 409


def test_a_silence_ends_by_itself(hurt: Client) -> None:
    made = hurt.post_json("/v1/silences", {"job": "pages.running", "for_s": 0.5})
    wait_until(lambda: newest(hurt)["silenced"] is None)
    listed = hurt.get_json("/v1/silences", active="false")["silences"]
    assert next(one for one in listed if one["id"] == made["id"])["active"] is False


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"for_s": 60}, 400),
        ({"job": "x", "for_s": 1e9}, 422),
        ({"job": "x", "for_s": 0}, 422),
        ({"ranks": "7-x", "for_s": 60}, 422),
        ({"ranks": "7-3", "for_s": 60}, 422),
        ({"kind": "gremlins", "for_s": 60}, 422),
        ({"node": "a\x00b", "for_s": 60}, 422),
        ({"job": "x", "for_s": 60, "why": "?"}, 422),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused(
    hurt: Client, content: dict[str, Any], status: int
) -> None:
    problem = refused(hurt, "POST", "/v1/silences", content)
    assert problem.status == status, problem
    if status == 422:
        assert problem.problem["errors"][0]["where"].startswith("body")


def test_incidents_of_all_jobs_come_page_by_page_and_can_be_chosen(hurt: Client) -> None:
    whole = hurt.get_json("/v1/incidents")["incidents"]
    assert {one["job"] for one in whole} >= {"pages.done", "pages.running"}
    found, cursor = [], None
    while True:
        page = hurt.get_json("/v1/incidents", limit=1, cursor=cursor)
        found += page["incidents"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [one["id"] for one in found] == [one["id"] for one in whole]
    lasting = hurt.get_json("/v1/incidents", state="open")["incidents"]
    assert {one["job"] for one in lasting} == {"pages.running"}
    assert hurt.get_json("/v1/incidents", kind="hang")["incidents"] == []
    assert hurt.get_json("/v1/incidents", since=time.time_ns())["incidents"] == []
    with pytest.raises(ProblemError) as problem:
        hurt.get_json("/v1/incidents", cursor="nonsense")
    assert problem.value.status == 400


def test_a_token_of_another_team_neither_sees_nor_changes_an_incident(
    hurt: Client, shared: CollectorProcess
) -> None:
    wanted = {"scopes": ["admin"], "name": "other", "job_prefix": "team-b"}
    other = shared.client(hurt.post_json("/v1/tokens", wanted)["token"])
    incident = newest(hurt)["id"]
    assert other.get_json("/v1/incidents")["incidents"] == []
    assert refused(other, "POST", f"/v1/incidents/{incident}/ack", {}).status == 404
    for content in ({"kind": "hang"}, {"job": "pages.done"}):
        assert refused(other, "POST", "/v1/silences", {**content, "for_s": 9}).status == 403
    reader = shared.client(hurt.post_json("/v1/tokens", {"scopes": ["read"]})["token"])
    assert refused(reader, "POST", f"/v1/incidents/{incident}/ack", {}).status == 403
    assert len(reader.get_json("/v1/incidents")["incidents"]) >= 2


def test_acknowledgements_and_silences_outlive_a_restart(collector: CollectorProcess) -> None:
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=120, faults=(fault,), seed=12))
    client = collector.client()
    post_all(client, bodies(job, senders(job)))
    wait_for_state(client, "train", "ended")
    incident = wait_until(lambda: incidents(client, "train"))[0]["id"]
    client.post_json(f"/v1/incidents/{incident}/ack", {"who": "ana"})
    client.post_json("/v1/silences", {"job": "train", "for_s": 600})
    assert collector.stop() == 0
    collector.start()
    client = collector.client()
    assert client.get_json(f"/v1/incidents/{incident}")["acknowledged"]["by"] == "ana"
    assert client.get_json("/v1/silences", active="true")["silences"][0]["job"] == "train"
