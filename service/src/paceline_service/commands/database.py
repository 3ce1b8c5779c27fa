"""``paceline database status|upgrade|downgrade|copy``: the collector's database, by hand."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import structlog
import typer
from sqlalchemy import func, select

from paceline.errors import ConfigError
from paceline_service.commands.output import Format
from paceline_service.commands.run import EXIT_BAD_INPUT, EXIT_OK, run_command, warn
from paceline_service.settings import CollectorSettings
from paceline_service.store.copy import LEFT_OUT, copy_all
from paceline_service.store.database import Database
from paceline_service.store.migrate import Revision, find_revision, migrate, take_back
from paceline_service.store.models import Base
from paceline_service.store.trouble import told_in_words

Json = dict[str, Any]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        help="Else PACELINE_SERVE_DATABASE, else the SQLite file in PACELINE_STATE_DIR.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
_USAGE = "usage: paceline database status|upgrade|downgrade|copy ... (each has --help)"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    verbs: dict[str, Callable[..., int]] = {
        "status": _status, "upgrade": _upgrade, "downgrade": _downgrade, "copy": _copy,
    }  # fmt: skip
    if argv and argv[0] in verbs:
        os.umask(0o077)  # a database that is made here is its user's alone
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return run_command(verbs[argv[0]], f"database {argv[0]}", argv[1:])
    if argv and argv[0] in ("-h", "--help"):
        print(_USAGE)
        return EXIT_OK
    warn(f"paceline database: {_USAGE}")
    return EXIT_BAD_INPUT


def _status(database: DatabaseOption = "", form: FormatOption = Format.TEXT) -> int:
    """Say which schema the database has, and how many rows its tables hold."""
    told = asyncio.run(_look(_url(database)))
    if form is Format.JSON:
        print(json.dumps(told, indent=2))
        return EXIT_OK
    print(f"{told['database']}: schema {told['schema']}, this program's is {told['newest']}")
    for name, rows in told["rows"].items():
        print(f"{rows:>12}  {name}")
    return EXIT_OK


def _upgrade(database: DatabaseOption = "") -> int:
    """Bring the schema to that of this program, as the start of the collector does."""
    before, after = asyncio.run(_move(_url(database), migrate))
    print(f"schema {before.present} -> {after.present}")
    return EXIT_OK


def _downgrade(
    to: Annotated[str, typer.Option("--to", metavar="REVISION", help="For example 0003.")],
    database: DatabaseOption = "",
) -> int:
    """Take the schema back to that of an older program. The collector has to be stopped."""

    async def work(one: Database) -> None:
        await take_back(one, to)

    before, after = asyncio.run(_move(_url(database), work))
    print(f"schema {before.present} -> {after.present}")
    return EXIT_OK


def _copy(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="An empty database.")],
    database: DatabaseOption = "",
) -> int:
    """Copy everything into another database. The collector has to be stopped."""

    async def work() -> None:
        async with _claimed(_url(database)) as source, _claimed(_url(to)) as target:
            if (await find_revision(source)).present is None:
                raise ConfigError(f"{source.url.render_as_string()} has no tables to copy")
            await migrate(source)
            await migrate(target)
            await copy_all(source, target, lambda name, rows: print(f"{rows:>12}  {name}"))

    asyncio.run(work())
    print(f"left out: {', '.join(sorted(LEFT_OUT))}", file=sys.stderr)
    return EXIT_OK


def _url(database: str) -> str:
    given: Json = {"database": database} if database else {}
    try:
        return CollectorSettings(**given).database_url
    except ValueError as error:
        raise ConfigError(f"settings: {error} (docs/configuration.md)") from error


@asynccontextmanager
async def _claimed(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        with told_in_words(database.url):
            await database.claim()
            await find_revision(database)
        yield database
    finally:
        await database.close()


async def _move(url: str, work: Callable[[Database], Any]) -> tuple[Revision, Revision]:
    async with _claimed(url) as database:
        before = await find_revision(database)
        await work(database)
        return before, await find_revision(database)


async def _look(url: str) -> Json:
    database = Database(url)
    if database.is_sqlite and not os.path.exists(database.url.database or ""):
        raise ConfigError(f"there is no database {database.url.database}; paceline serve makes it")
    try:
        with told_in_words(database.url):
            revision = await find_revision(database)
        rows: dict[str, int] = {}
        if revision.present == revision.newest:
            async with database.read() as connection:
                for table in Base.metadata.sorted_tables:
                    query = select(func.count()).select_from(table)
                    rows[table.name] = (await connection.execute(query)).scalar_one()
        shown = database.url.render_as_string(hide_password=True)
        return {
            "database": shown, "schema": revision.present, "newest": revision.newest, "rows": rows,
        }  # fmt: skip
    finally:
        await database.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
