"""One way to start a verb: arguments by typer, errors as one line, exit statuses in one place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence

from paceline.errors import PacelineError

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_INSUFFICIENT = 3
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def run_command(function: Callable[..., int], verb: str, argv: Sequence[str]) -> int:
    """Call ``function`` with what ``argv`` says, and return the exit status that it returns.

    A ``PacelineError`` becomes one line on stderr and its own exit status, wrong usage 2.
    """
    import typer  # takes as long to import as some answers take

    name = f"paceline {verb}"
    status = EXIT_OK

    @functools.wraps(function)
    def guarded(*args: object, **options: object) -> None:
        nonlocal status
        status = guarded_call(name, functools.partial(function, *args, **options))

    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(guarded)
    try:
        # Typer's own way out; which exceptions it would raise otherwise depends on its version.
        typer.main.get_command(app).main(args=list(argv), prog_name=name)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) and stop.code else status
    return status


def guarded_call(name: str, call: Callable[[], int]) -> int:
    """Return the exit status of ``call``; what it raises becomes one line on stderr."""
    try:
        status = call()
        sys.stdout.flush()
    except PacelineError as error:
        return _fail(name, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; a second error at exit would only confuse.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except OSError as error:
        return _fail(name, str(error), EXIT_BAD_INPUT)
    return status


def warn(message: str) -> None:
    """Write one line to stderr, as plain as a terminal needs it."""
    sys.stderr.write("".join(c if c.isprintable() else "?" for c in message) + "\n")


def _fail(name: str, message: str, status: int) -> int:
    warn(f"{name}: {message}")
    return status
