"""One way to start a verb: arguments by typer, errors as one line, exit statuses in one place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import typer

from paceline.errors import PacelineError

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_INSUFFICIENT = 3
_EXIT_INTERRUPTED = 130


def run_command(function: Callable[..., Any], verb: str, argv: Sequence[str]) -> int:
    """Call ``function`` with what ``argv`` says; its int is the exit status.

    A ``PacelineError`` becomes one line on stderr and its own exit status, wrong usage 2.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(function)
    command = typer.main.get_command(app)
    name = f"paceline {verb}"
    try:
        status = command.main(args=list(argv), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except PacelineError as error:
        return _fail(name, str(error), error.exit_code)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; a second error at exit would only confuse.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        return _fail(name, str(error), EXIT_BAD_INPUT)
    return status if isinstance(status, int) else EXIT_OK


def warn(message: str) -> None:
    """Write one line to stderr, as plain as a terminal needs it."""
    sys.stderr.write("".join(c if c.isprintable() else "?" for c in message) + "\n")


def _fail(name: str, message: str, status: int) -> int:
    warn(f"{name}: {message}")
    return status
