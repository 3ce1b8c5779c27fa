from __future__ import annotations

import email.utils
import json
import time

import pytest

from paceline.errors import ConfigError
from paceline.sidecar.collector import Collector, Outcome, _read_answer, is_loopback
from paceline.sidecar.sender import BACKOFF_LAST_S, backoff_s


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (401, Outcome.MISCONFIGURED),
        (403, Outcome.FORBIDDEN),
        (404, Outcome.MISCONFIGURED),
        (301, Outcome.MISCONFIGURED),
        (413, Outcome.TOO_LARGE),
        (429, Outcome.LATER),
        (500, Outcome.LATER),
        (503, Outcome.LATER),
    ],
)
def test_status_decides_what_becomes_of_the_frames(status: int, outcome: Outcome) -> None:
    assert _read_answer(status, None, b"{}").outcome is outcome


def test_only_a_refusal_by_the_collector_itself_loses_frames() -> None:
    ours = b'{"type":"urn:paceline:problem:no-frame","status":400,"detail":"no frame"}'
    assert _read_answer(400, None, ours).outcome is Outcome.REFUSED
    nginx = b"<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>"
    for body in (nginx, b"Invalid HTTP request received.", b'{"type":"about:blank"}', b""):
        for status in (400, 422):
            assert _read_answer(status, None, body).outcome is Outcome.MISCONFIGURED


def test_answer_that_is_not_paceline_s_keeps_the_frames() -> None:
    for body in (b"<html>hello</html>", b"[]", b'{"ok":true}', b"\xff", b"[" * 100_000):
        assert _read_answer(200, None, body).outcome is Outcome.MISCONFIGURED


def test_rejected_frames_are_named_by_offset() -> None:
    body = {"accepted": 1, "duplicate": 0, "rejected": [{"offset": 7, "reason": "no"}, 5, {}]}
    answer = _read_answer(200, None, json.dumps(body).encode())
    assert answer.outcome is Outcome.STORED
    assert answer.rejected == {7: "no"}


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("7", 7, 7),
        ("1000000", 300, 300),
        ("-5", 0, 0),
        ("nan", 0, 0),
        ("soon", 0, 0),
        ("", 0, 0),
    ],
)
def test_retry_after_is_honoured_within_bounds(value: str, least: float, most: float) -> None:
    assert least <= _read_answer(503, value, b"").retry_after_s <= most


def test_an_answer_that_refuses_frames_for_now_still_brings_the_settings() -> None:
    asked = {
        "job": "j", "run_id": "r", "attempt": 0, "generation": 3, "effective_step": 900,
        "level": "full", "stride": 4, "telemetry_interval_s": None,
    }  # fmt: skip
    answer = _read_answer(429, "1", json.dumps({"status": 429, "settings": [asked]}).encode())
    assert answer.outcome is Outcome.LATER
    assert [(told.stride, told.effective_step) for told in answer.settings] == [(4, 900)]


def test_retry_after_may_be_a_date() -> None:
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert 50 <= _read_answer(503, in_a_minute, b"").retry_after_s <= 61


def test_pauses_double_up_to_a_cap_and_are_spread() -> None:
    assert [backoff_s(n, 1.0) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert backoff_s(1, 0.0) == 0.25
    assert backoff_s(1000, 1.0) == BACKOFF_LAST_S


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host", "host:80", "http://", "http://[", "http://u:secret@host", "http://h:x"],
)
def test_url_that_cannot_be_used_is_refused_without_showing_credentials(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Collector(url, lambda: "")
    assert "secret" not in str(raised.value)


def test_clear_text_token_to_another_host_is_noticed() -> None:
    assert Collector("http://collector.example:8750", lambda: "t").token_in_clear
    assert not Collector("https://collector.example", lambda: "t").token_in_clear
    assert not Collector("http://127.0.0.1:8750", lambda: "t").token_in_clear
    assert is_loopback("http://[::1]:8750/x")
    assert not is_loopback("http://127.0.0.1.evil.example")


def test_nobody_listening_means_later() -> None:
    collector = Collector("http://127.0.0.1:9", lambda: "t")
    answer = collector.post(b"x")
    assert answer.outcome is Outcome.LATER
    assert "ConnectionRefusedError" in answer.text
