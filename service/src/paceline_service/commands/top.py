"""``paceline top [JOB]``: a running job live in the terminal, or the list of jobs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from paceline_service.client import Client
from paceline_service.commands.remote import DEFAULT_URL, AttemptOption, UrlOption
from paceline_service.commands.run import run_command
from paceline_service.export.step_table import step_table
from paceline_service.top.feed import Feed, pending_of
from paceline_service.top.job_list import job_list
from paceline_service.top.keys import Keys, keyboard, unseen
from paceline_service.top.lanes import ASCII, UNICODE
from paceline_service.top.moment import Moment, kept_steps
from paceline_service.top.screen import VIEWS, Look, Picture, picture

FRAME_S = 0.1
"""No more than ten pictures a second: a terminal across an ocean has to follow."""
IDLE_S = 1.0
STREAM_TIMEOUT_S = 25.0
"""The collector says something every 10 s."""


class View(str, Enum):
    """Which lanes."""

    TELLING = "telling"
    NODES = "nodes"
    ALL = "all"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_top, "top", argv)


def _top(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="The job's name; without it: all jobs.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture and end; so it does in a pipe.")
    ] = False,
    view: Annotated[
        View | None,
        typer.Option(help="Lanes: of telling ranks, of nodes, of all ranks; else what fits."),
    ] = None,
) -> int:
    """Watch a job: who is slow, since when, what it costs, what to do next.

    Exit status: 0 when it was shown, whatever it says, 2 when not.
    """
    console = Console(highlight=False)
    unicode = (console.encoding or "").lower().startswith("utf")
    look = Look(view=view.value if view else None, glyphs=UNICODE if unicode else ASCII)
    if job is None:
        _print(console, job_list(Client(url), console.width))
        return 0
    if once or not console.is_terminal or console.is_dumb_terminal:
        _print_once(console, _ask(Client(url), job, attempt), look)
        return 0
    moment = _watch(console, Client(url, timeout_s=STREAM_TIMEOUT_S), job, attempt, look)
    _print_once(console, moment, look)
    return 0


def _ask(client: Client, job: str, attempt: int | None) -> Moment:
    """Return the state of a job at this moment, without its event stream."""
    with client:
        detail = client.job(job, attempt)
        report = client.report(job, detail["attempt"])
        newest = client.steps(job, detail["attempt"], limit=kept_steps(detail["world_size"]))
        pending = pending_of(client, report)
    return Moment(
        url=client.url, job=job, attempt=detail["attempt"], detail=detail, report=report,
        table=step_table(newest), pending=pending,
    )  # fmt: skip


def _print_once(console: Console, moment: Moment, look: Look) -> None:
    _print(console, picture(moment, replace(look, keys=False), console.width, None).lines)


def _print(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        # Not wrapped by rich: a command stays one line, for copying.
        console.print(line, soft_wrap=True, crop=False)


class _Suspended(Exception):
    """Ctrl-Z."""


def _watch(console: Console, client: Client, job: str, attempt: int | None, look: Look) -> Moment:
    """Show the job until it ends or somebody quits; return what was known last."""
    with _signals(), keyboard() as keys:
        feed = Feed(client, job, attempt, keys.wake)
        feed.start()
        try:
            while True:
                try:
                    with unseen(), Live(console=console, screen=True, auto_refresh=False) as live:
                        return _show(live, feed, keys, look)
                except _Suspended:
                    # The terminal is as it was; the shell has it until it lets this go on.
                    os.kill(os.getpid(), signal.SIGSTOP)
        except KeyboardInterrupt:
            return feed.moment()  # the usual way to leave, as much as q
        finally:
            feed.stop()


def _show(live: Live, feed: Feed, keys: Keys, look: Look) -> Moment:
    moment = feed.moment()
    while True:
        if not look.paused:
            moment = feed.moment()
        width, height = live.console.size
        shown = picture(moment, look, width, height)
        look = replace(look, scroll=shown.scroll)
        live.update(Group(*shown.lines[:height]), refresh=True)
        if moment.state == "ended":
            return moment
        pressed = keys.wait(FRAME_S, only_keys=True) or keys.wait(IDLE_S)
        for key in pressed:
            if key == "q":
                return moment
            look = look_after(key, look, shown)


def look_after(key: str, look: Look, shown: Picture) -> Look:
    """Return how it is looked at after a key, having seen ``shown``."""
    if key == "p":
        return replace(look, paused=not look.paused)
    if key in ("left", "right"):
        place = VIEWS.index(shown.view) + (1 if key == "right" else -1)
        return replace(look, view=VIEWS[place % len(VIEWS)], scroll=0)
    page = max(shown.rows, 1)
    move = {"up": -1, "down": 1, "page-up": -page, "page-down": page}
    if key in ("home", "end"):
        return replace(look, scroll=0 if key == "home" else shown.lanes)
    return replace(look, scroll=max(look.scroll + move.get(key, 0), 0))


@contextmanager
def _signals() -> Iterator[None]:
    """Leave the terminal as it was also when the process is told to end, or to stop (Ctrl-Z)."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def stop(number: int, _: FrameType | None) -> None:
        raise _Suspended

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signal.SIGTERM: end, signal.SIGHUP: end, signal.SIGTSTP: stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
