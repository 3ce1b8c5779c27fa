"""Lists come page by page, and what has not changed is not sent again."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from paceline_service.client import Client, ProblemError
from paceline_service.paging import pack_cursor
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
)
from tests.simulator.job import Scenario, Simulated, simulate

JOBS = [f"many.{number}" for number in range(5)]


@pytest.fixture(scope="module")
def many(shared: CollectorProcess, healthy: Simulated) -> Client:
    """A collector with five short jobs, the last one still running."""
    short = simulate(Scenario(data_parallel=2, steps=5, seed=2))
    client = shared.client()
    for name in JOBS:
        post_all(client, bodies(short, senders(short, job=name), end=name != JOBS[-1]))
    post_all(client, bodies(healthy, senders(healthy, job="steps")))
    for name in (*JOBS[:-1], "steps"):
        wait_for_state(client, name, "ended")
    return client


def pages(client: Client, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = client.get_json(path, **query, cursor=cursor)
        yield page
        cursor = page["next"]
        if cursor is None:
            return


def ask(
    collector: CollectorProcess, path: str, method: str = "GET", body: str | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
    parts = urlsplit(collector.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **sent})
    response = connection.getresponse()
    told = {name.lower(): value for name, value in response.getheaders()}
    content = response.read()
    connection.close()
    return response.status, told, content


def test_jobs_come_page_by_page_without_gaps_and_in_one_order(many: Client) -> None:
    whole = [row["job"] for row in many.get_json("/v1/jobs")["jobs"]]
    assert set(JOBS) <= set(whole)
    paged = list(pages(many, "/v1/jobs", limit=2))
    assert [row["job"] for page in paged for row in page["jobs"]] == whole
    assert all(len(page["jobs"]) == 2 for page in paged[:-1])


def test_jobs_can_be_chosen_by_state_verdict_name_and_time(many: Client) -> None:
    def names(**query: Any) -> list[str]:
        return [
            row["job"] for page in pages(many, "/v1/jobs", limit=2, **query) for row in page["jobs"]
        ]

    assert names(prefix="many.") == JOBS[::-1]
    assert names(prefix="many.", state="ended") == JOBS[:-1][::-1]
    assert names(prefix="many.", state="running") in ([], [JOBS[-1]])  # silent after a while
    assert names(prefix="many.", verdict="straggler") == []
    assert names(since=2**62) == []


def test_the_next_page_is_linked_in_the_header_too(many: Client, shared: CollectorProcess) -> None:
    status, told, body = ask(shared, "/v1/jobs?limit=2&prefix=many.")
    assert status == 200
    target, _, relation = told["link"].partition(">; ")
    assert relation == 'rel="next"'
    status, told, second = ask(shared, target.removeprefix("<"))
    assert status == 200
    first = [row["job"] for row in json.loads(body)["jobs"]]
    assert [*first, *(row["job"] for row in json.loads(second)["jobs"])] == JOBS[:0:-1]


def test_ranks_come_page_by_page_and_can_be_chosen(many: Client) -> None:
    paged = list(pages(many, "/v1/jobs/steps/ranks", limit=3))
    assert [[row["rank"] for row in page["ranks"]] for page in paged] == [[0, 1, 2], [3]]
    chosen = many.get_json("/v1/jobs/steps/ranks", ranks="1,3")["ranks"]
    assert [row["rank"] for row in chosen] == [1, 3]


@pytest.mark.parametrize("query", [{}, {"to": 40}, {"from_": 0}, {"from_": 7, "to": 33}])
def test_steps_come_page_by_page_in_both_directions(many: Client, query: dict[str, int]) -> None:
    found = [page["steps"] for page in pages(many, "/v1/jobs/steps/steps", limit=7, **query)]
    ascending = "from_" in query
    in_order = found if ascending else found[::-1]
    first, last = query.get("from_", 0), query.get("to", 59)
    assert [step for page in in_order for step in page] == list(range(first, last + 1))


@pytest.mark.parametrize("what", ["", "steps/ranks", "steps/steps", "steps/report", "steps"])
def test_what_has_not_changed_is_not_sent_again(
    many: Client, shared: CollectorProcess, what: str
) -> None:
    path = "/v1/jobs" + (f"/{what}" if what else "?prefix=steps")
    status, told, body = ask(shared, path)
    assert (status, bool(body)) == (200, True)
    assert told["etag"].startswith('"')
    assert told["cache-control"] == "private, no-cache"
    status, again, body = ask(shared, path, If_None_Match=told["etag"])
    assert (status, body, again["etag"]) == (304, b"", told["etag"])
    status, _, _ = ask(shared, path, If_None_Match=f'"other", W/{told["etag"]}')
    assert status == 304
    status, _, body = ask(shared, path, If_None_Match='"other"')
    assert (status, bool(body)) == (200, True)


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJ0byIsMV0" + "a" * 100, "WzEsMiwzXQ"])
@pytest.mark.parametrize("what", ["/v1/jobs", "/v1/jobs/steps/ranks", "/v1/jobs/steps/steps"])
def test_a_cursor_of_something_else_is_refused(many: Client, what: str, cursor: str) -> None:
    with pytest.raises(ProblemError) as refused:
        many.get_json(what, cursor=cursor)
    assert refused.value.status == 400
    assert "begin again" in refused.value.problem["detail"]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_cursor_with_a_number_that_no_row_can_have_is_refused(many: Client, number: int) -> None:
    for what, key in (
        ("/v1/jobs", (number, number)),
        ("/v1/jobs/steps/steps", ("from", number)),
        ("/v1/jobs/steps/ranks", (number,)),
        ("/v1/incidents", (number,)),
        ("/v1/silences", (number,)),
        ("/v1/offenders", (number, 0, "", "")),
    ):
        with pytest.raises(ProblemError) as refused:
            many.get_json(what, cursor=pack_cursor(*key))
        assert refused.value.status == 400, what


PROBLEMS: list[tuple[str, str, str | None, dict[str, str], int, str]] = [
    ("GET", "/v1/nowhere", None, {}, 404, "not-found"),
    ("GET", "/static/nothing.js", None, {}, 404, "not-found"),
    ("GET", "/v1/jobs/", None, {}, 404, "not-found"),
    ("GET", "/v1/audit?action=a%00", None, {"Authorization": f"Bearer {TOKEN}"}, 422,
     "invalid-parameter"),
    ("POST", "/v1/jobs", None, {}, 405, "method-not-allowed"),
    ("DELETE", "/v1/frames", None, {}, 405, "method-not-allowed"),
    ("GET", "/v1/jobs", None, {"Accept": "text/html"}, 406, "not-acceptable"),
    ("GET", "/v1/jobs", None, {"Accept": "application/json;q=0"}, 406, "not-acceptable"),
    ("GET", "/v1/jobs/steps/events", None, {"Accept": "application/json"}, 406, "not-acceptable"),
    ("PUT", "/v1/jobs/steps/settings", "level=off", {}, 415, "unsupported-media-type"),
    ("PUT", "/v1/jobs/steps/settings", "x" * 70_000, {"Content-Type": "application/json"}, 413,
     "body-too-large"),
    ("PUT", "/v1/jobs/steps/settings", "{", {"Content-Type": "application/json"}, 422,
     "invalid-parameter"),
    ("GET", "/v1/jobs?limit=0", None, {}, 422, "invalid-parameter"),
    ("GET", "/v1/jobs/a%00b", None, {}, 422, "invalid-parameter"),
    ("GET", "/v1/jobs/unknown", None, {}, 404, "unknown-job"),
    ("GET", "/v1/jobs", None, {"Host": "elsewhere.example"}, 421, "untrusted-host"),
    ("GET", "/v1/jobs", None, {"Authorization": "Bearer wrong"}, 401, "unauthenticated"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "problem"), PROBLEMS)
def test_every_refusal_is_a_problem_with_a_stable_type_and_a_remedy(
    many: Client, shared: CollectorProcess, method: str, path: str, body: str | None,
    headers: dict[str, str], status: int, problem: str,
) -> None:  # fmt: skip
    found, told, content = ask(shared, path, method, body, **headers)
    assert found == status, content
    assert told["content-type"] == "application/problem+json"
    document = json.loads(content)
    assert document["type"] == f"urn:paceline:problem:{problem}"
    assert document["status"] == status
    assert document["detail"]
    assert ("errors" in document) is (status == 422)


@pytest.mark.parametrize("accepted", ["*/*", "application/*", "text/html, */*;q=0.1"])
def test_any_range_that_covers_json_is_served(shared: CollectorProcess, accepted: str) -> None:
    assert ask(shared, "/v1/jobs", Accept=accepted)[0] == 200


def test_a_method_that_there_is_not_tells_those_that_there_are(shared: CollectorProcess) -> None:
    for path, allowed in (
        ("/v1/jobs/steps/settings", "GET, PUT"),
        ("/v1/silences", "GET, POST"),
        ("/v1/frames", "POST"),
    ):
        status, told, _ = ask(shared, path, "PATCH")
        assert (status, told["allow"]) == (405, allowed)
