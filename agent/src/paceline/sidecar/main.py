"""The sidecar of a node: one process that reads every ring and sends what they hold."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from paceline.errors import ConfigError, PacelineError
from paceline.ring.private import make_private
from paceline.sidecar.collector import Collector, is_loopback
from paceline.sidecar.control import Control
from paceline.sidecar.event_log import EventLogSink
from paceline.sidecar.locks import DirectoryLock
from paceline.sidecar.node import Node
from paceline.sidecar.options import Options, read_options
from paceline.sidecar.sender import Sender
from paceline.sidecar.sinks import CollectorSink, Sink
from paceline.sidecar.spool import Spool
from paceline.sidecar.telemetry.sampler import Telemetry

_log = logging.getLogger("paceline.sidecar")
LOCK_NAME = "sidecar.lock"
IDLE_GRACE_S = 1.0
"""How long no ring may be there before the last rank counts as the last."""
ORPHAN_DRAIN_S = 30.0
"""How long a sidecar whose job and starter are gone waits for a collector that may be gone too."""
_DRAIN_INTERVAL_S = 0.05
_LEFT_IN_SPOOL = "ending with unsent frames; the next sidecar sends them from the spool"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sidecar until it is told to end; return its exit status."""
    _log_to_stderr()
    try:
        options = read_options(sys.argv[1:] if argv is None else argv, os.environ)
        make_private(options.runtime_dir)
        lock = DirectoryLock(options.runtime_dir / LOCK_NAME)
        if not lock.take():
            _log.warning("another sidecar serves %s already", options.runtime_dir)
            return 0
        try:
            run(options, lock, os.environ)
        finally:
            lock.release()
    except PacelineError as error:
        _log.error("%s", error)
        return error.exit_code
    except OSError as error:
        _log.error("cannot use the runtime directory: %s; set PACELINE_RUNTIME_DIR", error)
        return ConfigError.exit_code
    return 0


def run(options: Options, lock: DirectoryLock, environ: Mapping[str, str]) -> None:
    """Follow the rings of ``options.runtime_dir`` until SIGTERM, SIGINT, or idleness."""
    stop = threading.Event()
    with _signals_set(stop), contextlib.ExitStack() as closing:
        telemetry = Telemetry(options.telemetry.roots, options.telemetry.interval_s)
        closing.callback(telemetry.close)
        control = Control(telemetry)
        sink = _make_sink(options, environ, control)
        closing.callback(sink.close)
        node = Node(options.runtime_dir, sink, options.node, telemetry, control)
        where = (options.url and "the collector") or f"event logs in {options.events_dir}"
        _log.info("serving %s for %s", options.runtime_dir, where)
        while True:
            if _follow(options, node, sink, stop):
                break
            # Whoever started a job while this sidecar was about to end found the lock taken.
            lock.release()
            node.round(time.monotonic())
            if not node.rings_followed or not lock.try_take():
                break
        if stop.is_set():
            lock.announce_stopping()
            node.flush(time.monotonic())
            _drain(options.drain_s, sink)


def _follow(options: Options, node: Node, sink: Sink, stop: threading.Event) -> bool:
    """Do rounds until told to stop (True) or idle (False)."""
    parent = os.getppid()
    busy_until_s = time.monotonic()
    while not stop.is_set():
        now_s = time.monotonic()
        node.round(now_s)
        drained = sink.drained()
        orphaned = options.exit_when_idle and os.getppid() != parent
        if node.rings_followed or not (drained or orphaned):
            busy_until_s = now_s
        # Without the process that started it, nobody will bring the first ring.
        awaited = not node.job_seen and os.getppid() == parent
        if options.job_holds_stdin:
            awaited = not _stdin_ended()
        may_end = (options.exit_when_idle and not awaited) or options.drain
        if may_end and now_s - busy_until_s >= (IDLE_GRACE_S if drained else ORPHAN_DRAIN_S):
            if not drained:
                _log.warning(_LEFT_IN_SPOOL)
            return False
        stop.wait(options.interval_s)
    return True


def _stdin_ended() -> bool:
    """Whether whoever held the other end of standard input has closed it or died."""
    try:
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(readable) and not os.read(sys.stdin.fileno(), 4096)
    except (OSError, ValueError):
        return True


def _drain(drain_s: float, sink: Sink) -> None:
    sink.hurry()
    deadline_s = time.monotonic() + drain_s
    while not sink.drained() and time.monotonic() < deadline_s:
        time.sleep(_DRAIN_INTERVAL_S)
    if not sink.drained():
        _log.warning(_LEFT_IN_SPOOL)


def _make_sink(options: Options, environ: Mapping[str, str], control: Control) -> Sink:
    if options.events_dir is not None:
        return EventLogSink(options.events_dir)
    collector = Collector(options.url, _token_source(options.url, environ))
    spool = Spool(options.spool_dir, options.spool_bytes)
    return CollectorSink(spool, Sender(spool, collector, control.take))


def _token_source(url: str, environ: Mapping[str, str]) -> Callable[[], str]:
    """Return a function that gives the token: the environment's, else a local collector's own."""
    state_dir = Path(environ.get("PACELINE_STATE_DIR") or Path.home() / ".local/share/paceline")

    def token() -> str:
        given = environ.get("PACELINE_TOKEN", "").strip()
        if given or not is_loopback(url):
            return given
        try:
            return (state_dir / "token").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    return token


@contextlib.contextmanager
def _signals_set(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_to_stderr() -> None:
    if not _log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("paceline sidecar: %(message)s"))
        _log.addHandler(handler)
        _log.setLevel(logging.INFO)
        _log.propagate = False
