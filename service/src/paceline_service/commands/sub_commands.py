"""Verbs with verbs of their own (``paceline plan gamma``), each imported only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paceline_service.commands.run import EXIT_BAD_INPUT, EXIT_OK, run_command, warn


class SubCommand(NamedTuple):
    """Where a sub-command is, and what it is for.

    Attributes:
        module: imported when it is called.
        function: takes what typer gives it and returns the exit status, as ``run_command`` wants.
        help: one line.
    """

    module: str
    function: str
    help: str


def run_sub_command(
    verb: str, about: str, table: Mapping[str, SubCommand], argv: Sequence[str]
) -> int:
    """Run the sub-command that ``argv`` begins with, and return its exit status.

    Args:
        verb: ``plan``.
        about: what all of them are for: the first line of the help.
        table: the sub-commands by name.
        argv: what stands behind the verb.
    """
    if argv and argv[0] in table:
        chosen = table[argv[0]]
        if (empty := _empty(argv[1:])) is not None:
            warn(f"paceline {verb} {argv[0]}: {empty} is empty: give a value, or leave it out")
            return EXIT_BAD_INPUT
        function = getattr(importlib.import_module(chosen.module), chosen.function)
        return run_command(function, f"{verb} {argv[0]}", argv[1:])
    if argv and argv[0] in ("-h", "--help"):
        print(_help(verb, about, table))
        return EXIT_OK
    said = f"no sub-command {argv[0]!r};" if argv else "which one?"
    warn(f"paceline {verb}: {said} there are {', '.join(table)}; `paceline {verb} --help`")
    return EXIT_BAD_INPUT


def _empty(argv: Sequence[str]) -> str | None:
    """Return the first option with an empty value: a variable of a script that is not set."""
    for before, word in zip(["", *argv], argv, strict=False):
        if not word:
            return before or "an argument"
        if word.startswith("--") and word.endswith("="):
            return word.removesuffix("=")
    return None


def _help(verb: str, about: str, table: Mapping[str, SubCommand]) -> str:
    lines = [f"usage: paceline {verb} COMMAND ...", "", about, "", "commands:"]
    lines += [f"  {name:12} {sub.help}" for name, sub in table.items()]
    return "\n".join([*lines, "", f"`paceline {verb} COMMAND --help` tells more."])
