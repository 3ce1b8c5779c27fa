from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline_service.client import Client, ProblemError
from paceline_service.commands.tokens import main as tokens_verb
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    RankSender,
    wait_until,
)

pytestmark = pytest.mark.integration
GIVEN_INGEST, GIVEN_READ = "given-to-sidecars", "given-to-prometheus"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """Beyond loopback: reads need a token too."""
    directory = tmp_path_factory.mktemp("secured") / "state"
    process = CollectorProcess(
        directory,
        PACELINE_SERVE_HOST="0.0.0.0",
        PACELINE_SERVE_INGEST_TOKEN=GIVEN_INGEST,
        PACELINE_SERVE_READ_TOKEN=GIVEN_READ,
    ).start()
    process.url = process.url.replace("0.0.0.0", "127.0.0.1")
    yield process
    assert process.stop() == 0


def made(collector: CollectorProcess, scopes: list[str], **values: Any) -> dict[str, Any]:
    return collector.client().post_json("/v1/tokens", {"scopes": scopes, **values})


def status(client: Client, path: str = "/v1/jobs") -> int:
    try:
        client.get_json(path)
    except ProblemError as error:
        return error.status
    return 200


def refused(collector: CollectorProcess, reason: str) -> float:
    text = b"".join(collector.client().stream("/metrics")).decode()
    line = rf'^paceline_access_refused_total{{reason="{reason}"}} (.*)$'
    return sum(float(value) for value in re.findall(line, text, re.MULTILINE))


def frame_of(job: str) -> bytes:
    return RankSender(rank=0, world_size=1, groups=[("dp0", (0,))], job=job).frame([])


def tokens_command(collector: CollectorProcess, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "paceline", "tokens", *arguments]
    return subprocess.run(
        command, env=collector.environ(), capture_output=True, text=True, timeout=60, check=False
    )


def test_a_token_is_shown_once_and_works_until_it_is_revoked(secured: CollectorProcess) -> None:
    answer = made(secured, ["read"], name="a dashboard")
    reader = secured.client(answer["token"])
    assert status(reader) == 200
    assert status(secured.client("plt_unknown")) == 401
    listed = {row["id"]: row for row in secured.client().get_json("/v1/tokens")["tokens"]}
    assert listed[answer["id"]]["name"] == "a dashboard"
    assert listed[answer["id"]]["state"] == "usable"
    assert answer["token"] not in json.dumps(listed)
    assert secured.client().delete_json(f"/v1/tokens/{answer['id']}")["state"] == "usable"
    assert status(reader) == 401, "the very next request is refused"
    again = secured.client().delete_json(f"/v1/tokens/{answer['id']}")
    assert again["state"] == "revoked"


def test_tokens_of_the_settings_have_one_scope_each(secured: CollectorProcess) -> None:
    sidecar, prometheus = secured.client(GIVEN_INGEST), secured.client(GIVEN_READ)
    assert sidecar.post_frames(frame_of("given"))["accepted"] == 1
    assert status(prometheus) == 200
    assert status(sidecar) == 403
    with pytest.raises(ProblemError, match=r"PACELINE_SERVE_READ_TOKEN.* has scopes read"):
        prometheus.post_frames(frame_of("given"))
    for client in (sidecar, prometheus):
        assert status(client, "/v1/tokens") == 403


@pytest.mark.parametrize(
    ("given", "words"),
    [("short", "INGEST_TOKEN has 5 characters"), (TOKEN, "not all different")],
)
def test_collector_does_not_start_with_a_token_that_is_no_good(
    tmp_path: Path, given: str, words: str
) -> None:
    process = CollectorProcess(
        tmp_path, PACELINE_SERVE_HOST="0.0.0.0", PACELINE_SERVE_INGEST_TOKEN=given
    )
    done = subprocess.run(
        process.command(), env=process.environ(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert words in done.stderr


def test_only_the_hash_of_a_token_is_on_disk(secured: CollectorProcess) -> None:
    token = made(secured, ["read"])["token"]
    for path in secured.directory.iterdir():
        assert token.encode() not in path.read_bytes(), path


def test_scopes_hold_on_every_route_of_administrators(secured: CollectorProcess) -> None:
    reader = secured.client(made(secured, ["read"])["token"])
    sender = secured.client(made(secured, ["ingest"])["token"])
    for client in (reader, sender):
        assert status(client, "/v1/tokens") == 403
        assert status(client, "/v1/audit") == 403
        with pytest.raises(ProblemError, match="needs admin"):
            client.post_json("/v1/tokens", {"scopes": ["admin"]})
        with pytest.raises(ProblemError, match="needs admin"):
            client.delete_json("/v1/tokens/1")
    assert status(sender) == 403
    with pytest.raises(ProblemError, match="needs ingest"):
        reader.post_frames(frame_of("train"))


def test_a_token_of_a_prefix_sends_reads_and_administers_within_it_only(
    secured: CollectorProcess,
) -> None:
    before = refused(secured, "forbidden")
    answer = made(secured, ["admin"], job_prefix="team-a")
    chief = secured.client(answer["token"])
    assert chief.post_frames(frame_of("team-a.llm"))["accepted"] == 1
    with pytest.raises(ProblemError, match="prefix"):
        chief.post_frames(frame_of("team-ab"))
    assert status(chief, "/v1/jobs/team-b") == 403
    assert status(chief, "/metrics") == 403
    assert status(chief, "/v1/audit") == 403
    for beyond in ("", "team", "team-b", "team-ab"):
        with pytest.raises(ProblemError, match="beyond"):
            chief.post_json("/v1/tokens", {"scopes": ["read"], "job_prefix": beyond})
    with pytest.raises(ProblemError, match="name one of them"):
        chief.post_json("/v1/silences", {"node": "node-a", "for_s": 60})
    assert refused(secured, "forbidden") == before + 8, "each of these was counted"
    within = chief.post_json("/v1/tokens", {"scopes": ["read"], "job_prefix": "team-a.llm"})
    assert status(secured.client(within["token"]), "/v1/jobs/team-a.llm") == 200
    others = made(secured, ["read"], job_prefix="team-b")
    with pytest.raises(ProblemError) as caught:
        chief.delete_json(f"/v1/tokens/{others['id']}")
    assert caught.value.status == 404
    assert status(secured.client(others["token"]), "/v1/jobs") == 200, "it was not revoked"
    revoked = [line for line in secured.log.read_text().splitlines() if "token.revoke" in line]
    assert not any(f"token {others['id']} " in line for line in revoked), "nor is that logged"
    listed = {row["job_prefix"] for row in chief.get_json("/v1/tokens")["tokens"]}
    assert listed == {"team-a", "team-a.llm"}


def test_what_is_open_tells_nothing_of_jobs_or_hosts(secured: CollectorProcess) -> None:
    nobody = secured.client("")
    assert nobody.get_json("/healthz") == {"ok": True}
    assert set(nobody.get_json("/readyz")) == {"ready", "checks", "failing"}
    assert "last_commit_error" in secured.client().get_json("/readyz")
    assert status(nobody) == status(nobody, "/metrics") == status(nobody, "/v1/offenders") == 401


def test_a_token_expires(secured: CollectorProcess) -> None:
    answer = made(secured, ["read"], expires_in_s=0.5)
    wait_until(lambda: status(secured.client(answer["token"])) == 401)
    listed = secured.client().get_json("/v1/tokens", after=answer["id"] - 1, limit=1)
    assert listed["tokens"][0]["state"] == "expired"
    assert listed["next_after"] == answer["id"]


def test_a_token_that_asks_for_too_much_is_told_to_wait_and_is_counted(
    secured: CollectorProcess,
) -> None:
    answer = made(secured, ["ingest", "read"], requests_per_s=0.5)
    client = secured.client(answer["token"])
    assert status(client) == 200
    with pytest.raises(ProblemError, match=r"0\.5 requests per second") as caught:
        client.get_json("/v1/jobs")
    assert caught.value.status == 429
    assert caught.value.retry_after_s == 2
    assert caught.value.problem["type"].endswith(":rate-limited")
    greedy = secured.client(made(secured, ["ingest"], bytes_per_s=16)["token"])
    body = frame_of("greedy")
    assert len(body) > 32
    assert greedy.post_frames(body)["accepted"] == 1, "one is always taken"
    with pytest.raises(ProblemError, match="16 bytes per second"):
        greedy.post_frames(body)
    text = b"".join(secured.client().stream("/metrics")).decode()
    assert 'paceline_access_refused_total{reason="rate_requests"} 1.0' in text
    assert 'paceline_access_refused_total{reason="rate_bytes"} 1.0' in text


def test_what_makes_no_sense_is_refused_by_name(secured: CollectorProcess) -> None:
    for wanted in (
        {"scopes": []},
        {"scopes": ["root"]},
        {"scopes": ["read"], "job_prefix": "a b"},
        {"scopes": ["read"], "expires_in_s": -1},
        {"scopes": ["read"], "unknown": 1},
    ):
        with pytest.raises(ProblemError) as caught:
            secured.client().post_json("/v1/tokens", wanted)
        assert caught.value.status == 422, wanted


def test_the_audit_log_tells_who_did_what_from_where(secured: CollectorProcess) -> None:
    answer = made(secured, ["read"], name="audited")
    secured.client().delete_json(f"/v1/tokens/{answer['id']}")
    client = secured.client()
    page = client.get_json("/v1/audit", limit=2)
    revoked, new = page["entries"]
    assert (revoked["action"], new["action"]) == ("token.revoke", "token.new")
    assert new["actor"] == "PACELINE_TOKEN"
    assert new["address"] == "127.0.0.1"
    assert new["target"] == revoked["target"] == f"token {answer['id']} (audited)"
    assert new["old"] is None
    assert new["new"]["scopes"] == ["read"]
    assert revoked["old"]["name"] == "audited"
    older = client.get_json("/v1/audit", before=page["next_before"])["entries"]
    assert all(entry["id"] < new["id"] for entry in older)
    assert answer["token"] not in json.dumps(page)
    log = secured.log.read_text()
    assert "token.revoke" in log
    assert answer["token"] not in log
    assert TOKEN not in log


def test_the_command_makes_lists_and_revokes_over_the_api(
    secured: CollectorProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", TOKEN)
    monkeypatch.setenv("PACELINE_URL", secured.url)

    def said(*arguments: str, exit_status: int = 0) -> str:
        assert tokens_verb(arguments) == exit_status
        captured = capsys.readouterr()
        return captured.out if exit_status == 0 else captured.err

    token = said("new", "read", "--name", "by command", "--expires-days", "1").strip()
    assert status(secured.client(token)) == 200
    rows = json.loads(said("list", "--format", "json"))
    number = next(row["id"] for row in rows if row["name"] == "by command")
    assert "by command" in said("list")
    assert f"token {number} (by command) is revoked" in said("revoke", str(number))
    assert "was revoked before" in said("revoke", str(number))
    assert status(secured.client(token)) == 401
    assert "by command" not in said("list")
    assert "revoked" in said("list", "--all")
    assert "no token 999999" in said("revoke", "999999", exit_status=2)
    assert "not of ingest, read, admin" in said("new", "root", exit_status=2)
    assert "usage" in said(exit_status=2)


def test_the_command_works_beside_a_collector_on_its_database(secured: CollectorProcess) -> None:
    made_here = tokens_command(secured, "new", "read", "--local")
    token = made_here.stdout.strip()
    wait_until(lambda: status(secured.client(token)) == 200)
    row = secured.client().get_json("/v1/tokens", limit=1000)["tokens"][-1]
    assert row["created_by"].startswith("local user")
    assert "is revoked" in tokens_command(secured, "revoke", str(row["id"]), "--local").stdout
    wait_until(lambda: status(secured.client(token)) == 401)


def test_a_collector_beyond_loopback_does_not_start_without_a_token(tmp_path: Path) -> None:
    bare = CollectorProcess(tmp_path / "state", PACELINE_TOKEN="")
    process = bare.spawn("--host", "0.0.0.0")
    assert process.wait(60) == 2
    assert "needs a token, and there is none" in bare.log.read_text()
    assert "paceline tokens new" in bare.log.read_text()
    assert tokens_command(bare, "new", "admin", "--local").returncode == 0
    bare.start("--host", "0.0.0.0")
    assert bare.stop() == 0


def test_when_tokens_were_used_is_stored_at_the_end_and_a_revoked_first_token_stays_away(
    tmp_path: Path,
) -> None:
    alone = CollectorProcess(tmp_path / "state", PACELINE_TOKEN="").start()
    token = (alone.directory / "token").read_text().strip()
    client = alone.client(token)
    assert client.get_json("/v1/tokens")["tokens"][0]["last_used_wall_ns"] is None
    client.delete_json("/v1/tokens/1")
    assert alone.stop() == 0
    used = alone.rows("SELECT last_used_wall_ns, revoked_wall_ns FROM tokens")
    assert used[0][0]
    assert used[0][1]
    alone.start()
    assert (alone.directory / "token").read_text().strip() != token
    assert status(alone.client(token), "/v1/tokens") == 401
    assert os.stat(alone.directory / "token").st_mode & 0o777 == 0o600
    assert alone.stop() == 0


def test_tokens_and_their_audit_are_the_same_on_postgresql(
    postgres_url: str, tmp_path: Path
) -> None:
    collector = CollectorProcess(tmp_path / "state", database_url=postgres_url).start()
    answer = made(collector, ["read"], name="on postgresql", expires_in_s=3600)
    reader = collector.client(answer["token"])
    assert status(reader, "/v1/jobs") == 200
    assert tokens_command(collector, "revoke", str(answer["id"]), "--local").returncode == 0
    wait_until(lambda: status(reader, "/v1/jobs") == 401)
    entries = collector.client().get_json("/v1/audit")["entries"]
    assert [entry["action"] for entry in entries] == [
        "token.revoke", "token.new", "settings.start",
    ]  # fmt: skip
    assert collector.stop() == 0
    (row,) = collector.rows("SELECT last_used_wall_ns, revoked_wall_ns FROM tokens")
    assert all(row)
