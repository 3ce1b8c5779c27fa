"""Where messages may be sent, what answers mean, where secrets come from, what may be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from paceline.errors import ConfigError
from paceline_service.notify.addresses import MAX_URL_CHARS, check_address, check_url
from paceline_service.notify.channels.build import build_channels
from paceline_service.notify.dispatch import MAX_BACKOFF_S, backoff_s
from paceline_service.notify.http import Answer, NotSentError, Outgoing
from paceline_service.notify.nodes.policy import Policy
from paceline_service.notify.rate import BURST, Bucket
from paceline_service.notify.result import MAX_RETRY_AFTER_S, result_of, retry_after_s
from paceline_service.notify.secret import Secret
from paceline_service.settings import CollectorSettings
from tests.unit.service.test_notify_changes import facts

CAPITAL = {"kubernetes-taint", "slurm-drain"}


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "ftp://example.com/", "https:///x", "https://user@example.com/",
        "https://user:password@example.com/", "https://example.com/#x", "https://exa mple.com/",
        "https://example.com/\n", "https://example.com:99999/", "https://[::1", "file:///etc/passwd",
        "gopher://127.0.0.1/", "", "//example.com", "https://exämple.com/",
        f"https://example.com/{'x' * MAX_URL_CHARS}",
    ],
)  # fmt: skip
def test_a_url_that_breaks_a_rule_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_url(url, ())
    assert "password" not in str(caught.value).replace("or a password", "")
    assert "passwd" not in str(caught.value)


def test_no_tls_is_needed_on_this_machine_and_for_hosts_that_are_named() -> None:
    assert check_url("http://127.0.0.1:9093/x?y=1", ()).path == "/x?y=1"
    assert check_url("http://[::1]:9093", ()).origin == "http://[::1]:9093"
    assert check_url("http://alertmanager:9093", ["alertmanager"]).loopback is False
    with pytest.raises(ConfigError, match="PLAIN_HTTP_HOSTS"):
        check_url("http://alertmanager.evil:9093", ["alertmanager"])
    assert check_url("https://example.com/secret", ()).origin == "https://example.com"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "fe80::1%eth0", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "::",
        "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "127.0.0.1", "::1", "127.8.8.8",
        "::ffff:169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1",
    ],
)  # fmt: skip
def test_nothing_is_sent_to_an_address_that_a_receiver_cannot_have(address: str) -> None:
    with pytest.raises(ConfigError, match="nothing is sent there"):
        check_address(address, check_url("https://example.com", ()))


@pytest.mark.parametrize("address", ["10.96.0.1", "192.168.1.1", "8.8.8.8", "2a00::1", "fd12::1",
                                     "64:ff9b::808:808"])  # fmt: skip
def test_receivers_may_be_within_the_own_network(address: str) -> None:
    check_address(address, check_url("https://example.com", ()))


def test_this_machine_is_reached_by_its_own_names_only() -> None:
    check_address("127.0.0.1", check_url("https://localhost", ()))


def test_who_does_not_listen_was_not_sent_anything() -> None:
    with pytest.raises(NotSentError, match="Connection refused"):
        Outgoing().send("POST", "http://127.0.0.1:9/", b"{}", {})


def answer(status: int, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, headers=named, body=b"said\x1b so")


@pytest.mark.parametrize(
    ("status", "verdict", "uncertain"),
    [
        (200, "delivered", False), (202, "delivered", False), (204, "delivered", False),
        (301, "refused", False), (307, "refused", False), (400, "refused", False),
        (410, "refused", False), (413, "refused", False), (422, "refused", False),
        (401, "again", False), (403, "again", False), (404, "again", False),
        (429, "again", False), (408, "again", True), (500, "again", True), (503, "again", True),
    ],
)  # fmt: skip
def test_what_a_status_means(status: int, verdict: str, uncertain: bool) -> None:
    result = result_of(answer(status), "there")
    assert (result.verdict, result.uncertain) == (verdict, uncertain)
    assert "\x1b" not in result.reason


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0), ("", 0.0), ("-1", 0.0), ("soon", 0.0), ("99999999999", MAX_RETRY_AFTER_S),
        ("Sat, 21 Nov 2026 18:00:30 GMT", 30.0), ("Sat, 21 Nov 2026 17:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2099 17:00:00 GMT", MAX_RETRY_AFTER_S),
    ],
)  # fmt: skip
def test_a_receiver_says_how_long_it_wants_to_be_left_alone(value: str, seconds: float) -> None:
    now_s = 1795284000.0
    assert retry_after_s(answer(429, retry_after=value), now_s) == seconds


def test_waiting_doubles_up_to_a_limit() -> None:
    waits = [backoff_s(attempts) for attempts in range(40)]
    assert 0.7 <= waits[0] <= 1.0
    assert all(wait <= MAX_BACKOFF_S for wait in waits)
    assert min(waits[10:]) >= 0.7 * MAX_BACKOFF_S


def test_a_channel_gets_a_few_messages_at_once_and_then_its_rate() -> None:
    now_s = 0.0
    bucket = Bucket(30, clock_s=lambda: now_s)
    assert [bucket.take() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    now_s = 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_a_secret_is_read_when_it_is_used_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\nsecond\n")
    secret = Secret("KEY", None, file)
    assert secret.lines() == ["first", "second"]
    file.write_text("third")
    assert secret.first() == "third"
    file.write_text("\n \n")
    with pytest.raises(ConfigError, match="KEY is empty"):
        secret.first()
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        secret.first()
    shown = repr(Secret("KEY", SecretStr("hidden"), None))
    assert "hidden" not in shown
    assert not Secret("KEY", SecretStr(""), Path()), "an empty variable is none"


def channels(**settings: Any) -> list[tuple[str, str, str]]:
    built = build_channels(CollectorSettings(**settings))
    return [(one.name, one.kind, one.where) for one in built]


def test_channels_are_made_of_what_is_set() -> None:
    assert channels() == []
    assert channels(
        notify_webhook_url="https://hooks.example/secret", notify_webhook_secret="s" * 16,
        notify_slack_url="https://hooks.slack.example/T0/B0/x", notify_pagerduty_key="k",
        notify_alertmanager_urls=["http://127.0.0.1:9093", "http://127.0.0.1:9094/am"],
    ) == [
        ("webhook", "webhook", "https://hooks.example"),
        ("slack", "slack-webhook", "https://hooks.slack.example"),
        ("pagerduty", "pagerduty", "https://events.pagerduty.com"),
        ("alertmanager-1", "alertmanager", "http://127.0.0.1:9093"),
        ("alertmanager-2", "alertmanager", "http://127.0.0.1:9094"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"notify_webhook_url": "https://a.example"}, "WEBHOOK_SECRET is empty"),
        (
            {"notify_webhook_url": "https://a.example", "notify_webhook_secret": "short"},
            "5 characters",
        ),
        ({"notify_slack_token": "xoxb"}, "SLACK_CHANNEL"),
        ({"notify_slack_url": "http://hooks.example/x"}, "without TLS"),
        ({"notify_pagerduty_key_file": Path("/nonexistent/key")}, "cannot be read"),
        ({"notify_alertmanager_urls": ["ftp://a"]}, "scheme 'ftp'"),
        ({"notify_channels_file": Path("/nonexistent.json")}, "cannot be read"),
        (
            {"notify_pagerduty_key": "k", "notify_ca_file": Path("/nonexistent.pem")},
            "authorities /nonexistent.pem",
        ),
    ],
)
def test_a_channel_that_cannot_work_keeps_the_collector_from_starting(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        channels(**settings)


def test_a_file_adds_channels_with_jobs_of_their_own(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "channels.json"
    secret.write_text("s" * 32)
    spec = {"name": "team-a", "kind": "webhook", "url": "https://a.example/x",
            "secret_file": str(secret), "jobs": ["team-a.*"], "min_severity": "page"}  # fmt: skip
    file.write_text(json.dumps({"channels": [spec]}))
    (built,) = build_channels(CollectorSettings(notify_channels_file=file))
    assert built.audience.covers("team-a.llm")
    assert not built.audience.covers("team-b.llm")
    assert built.audience.min_severity == "page"
    for broken in (
        {"channels": [spec, spec]},
        {"channels": [{**spec, "secret": "in the file"}]},
        {"channels": [{**spec, "kind": "carrier-pigeon"}]},
        {"channels": [{**spec, "name": "Team A"}]},
        [],
    ):
        file.write_text(json.dumps(broken))
        with pytest.raises(ConfigError) as caught:
            build_channels(CollectorSettings(notify_channels_file=file))
        assert "in the file" not in str(caught.value)


POLICY = Policy(
    allow=["kubernetes-event", "kubernetes-condition", "kubernetes-taint", "slurm-drain"],
    nodes=["node-*", "ALL", "bad*"], jobs=["llm*"], causes=["gpu_fault", "gpu_throttle"],
    min_severity="page", max_nodes=1,
)  # fmt: skip
PAGED = facts(severity="page")


def wanted(policy: Policy = POLICY, **changes: Any) -> set[str]:
    return {one.action for one in policy.wanted(msgspec.structs.replace(PAGED, **changes))}


def test_what_is_allowed_is_done_for_a_bad_incident_of_one_node() -> None:
    assert wanted() == {*POLICY.allow}


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "ticket"},
        {"acknowledged_by": "ana"},
        {"silenced_until_wall_ns": 1},
        {"job": "other"},
        {"kind": "imbalance"},
        {"cause": "input"},
        {"nodes": ["node-a", "node-b"], "node_count": 2},
        {"nodes": ["login-1"]},
        {"nodes": []},
        {"nodes": ["ALL"]},
        {"nodes": ["bad[1-9]"]},
        {"nodes": ["bad;id"]},
    ],
)
def test_nothing_is_done_where_a_person_has_to_decide(changes: dict[str, Any]) -> None:
    assert wanted(**changes) == set()


def test_a_node_is_taken_out_of_service_for_the_causes_that_are_named() -> None:
    assert wanted(cause="host") == {*POLICY.allow} - CAPITAL
    assert wanted(nodes=["node-A"]) == {"slurm-drain"}, "no node of Kubernetes is called so"


def test_what_is_over_has_its_condition_taken_back_and_nothing_else() -> None:
    over = {"closed_wall_ns": 10**18, "closed_reason": "recovered"}
    assert wanted(**over) == {"kubernetes-condition-clear"}
