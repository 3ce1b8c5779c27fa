"""``paceline notify list|test``: who is told of incidents, and whether it arrives."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from paceline.errors import ConfigError
from paceline_service.client import Client
from paceline_service.commands.output import Format
from paceline_service.commands.remote import DEFAULT_URL, UrlOption
from paceline_service.commands.run import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, run_command, warn
from paceline_service.notify.channels.base import Channel
from paceline_service.notify.channels.build import build_channels
from paceline_service.notify.facts import Links, links_of
from paceline_service.notify.notifier import find_channel
from paceline_service.notify.trial import send_trial
from paceline_service.settings import CollectorSettings

Json = dict[str, Any]
LocalOption = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Use the settings of this environment (PACELINE_SERVE_NOTIFY_...), and send from "
        "here: no collector has to run.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
_USAGE = "usage: paceline notify list|test ... (each has --help)"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    verbs: dict[str, Callable[..., int]] = {"list": _list, "test": _test}
    if argv and argv[0] in verbs:
        return run_command(verbs[argv[0]], f"notify {argv[0]}", argv[1:])
    if argv and argv[0] in ("-h", "--help"):
        print(_USAGE)
        return EXIT_OK
    warn(f"paceline notify: {_USAGE}")
    return EXIT_BAD_INPUT


def _list(
    url: UrlOption = DEFAULT_URL, local: LocalOption = False, form: FormatOption = Format.TEXT
) -> int:
    """List the channels that messages about incidents go to. Needs the scope admin."""
    if local:
        rows = [_row(one) for one in _channels()[0]]
    else:
        rows = [dict(row) for row in Client(url).channels()]
    if form is Format.JSON:
        print(json.dumps(rows, indent=2))
        return EXIT_OK
    for row in rows:
        waits = f"  {row['waiting']} waiting" if row.get("waiting") else ""
        failed = f"  {row['failed']} failed" if row.get("failed") else ""
        print(
            f"{row['name']:<16} {row['kind']:<14} from {row['min_severity']:<7}"
            f" {row['where']}{waits}{failed}"
        )
    if not rows:
        print("no channel: docs/messages.md tells how to add one", file=sys.stderr)
    return EXIT_OK


def _test(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="As `notify list` shows it.")],
    url: UrlOption = DEFAULT_URL,
    local: LocalOption = False,
    form: FormatOption = Format.TEXT,
) -> int:
    """Send a test message to a channel, and say what became of it.

    Exit status: 0 when the receiver took it, 1 when not. Needs the scope admin.
    """
    if local:
        channels, links = _channels()
        found = find_channel(channels, channel)
        result = send_trial(found, links, time.time_ns())
        told: Json = {
            "channel": found.name, "where": found.where,
            "delivered": result.verdict == "delivered", "reason": result.reason,
        }  # fmt: skip
    else:
        told = dict(Client(url).test_channel(channel))
    if form is Format.JSON:
        print(json.dumps(told, indent=2))
    elif told["delivered"]:
        print(f"{told['channel']}: {told['where']} took the test message")
    else:
        warn(f"paceline notify test: {told['channel']}: not delivered: {told['reason']}")
    return EXIT_OK if told["delivered"] else EXIT_FINDINGS


def _channels() -> tuple[list[Channel], Links]:
    given: Json = {}
    try:
        settings = CollectorSettings(**given)
    except ValidationError as error:  # without what was given: it may be a secret
        faults = error.errors(include_input=False, include_url=False)
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults)
        raise ConfigError(f"settings: {said} (docs/configuration.md)") from error
    except SettingsError as error:
        raise ConfigError(f"settings: {error}; write lists as JSON") from error
    return build_channels(settings), links_of(settings, settings.page_url)


def _row(channel: Channel) -> Json:
    return {
        "name": channel.name,
        "kind": channel.kind,
        "where": channel.where,
        "min_severity": channel.audience.min_severity,
        "jobs": list(channel.audience.jobs),
    }
