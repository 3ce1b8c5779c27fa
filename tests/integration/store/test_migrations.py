"""Every migration, forward and back, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from paceline_service.errors import DatabaseVersionError
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Base
from tests.integration.store.kit import contents, fill, move, revisions, shape


async def test_every_migration_is_taken_back_and_applied_again_with_rows_in_every_table(
    empty: Database,
) -> None:
    shapes: dict[str, Any] = {}
    for revision in revisions():
        await move(empty, revision)
        shapes[revision] = await shape(empty)
        await fill(empty)
    newest = await contents(empty)
    assert all(len(rows) == 1 for name, rows in newest.items() if name != "stored_sizes")
    for revision in revisions()[-2::-1]:
        await move(empty, revision)
        assert await shape(empty) == shapes[revision], revision
    oldest = await contents(empty)
    for name, rows in oldest.items():
        assert [
            kept.items() <= {**row}.items() for kept, row in zip(rows, newest[name], strict=True)
        ]
    for revision in revisions()[1:]:
        await move(empty, revision)
        assert await shape(empty) == shapes[revision], revision
    again = await contents(empty)
    assert {name: again[name] for name in oldest} == {name: newest[name] for name in oldest}
    await move(empty, "base")
    assert set(await shape(empty)) == {"alembic_version"}


async def test_the_schema_is_what_the_models_say(empty: Database) -> None:
    await migrate(empty)

    def differences(connection: Connection) -> list[Any]:
        options = {"compare_type": True, "include_object": _is_of_the_models}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))

    async with empty.read() as connection:
        found = await connection.run_sync(differences)
    if not empty.is_sqlite:  # a key over all partitions would have to name what cuts them
        found = [one for one in found if one[1].name != "uq_frames_incarnation_id_frame_seq"]
    assert found == []


async def test_a_database_of_a_newer_program_is_refused_with_the_remedy(empty: Database) -> None:
    await migrate(empty)
    async with empty.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseVersionError, match=r"9999.*Install that version") as caught:
        await migrate(empty)
    assert revisions()[-1] in str(caught.value)


def _is_of_the_models(
    _object: object, name: str | None, kind: str, reflected: bool, _other: object
) -> bool:
    """Partitions are made while the collector runs."""
    return not (kind == "table" and reflected and name not in Base.metadata.tables)
