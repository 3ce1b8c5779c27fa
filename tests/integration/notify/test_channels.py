"""Slack, PagerDuty and a real Alertmanager, told of the same incident by one collector."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

import jsonschema_rs
import pytest
import trustme

from paceline_service.commands.notify import main
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until
from tests.integration.notify.conftest import AT_ONCE
from tests.integration.notify.kit import Answer, Incidents, Receiver, Request
from tests.unit.service.test_notify_formats import PAGERDUTY, SLACK

pytestmark = pytest.mark.integration
BAD: dict[str, Any] = {"recoverable_ratio": 0.2, "cause": "unknown"}
"""Of 64 GPUs 12.8 stand idle: a page."""


@dataclass
class Slack:
    """What of Slack's API the collector uses, with its errors and its memory."""

    posted: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By timestamp: the messages of the channel."""
    limited: int = 0

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer xoxb-test":
            return self._say(ok=False, error="invalid_auth")
        content, method = request.json, request.path.rpartition("/")[2]
        if self.limited:
            self.limited -= 1
            return 429, {"Retry-After": "1"}, b'{"ok":false,"error":"ratelimited"}'
        if content["channel"] != "C0123":
            return self._say(ok=False, error="channel_not_found")
        if method == "chat.update":
            if content["ts"] not in self.posted:
                return self._say(ok=False, error="message_not_found")
            self.posted[content["ts"]] = content
            return self._say(ok=True, ts=content["ts"], channel="C0123")
        assert method == "chat.postMessage"
        ts = f"1700000000.{len(self.posted):06d}"
        self.posted[ts] = content
        return self._say(ok=True, ts=ts, channel="C0123")

    @staticmethod
    def _say(**content: object) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()

    def first(self, words: str) -> dict[str, Any]:
        """Return the message about an incident that is no reply."""
        (found,) = [
            one for one in self.posted.values()
            if words in json.dumps(one) and "thread_ts" not in one
        ]  # fmt: skip
        return found


@pytest.fixture(scope="module")
def slack() -> Iterator[tuple[Slack, Receiver]]:
    state = Slack()
    receiver = Receiver(respond=state).start()
    yield state, receiver
    receiver.stop()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def pager(authority: trustme.CA) -> Iterator[Receiver]:
    """PagerDuty behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    taken = b'{"status":"success","message":"Event processed","dedup_key":"x"}'
    receiver = Receiver(respond=lambda _: (202, {}, taken), tls=context).start()
    yield receiver
    receiver.stop()


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Alertmanager; without one its tests are left out, the others are not."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        yield ""
        return
    directory = tmp_path_factory.mktemp("alertmanager")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    config = directory / "alertmanager.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    command = [
        program, f"--config.file={config}", f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/-/ready"), 20)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def collector(
    tmp_path_factory: pytest.TempPathFactory,
    slack: tuple[Slack, Receiver],
    pager: Receiver,
    authority: trustme.CA,
    alertmanager: str,
) -> Iterator[CollectorProcess]:
    directory = tmp_path_factory.mktemp("channels")
    (directory / "slack-token").write_text("xoxb-test\n")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    urls = [alertmanager] if alertmanager else []
    process = CollectorProcess(
        directory / "state",
        PACELINE_SERVE_NOTIFY_SLACK_TOKEN_FILE=str(directory / "slack-token"),
        PACELINE_SERVE_NOTIFY_SLACK_CHANNEL="C0123",
        PACELINE_SERVE_NOTIFY_SLACK_API=f"{slack[1].url}/api",
        PACELINE_SERVE_NOTIFY_PAGERDUTY_KEY="pager-key-0123456789",
        PACELINE_SERVE_NOTIFY_PAGERDUTY_URL=f"{pager.url}/v2/enqueue",
        PACELINE_SERVE_NOTIFY_CA_FILE=str(directory / "ca.pem"),
        PACELINE_SERVE_NOTIFY_ALERTMANAGER_URLS=json.dumps(urls),
        **AT_ONCE,
    ).start()
    yield process
    assert process.stop() == 0
    log = process.log.read_text()
    assert "xoxb-test" not in log
    assert "pager-key" not in log


@pytest.fixture(scope="module")
def incidents(collector: CollectorProcess) -> Iterator[Incidents]:
    made = Incidents(f"sqlite:///{collector.database}")
    yield made
    made.end()


def test_an_incident_is_one_message_of_slack_that_is_edited_and_followed(
    collector: CollectorProcess, slack: tuple[Slack, Receiver], incidents: Incidents
) -> None:
    state, _ = slack
    state.limited = 1
    number = incidents.open("in-slack", **BAD)
    wait_until(lambda: any("in-slack" in one["text"] for one in state.posted.values()))
    posted = state.first("in-slack")
    jsonschema_rs.validator_for(SLACK).validate(posted)
    assert posted["text"].startswith("Open (page): in-slack: Rank 5 on node-a is slow")
    incidents.change(number, cause="gpu_throttle")
    path = f"/v1/incidents/{number}/ack"
    wait_until(lambda: "its cause is gpu_throttle" in json.dumps(list(state.posted.values())))
    collector.client().post_json(path, {"who": "ana"})
    wait_until(lambda: state.first("in-slack")["text"].startswith("Acknowledged"))
    incidents.close(number)
    wait_until(lambda: state.first("in-slack")["text"].startswith("Resolved"))
    replies = wait_until(
        lambda: (
            found
            if len(found := [o for o in state.posted.values() if "thread_ts" in o]) == 3
            else None
        )
    )
    assert [one["reply_broadcast"] for one in replies] == [False, False, True]
    assert [one["text"].partition(": ")[2][:20] for one in replies] == [
        "its cause is gpu_thr", "acknowledged by ana", "over: the ranks keep"
    ]  # fmt: skip


def test_a_message_that_somebody_deleted_in_slack_is_posted_again(
    slack: tuple[Slack, Receiver], incidents: Incidents
) -> None:
    state, _ = slack
    number = incidents.open("deleted-there", **BAD)
    wait_until(lambda: any("deleted-there" in one["text"] for one in state.posted.values()))
    wait_until(lambda: incidents.rows(
        f"SELECT 1 FROM notifications WHERE incident_id = {number} AND channel = 'slack' "
        "AND state = 'told'"
    ))  # fmt: skip
    for ts, one in list(state.posted.items()):
        if "deleted-there" in one["text"]:
            state.posted[f"gone-{ts}"] = {"text": ""}
            del state.posted[ts]
    incidents.close(number)
    wait_until(lambda: any("deleted-there" in one["text"] for one in state.posted.values()))
    assert state.first("deleted-there")["text"].startswith("Resolved")


def test_pagerduty_is_triggered_acknowledged_and_resolved_by_one_key_behind_tls(
    collector: CollectorProcess, pager: Receiver, incidents: Incidents
) -> None:
    number = incidents.open("paged", **BAD)
    incidents.open("not-so-bad", recoverable_ratio=0.05)
    pager.wait(1, "paged")
    collector.client().post_json(f"/v1/incidents/{number}/ack", {"who": "ana"})
    wait_until(lambda: len(sent(pager, number)) == 2)
    incidents.close(number)
    wait_until(lambda: len(sent(pager, number)) == 3)
    events = sent(pager, number)
    for event in events:
        jsonschema_rs.validator_for(PAGERDUTY).validate(event)
        assert event["routing_key"] == "pager-key-0123456789"
    assert [one["event_action"] for one in events] == ["trigger", "acknowledge", "resolve"]
    assert len({one["dedup_key"] for one in events}) == 1
    assert events[0]["payload"]["custom_details"]["next_command"].startswith("scontrol")
    assert not pager.of("not-so-bad"), "nobody is woken for that"


def sent(pager: Receiver, number: int) -> list[dict[str, Any]]:
    found = [one.json for one in pager.requests]
    return [one for one in found if one["dedup_key"].startswith(f"paceline-{number}-")]


def test_a_real_alertmanager_shows_the_incident_and_its_end(
    alertmanager: str, incidents: Incidents
) -> None:
    if not alertmanager:
        pytest.skip("no Alertmanager here: apt-get install prometheus-alertmanager")
    number = incidents.open("alerted", recoverable_ratio=0.1, nodes=['no"de\\a'])

    def alerts() -> list[dict[str, Any]]:
        with urlopen(f"{alertmanager}/api/v2/alerts", timeout=5) as answer:
            found = json.load(answer)
        return [one for one in found if one["labels"]["job"] == "alerted"]

    (alert,) = wait_until(alerts)
    assert alert["labels"] == {
        "alertname": "PacelineIncident", "job": "alerted", "kind": "straggler", "ranks": "5",
        "severity": "ticket", "incident": str(number), "node": 'no"de\\a',
    }  # fmt: skip
    assert alert["status"]["state"] == "active"
    assert "Rank 5" in alert["annotations"]["summary"]
    incidents.change(number, recoverable_ratio=0.3)

    def severities() -> list[str]:
        return [one["labels"]["severity"] for one in alerts()]

    wait_until(lambda: severities() == ["page"])
    incidents.close(number)
    wait_until(lambda: alerts() == [])


@pytest.mark.parametrize("channel", ["slack", "pagerduty", "alertmanager"])
def test_every_channel_can_be_tried_from_the_command_line(
    command: Command, alertmanager: str, channel: str, pager: Receiver
) -> None:
    if channel == "alertmanager" and not alertmanager:
        pytest.skip("no Alertmanager here: apt-get install prometheus-alertmanager")
    status, told, complaint = command("test", channel)
    assert (status, complaint) == (0, "")
    assert "took the test message" in told
    if channel == "pagerduty":
        tried = [one.json for one in pager.requests if "paceline-test" in str(one.json)]
        assert [one["event_action"] for one in tried] == ["trigger", "resolve"]


def test_channels_are_listed_without_their_secrets(command: Command) -> None:
    status, told, _ = command("list")
    assert status == 0
    assert told.splitlines()[0].split()[:4] == ["slack", "slack", "from", "ticket"]
    assert "xoxb" not in told
    status, _, complaint = command("test", "nothing")
    assert status == 2
    assert "there are: " in complaint


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    collector: CollectorProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Run ``paceline notify`` against the collector; return status, output and complaints."""
    monkeypatch.setenv("PACELINE_TOKEN", TOKEN)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--url", collector.url])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run
