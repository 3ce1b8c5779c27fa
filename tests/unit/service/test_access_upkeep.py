from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from paceline.errors import ConfigError
from paceline_service.access import known as known_module
from paceline_service.access.audit import Actor, audit, entries
from paceline_service.access.parts import Access
from paceline_service.access.started import audit_settings
from paceline_service.access.tokens import Grant, new_token, token_hash
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import AuditEntry

OPS = Actor(name="ops", address="10.0.0.1")


@pytest.fixture
async def database(tmp_path: Path) -> Any:
    made = Database(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    await migrate(made)
    yield made
    await made.close()


def access_to(database: Database, tmp_path: Path, **settings: Any) -> Access:
    return Access.build(CollectorSettings(state_dir=tmp_path, **settings), database)


async def test_audit_entries_are_kept_for_as_long_as_was_asked(
    database: Database, tmp_path: Path
) -> None:
    access = access_to(database, tmp_path, audit_retention_days=10)
    async with database.write() as connection:
        for name in ("old", "new"):
            await audit(connection, OPS, "token.new", name)
        old_ns = time.time_ns() - 11 * 86_400 * 10**9
        changed = update(AuditEntry).where(AuditEntry.target == "old").values(at_wall_ns=old_ns)
        await connection.execute(changed)
    assert await access.upkeep.forget_old() == 1
    async with database.read() as connection:
        rows = await entries(connection, before_id=None, limit=10)
    assert [row.target for row in rows] == ["new"]


async def test_a_clock_that_is_ten_years_ahead_deletes_no_audit_entry(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = access_to(database, tmp_path).upkeep
    async with database.write() as connection:
        await audit(connection, OPS, "token.new", "new")
    ahead_ns = time.time_ns() + 10 * 365 * 86_400 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: ahead_ns)
    monkeypatch.setattr(upkeep._clock, "_wall_ns", time.time_ns)
    assert await upkeep.forget_old() == 0


async def test_a_change_that_fails_leaves_no_entry(database: Database) -> None:
    async def change() -> None:
        async with database.write() as connection:
            await audit(connection, OPS, "token.new", "never")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await change()
    async with database.read() as connection:
        assert await entries(connection, before_id=None, limit=10) == []


async def test_a_value_that_is_too_long_is_cut_and_says_so(database: Database) -> None:
    async with database.write() as connection:
        await audit(connection, OPS, "settings.change", "job x", new={"text": "x" * 100_000})
        (row,) = await entries(connection, before_id=None, limit=10)
    assert len(row.new) < 10_000
    assert '"chars": 100011' in row.new


async def test_a_flood_of_refusals_is_one_line_in_the_log(
    database: Database, tmp_path: Path
) -> None:
    access = access_to(database, tmp_path)
    access.guard.refused["unauthenticated"] = 5000
    access.guard.refused_from["unauthenticated"] = "203.0.113.7"
    with structlog.testing.capture_logs() as told:
        access.upkeep.tell_refused()
        access.upkeep.tell_refused()
    assert told == [
        {
            "event": "requests refused", "log_level": "warning", "reason": "unauthenticated",
            "count": 5000, "last_address": "203.0.113.7",
        }
    ]  # fmt: skip


async def test_known_tokens_serve_while_the_database_is_away(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = access_to(database, tmp_path)
    token = new_token()
    await access.tokens.add(token_hash(token), Grant(name="t", scopes=frozenset({"read"})))
    known = access.guard.tokens
    assert await known.find(token_hash(token)) is not None
    alive = database.engine
    away = Database(f"sqlite+aiosqlite:///{tmp_path / 'no' / 'such.db'}")
    database.engine = away.engine
    known.refresh()
    assert await known.find(token_hash(token)) is not None
    assert await known.find(token_hash("another")) is None
    await away.close()
    database.engine = alive


async def test_requests_do_not_wait_for_a_database_that_hangs(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = access_to(database, tmp_path)
    token = new_token()
    await access.tokens.add(token_hash(token), Grant(name="t", scopes=frozenset({"read"})))
    known = access.guard.tokens
    assert await known.find(token_hash(token)) is not None
    asked = asyncio.Event()

    async def hang() -> Any:
        asked.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(access.tokens, "fingerprint", hang)
    monkeypatch.setattr(known_module, "FRESH_S", 0.0)
    monkeypatch.setattr(known_module, "DATABASE_S", 0.5)
    first = asyncio.create_task(known.find(token_hash(token)))
    await asked.wait()
    assert await known.find(token_hash(token)) is not None, "what is known will do"
    assert not first.done()
    assert await first is not None


async def test_settings_that_were_changed_between_two_starts_are_audited_without_secrets(
    database: Database, tmp_path: Path
) -> None:
    async def started(**settings: Any) -> list[Any]:
        await audit_settings(database, CollectorSettings(state_dir=tmp_path, **settings))
        async with database.read() as connection:
            return list(await entries(connection, before_id=None, limit=10))

    (first,) = await started(token="a-secret-token-of-16")
    assert (first.action, first.old) == ("settings.start", None)
    told = json.loads(first.new)
    assert (told["token"], told["state_dir"]) == ("set", str(tmp_path))
    assert "a-secret" not in first.new
    assert await started(token="a-secret-token-of-16") == [first], "nothing was changed"
    changed = {"audit_retention_days": 30, "database": "postgresql://me:secret@db.example/p"}
    newest = (await started(token="a-secret-token-of-16", **changed))[0]
    assert json.loads(newest.old) == {"audit_retention_days": None, "database": None}
    assert json.loads(newest.new)["audit_retention_days"] == 30
    assert json.loads(newest.new)["database"] == "postgresql://***@db.example/p"


async def test_a_short_token_is_refused_beyond_loopback(database: Database, tmp_path: Path) -> None:
    access = access_to(database, tmp_path, host="0.0.0.0", token="x" * 15)
    with pytest.raises(ConfigError, match="at least 16"):
        await access.start()


async def test_what_was_bound_is_not_in_the_text_of_a_database_error(database: Database) -> None:
    row = {"at_wall_ns": 1, "actor": "a", "address": "b", "action": "a-secret-value"}

    async def fail() -> None:
        async with database.write() as connection:
            await connection.execute(insert(AuditEntry).values(row))

    with pytest.raises(IntegrityError) as caught:
        await fail()
    assert "a-secret-value" not in str(caught.value)
