"""``paceline tokens list|new|revoke``: who may talk to a collector."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import structlog
import typer

from paceline.errors import ConfigError
from paceline_service.access import local
from paceline_service.access.service import make_grant
from paceline_service.client import Client
from paceline_service.commands.output import Format
from paceline_service.commands.remote import DEFAULT_URL, UrlOption
from paceline_service.commands.run import EXIT_BAD_INPUT, EXIT_OK, run_command, warn
from paceline_service.settings import CollectorSettings

Json = dict[str, Any]
LocalOption = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Work on the database itself (PACELINE_STATE_DIR or PACELINE_SERVE_DATABASE): no "
        "collector has to run.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
_USAGE = "usage: paceline tokens list|new|revoke ... (each has --help)"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    verbs: dict[str, Callable[..., int]] = {"list": _list, "new": _new, "revoke": _revoke}
    if argv and argv[0] in verbs:
        return run_command(verbs[argv[0]], f"tokens {argv[0]}", argv[1:])
    if argv and argv[0] in ("-h", "--help"):
        print(_USAGE)
        return EXIT_OK
    warn(f"paceline tokens: {_USAGE}")
    return EXIT_BAD_INPUT


def _list(
    url: UrlOption = DEFAULT_URL,
    at_database: LocalOption = False,
    every: Annotated[bool, typer.Option("--all", help="Revoked and expired ones too.")] = False,
    form: FormatOption = Format.TEXT,
) -> int:
    """List tokens: numbers, names, scopes, when they were used last. Needs the scope admin."""
    rows = asyncio.run(local.list_local_tokens(_database())) if at_database else _listed(url)
    rows = [row for row in rows if every or row["state"] == "usable"]
    if form is Format.JSON:
        print(json.dumps(rows, indent=2))
        return EXIT_OK
    for row in rows:
        print(_line(row))
    if not rows:
        print("no token", file=sys.stderr)
    return EXIT_OK


def _new(
    scopes: Annotated[str, typer.Argument(metavar="SCOPES", help="Of ingest,read,admin.")],
    url: UrlOption = DEFAULT_URL,
    at_database: LocalOption = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="For lists and the audit log.")] = "",
    job_prefix: Annotated[
        str, typer.Option("--job-prefix", metavar="P", help="Only jobs P, P-x, P.x, P_x.")
    ] = "",
    expires_days: Annotated[
        float | None, typer.Option(metavar="D", min=0.0, help="Else it never expires.")
    ] = None,
    requests_per_s: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, help="Else as the collector is set.")
    ] = None,
    bytes_per_s: Annotated[
        float | None, typer.Option(metavar="N", min=1.0, help="Else as the collector is set.")
    ] = None,
    form: FormatOption = Format.TEXT,
) -> int:
    """Make a token and print it: this once, it is not stored. Needs the scope admin."""
    wanted: Json = {
        "scopes": [part.strip() for part in scopes.split(",") if part.strip()],
        "name": name,
        "job_prefix": job_prefix,
        "expires_in_s": expires_days * 86_400 if expires_days is not None else None,
        "requests_per_s": requests_per_s,
        "bytes_per_s": bytes_per_s,
    }
    grant = make_grant(**wanted)  # what makes no sense is said without asking anybody
    if at_database:
        made = asyncio.run(local.make_local_token(_database(), grant))
    else:
        made = Client(url).post_json("/v1/tokens", wanted)
    print(json.dumps(made, indent=2) if form is Format.JSON else made["token"])
    return EXIT_OK


def _revoke(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="As `tokens list` shows it.")],
    url: UrlOption = DEFAULT_URL,
    at_database: LocalOption = False,
    form: FormatOption = Format.TEXT,
) -> int:
    """Revoke a token for ever. Needs the scope admin."""
    if at_database:
        row = asyncio.run(local.revoke_local_token(_database(), number))
    else:
        row = Client(url).delete_json(f"/v1/tokens/{number}")
    if form is Format.JSON:
        print(json.dumps(row, indent=2))
    elif row["state"] == "revoked":
        print(f"token {row['id']} ({row['name']}) was revoked before")
    else:
        print(f"token {row['id']} ({row['name']}) is revoked")
    return EXIT_OK


def _database() -> str:
    os.umask(0o077)  # a database that is made here is its user's alone
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    given: Json = {}
    try:
        return CollectorSettings(**given).database_url
    except ValueError as error:
        raise ConfigError(f"settings: {error} (docs/configuration.md)") from error


def _listed(url: str) -> list[Json]:
    rows: list[Json] = []
    after: int | None = 0
    with Client(url) as client:
        while after is not None:
            page = client.get_json("/v1/tokens", after=after)
            rows += page["tokens"]
            after = page["next_after"]
    return rows


def _line(row: Json) -> str:
    parts = [
        f"{row['id']:>4}  {row['state']:<8}{','.join(row['scopes']):<18}",
        f"{row['job_prefix'] or 'all jobs':<20} used {_day(row['last_used_wall_ns']):<17}",
        f"expires {_day(row['expires_wall_ns']):<17} {row['name']}",
    ]
    return " ".join(parts)


def _day(wall_ns: int | None) -> str:
    if wall_ns is None:
        return "never"
    return time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(wall_ns / 1e9))
