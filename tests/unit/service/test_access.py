from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline_service.access.middleware import host_name
from paceline_service.access.tokens import Grant, new_token, parse_scopes, token_hash
from paceline_service.client import find_token
from paceline_service.settings import CollectorSettings


@pytest.mark.parametrize(
    ("prefix", "job", "covered"),
    [
        ("", "anything", True),
        ("team-a", "team-a", True),
        ("team-a", "team-a-llm", True),
        ("team-a", "team-a.llm", True),
        ("team-a", "team-a_llm", True),
        ("team-a", "team-ab", False),
        ("team-a", "team", False),
        ("team-a", "x-team-a", False),
        ("team-a-", "team-a-llm", True),
        ("team-a-", "team-a", False),
        ("team-a-", "team-ab", False),
    ],
)
def test_a_job_prefix_ends_at_a_delimiter(prefix: str, job: str, covered: bool) -> None:
    grant = Grant(name="t", scopes=frozenset({"ingest"}), job_prefix=prefix)
    assert grant.covers(job) is covered


def test_admin_holds_every_scope_and_others_only_their_own() -> None:
    admin = Grant(name="a", scopes=frozenset({"admin"}))
    reader = Grant(name="r", scopes=frozenset({"read"}))
    assert admin.has("ingest")
    assert admin.has("read")
    assert reader.has("read")
    assert not reader.has("ingest")


def test_scopes_are_parsed_and_unknown_ones_refused() -> None:
    assert parse_scopes("ingest, read") == {"ingest", "read"}
    for text in ("", "write", "read,root"):
        with pytest.raises(ConfigError):
            parse_scopes(text)


def test_tokens_are_long_random_and_only_their_hash_is_kept() -> None:
    first, second = new_token(), new_token()
    assert first != second
    assert len(first) > 43
    assert first not in token_hash(first)


@pytest.mark.parametrize(
    ("header", "name"),
    [("LocalHost:80", "localhost"), ("[::1]:8750", "[::1]"), ("a.b", "a.b"), ("", "")],
)
def test_the_host_header_is_compared_without_its_port(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("collector.example", False)],
)  # fmt: skip
def test_only_loopback_addresses_count_as_loopback(host: str, loopback: bool) -> None:
    assert CollectorSettings(host=host).loopback is loopback


def test_a_client_takes_the_token_file_only_for_a_loopback_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    monkeypatch.setenv("PACELINE_STATE_DIR", str(tmp_path))
    assert find_token("http://127.0.0.1:1") == "from-the-file"
    assert find_token("http://localhost:1") == "from-the-file"
    assert find_token("http://collector.example:1") is None
    monkeypatch.setenv("PACELINE_TOKEN", "from-the-environment")
    assert find_token("http://collector.example:1") == "from-the-environment"
