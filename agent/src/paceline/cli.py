"""The command ``paceline``: run, sidecar and doctor, and what other distributions add to it.

A distribution adds subcommands by the entry-point group ``paceline.commands``: each is a
callable that takes the arguments after its name and returns the exit status; the first line
of its docstring is its help.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from paceline import __version__
from paceline.errors import PacelineError

GROUP = "paceline.commands"
Command = Callable[[Sequence[str]], int]


class Done(int):
    """An exit status of a command that leaves nothing behind: its process may end at once.

    Python takes modules apart before it ends, for longer than some answers take to make.
    """


_OWN = {
    "run": ("paceline.run.command", "Run a job, instrumented, with no change to its code."),
    "sidecar": ("paceline.sidecar.main", "Send what the ranks of this node record to a collector."),
    "doctor": (
        "paceline.doctor",
        "Say what of Paceline works here, and what to do about the rest.",
    ),
}
_USAGE = "usage: paceline [--help] [--version] COMMAND ..."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status.

    Args:
        argv: its name and what follows; None takes those of the process, which may end here.
    """
    status = _run(list(sys.argv[1:] if argv is None else argv))
    if argv is None and isinstance(status, Done):
        _end_at_once(status)
    return status


def _end_at_once(status: int) -> None:
    """End the process, unless something looks on or what was written has no reader."""
    if sys.getprofile() is not None or sys.gettrace() is not None or sys.flags.inspect:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # Python tells of it as ever
    os._exit(status)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        print(f"paceline {__version__}")
        return 0
    try:
        command = find_command(name)
        if command is None:
            known = ", ".join([*_OWN, *added_commands()])
            print(f"paceline: no command {name!r}; there are {known}", file=sys.stderr)
            return 2
        return command(rest)
    except PacelineError as error:
        print(f"paceline {name}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 141  # as if SIGPIPE had ended us
    except KeyboardInterrupt:
        return 130


def find_command(name: str) -> Command | None:
    """Return the subcommand ``name``; None where no installed distribution has it."""
    if name in _OWN:
        own: Command = importlib.import_module(_OWN[name][0]).main
        return own
    load = _own_distribution(name) or added_commands().get(name)
    return None if load is None else load()


def _own_distribution(name: str) -> Callable[[], Command] | None:
    """Return what a distribution whose name begins like this one's adds, else None.

    ``importlib.metadata`` finds the same and takes longer to import than many answers take.
    """
    for directory in sys.path:
        try:
            found = [entry for entry in os.listdir(directory or ".") if _is_own(entry)]
        except OSError:
            continue
        for entry in sorted(found):
            try:
                with open(os.path.join(directory, entry, "entry_points.txt"), "rb") as file:
                    target = _target_of(name, file.read().decode(errors="replace"))
            except OSError:
                continue
            if target is not None:
                return functools.partial(_load, *target)
    return None


def _is_own(entry: str) -> bool:
    return entry.startswith("paceline") and entry.endswith(".dist-info")


def _target_of(name: str, entry_points: str) -> tuple[str, str] | None:
    """Return module and attribute of a command from the text of a distribution's entry points."""
    section = ""
    for line in entry_points.splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line:
            key, _, value = line.partition("=")
            module, _, attribute = value.strip().partition(":")
            if key.strip() == name and attribute.isidentifier():
                return module, attribute
    return None


def _load(module: str, attribute: str) -> Command:
    command: Command = getattr(importlib.import_module(module), attribute)
    return command


def added_commands() -> Mapping[str, Callable[[], Command]]:
    """Return the subcommands of other distributions by name, not loaded yet."""
    from importlib.metadata import entry_points

    return {
        point.name: point.load
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)
        if point.name not in _OWN
    }


def _help() -> str:
    lines = [_USAGE, "", "Names the rank that slows a distributed training job.", "", "commands:"]
    for name, (_, line) in _OWN.items():
        lines.append(f"  {name:10} {line}")
    for name, load in added_commands().items():
        lines.append(f"  {name:10} {_first_line(load)}")
    lines += ["", "`paceline COMMAND --help` tells more."]
    return "\n".join(lines)


def _first_line(load: Callable[[], Command]) -> str:
    try:
        text = load().__doc__ or ""
    except Exception as error:  # one broken distribution must not hide the others
        return f"(cannot be loaded: {error})"
    return next(iter(text.strip().splitlines()), "")


if __name__ == "__main__":
    sys.exit(main())
