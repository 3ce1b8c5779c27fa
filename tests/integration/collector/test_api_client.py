"""The typed client against a real collector; the example of docs/api.md runs here too."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from paceline.errors import TransportError
from paceline.vocabulary import Phase
from paceline_service.client import Client, Event, ProblemError, types
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, Simulated, simulate

JOB = "client"


@pytest.fixture(scope="module")
def client(shared: CollectorProcess) -> Iterator[Client]:
    """A client of a collector that has a job with an incident."""
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=120, faults=(fault,), seed=14))
    with shared.client() as made:
        post_all(made, bodies(job, senders(job, job=JOB)))
        wait_for_state(made, JOB, "ended")
        wait_until(lambda: next(made.iter_incidents(JOB), None))
        yield made


def schemas(client: Client) -> dict[str, Any]:
    return dict(client.get_json("/openapi.json")["components"]["schemas"])


TYPES = [
    name
    for name in vars(types)
    if name[0].isupper() and hasattr(vars(types)[name], "__total__") and name != "FramesAnswer"
]


@pytest.mark.parametrize("name", sorted(set(TYPES) - {"RejectedFrame"}))
def test_a_type_has_the_fields_of_the_document(client: Client, name: str) -> None:
    described = schemas(client)[name]
    made = vars(types)[name]
    assert set(get_type_hints(made)) == set(described["properties"])
    assert made.__required_keys__ >= set(described.get("required", ()))


def test_every_read_gives_what_it_says(client: Client) -> None:
    assert JOB in {row["job"] for row in client.jobs()}
    assert [row["job"] for row in client.iter_jobs(prefix=JOB, limit=1)] == [JOB]
    assert client.job(JOB)["nodes"]["1"] == "node-a"
    assert client.report(JOB)["findings"][0]["ranks"] == [1]
    assert [row["rank"] for row in client.iter_ranks(JOB)] == [0, 1, 2, 3]
    assert client.steps(JOB, from_=3, limit=2)["steps"] == [3, 4]
    pages = [page["steps"] for page in client.iter_steps(JOB, from_=100, limit=8, phases=True)]
    assert [step for page in pages for step in page] == list(range(100, 120))
    assert client.what_if(JOB, ["rank:1"])["without"] == ["rank:1"]
    assert client.what_if(JOB, ["rank:0", "rank:1"])["ranks"] == "0-1"
    told = client.expected(JOB, flops_per_step=1e12)
    assert told["expected"] is not None
    assert told["calibration"] is not None
    assert told["calibration"]["flops_per_step"] == 1e12
    assert client.timeline(JOB, from_=3, to=4)["otherData"]["last_step"] == 4
    assert b"".join(client.event_log(JOB)).startswith(b'{"schema":"paceline.events/1"')
    assert "paceline_job_slowdown_ratio" in client.metrics()
    assert client.ready()
    assert {row["node"] for row in client.iter_offenders()} == {"node-a"}
    assert client.expected(JOB, parameters=1e6, tokens_per_step=10)["calibration"] is not None
    assert client.channels() == []
    assert client.notifications(next(client.iter_incidents(JOB))["id"])["messages"] == []
    with pytest.raises(ProblemError, match="channel"):
        client.test_channel("of-nobody")


def test_every_change_can_be_made_and_is_found_in_the_audit_log(client: Client) -> None:
    incident = next(client.iter_incidents(JOB))["id"]
    acknowledged = client.acknowledge(incident, who="ana", note="seen")["acknowledged"]
    assert acknowledged is not None
    assert acknowledged["by"] == "ana"
    assert client.take_back(incident)["acknowledged"] is None
    assert len(client.incident(incident)["acknowledgements"]) == 1
    silence = client.silence_incident(incident, 600)
    assert [one["id"] for one in client.iter_silences(active=True)] == [silence["id"]]
    assert [one["id"] for one in client.unsilence_incident(incident)] == [silence["id"]]
    other = client.silence(60, job=JOB, ranks="1")
    assert client.end_silence(other["id"])["active"] is False
    assert client.change_settings(JOB, {"stride": 2})["stride"] == 2
    assert client.settings(JOB)["updated_by"] == "PACELINE_TOKEN"
    token = client.make_token(["read"], name="of a test")
    assert client.revoke_token(token["id"])["id"] == token["id"]
    assert token["id"] in {one["id"] for one in client.iter_tokens()}
    actions = {entry["action"] for entry in client.iter_audit()}
    assert actions >= {"incident.ack", "silence.new", "silence.end", "settings.change"}


def test_a_refusal_carries_its_problem(client: Client) -> None:
    with pytest.raises(ProblemError) as refused:
        client.report("nobody")
    assert (refused.value.status, refused.value.kind) == (404, "unknown-job")
    assert "GET /v1/jobs" in refused.value.problem["detail"]


def test_an_answer_that_has_not_changed_is_taken_from_the_cache(
    shared: CollectorProcess, client: Client
) -> None:
    with Client(shared.url, TOKEN, cache=True) as caching:
        first = caching.report(JOB)
        sent: list[int] = []
        read = caching._read

        def counted(response: Any, size: int | None = None) -> bytes:
            sent.append(response.status)
            return read(response, size)

        caching._read = counted  # type: ignore[method-assign]
        assert caching.report(JOB) == first
        assert sent == [304]


class Flaky:
    """Passes connections on to a collector, but closes the first ones, or all while ``away``."""

    def __init__(self, url: str, failures: int) -> None:
        self.failures = failures
        self.away = False
        self.seen = 0
        self._target = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Break off what is connected."""
        for one in self._pairs:
            _shut(one)

    def _serve(self) -> None:
        while True:
            near, _ = self._server.accept()
            self.seen += 1
            if self.away or self.seen <= self.failures:
                near.close()
                continue
            far = socket.create_connection(self._target)
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        _shut(source)
        _shut(sink)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def test_only_what_may_be_repeated_is_sent_again(shared: CollectorProcess, client: Client) -> None:
    flaky = Flaky(shared.url, failures=2)
    assert Client(flaky.url, TOKEN, retries=2).report(JOB)["job"]["name"] == JOB
    assert flaky.seen == 3
    flaky = Flaky(shared.url, failures=1)
    with pytest.raises(TransportError):
        Client(flaky.url, TOKEN, retries=5).make_token(["read"])
    assert flaky.seen == 1
    with pytest.raises(TransportError):
        Client("http://127.0.0.1:9", TOKEN).jobs()


def test_followed_events_go_on_after_the_connection_broke(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    flaky = Flaky(shared.url, failures=0)
    posting = shared.client()
    posted = list(bodies(healthy, senders(healthy, job="followed")))
    post_all(posting, posted[:3])
    wait_until(lambda: posting.job("followed")["steps"] > 10)
    heard: list[Event] = []

    def follow() -> None:
        for event in Client(flaky.url, TOKEN).follow_events("followed"):
            heard.append(event)
            if event.name == "report" and event.data["job"]["state"] == "ended":
                return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    wait_until(lambda: heard)
    flaky.cut()
    post_all(posting, posted[3:])
    reader.join(30)
    assert not reader.is_alive()
    steps = [s for event in heard if event.name == "steps" for s in event.data["steps"]]
    assert steps == list(range(60))
    assert flaky.seen >= 2


def test_who_is_away_for_too_long_is_given_up(shared: CollectorProcess, client: Client) -> None:
    flaky = Flaky(shared.url, failures=0)
    flaky.away = True
    began_s = time.monotonic()
    with pytest.raises(TransportError):
        next(Client(flaky.url, TOKEN).follow_events(JOB, patience_s=0.2))
    assert time.monotonic() - began_s < 20


def test_the_example_of_the_documentation_runs(
    shared: CollectorProcess, client: Client, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "docs" / "api.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    code = example[1].replace("http://127.0.0.1:8750", shared.url).replace("TOKEN", repr(TOKEN))
    exec(compile(code, "docs/api.md", "exec"), {"__name__": "example"})
    assert f"{JOB}: " in capsys.readouterr().out
