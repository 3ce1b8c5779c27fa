"""One load from its start to its figures."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paceline.errors import TransportError
from paceline_service.bench.load.bodies import Bodies
from paceline_service.bench.load.figures import Json, add_stored, figures
from paceline_service.bench.load.sender import Sender, Troubles
from paceline_service.bench.load.shape import LoadShape
from paceline_service.bench.load.store import stored_bytes
from paceline_service.bench.load.watch import Watch, cpu_of
from paceline_service.client import Client
from paceline_service.demo.processes import Collector

JUDGED_S = 120.0
LEAD_S = 1.0
Say = Callable[[str], None]
Then = Callable[[Client, int], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to: an existing collector, or one that is started (on ``database``, or SQLite)."""

    url: str = ""
    token: str = ""
    pid: int = 0
    database: str = ""


def run_load(
    shape: LoadShape,
    troubles: Troubles,
    target: Target,
    say: Say = lambda text: None,
    then: Then | None = None,
) -> Json:
    """Encode, send, wait for the verdict, and return the figures.

    Args:
        shape: the job.
        troubles: what goes wrong on the way.
        target: where to.
        say: told how far it is.
        then: asked for more figures before the collector is stopped, with a client and its pid.

    Raises:
        TransportError: there is no collector, or it gave up.
        InputError: the disk has no room for the frames.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paceline-load-")))
        collector = None
        if target.url:
            url, token, pid = target.url, target.token, target.pid
        else:
            collector = _start(directory, target.database)
            stack.callback(collector.close)
            url, token, pid = collector.url, collector.token, collector.pid
        bodies = Bodies(shape, directory, time.time_ns())
        stack.callback(bodies.close)
        say(f"encoding {bodies.frames:,} frames ...")
        encode_s = bodies.encode()
        say(f"{bodies.total_bytes / 1e6:,.0f} MB in {encode_s:.1f} s; sending ...")
        before_bytes = stored_bytes(directory, target.database) if collector else 0
        found = _measure(bodies, troubles, url, token, pid)
        found["encoding_cpu_s"] = round(encode_s, 3)
        if then is not None:
            found.update(then(Client(url, token, timeout_s=60.0), pid))
        if collector is not None:
            collector.close()  # what waits is written, and the write-ahead log is folded in
            add_stored(found, stored_bytes(directory, target.database) - before_bytes)
    return found


def _measure(bodies: Bodies, troubles: Troubles, url: str, token: str, pid: int) -> Json:
    shape = bodies.shape
    watch = Watch(url, token, shape, pid)
    watch.check()
    sender = Sender(bodies, _address(url), token, troubles)
    before_cpu_s = cpu_of(pid)
    watch.start()
    try:
        sent = sender.run(time.monotonic() + (LEAD_S if shape.rate else 0.0))
        judged = watch.wait_until_judged(shape.steps, JUDGED_S)
        judged_s = time.monotonic() - sent.began_s
        collector_cpu_s = cpu_of(pid) - before_cpu_s
    finally:
        watch.stop()
        sender.close()
    if not watch.seen.judged:
        raise TransportError(f"no step was judged within {JUDGED_S:.0f} s of the last frame")
    if judged:
        judged_s = watch.seen.judged[-1][0] - sent.began_s
    return figures(
        bodies, sent, watch.seen, watch.report(), collector_cpu_s=collector_cpu_s, judged_s=judged_s
    )


def _start(directory: Path, database: str) -> Collector:
    settings = {"PACELINE_SERVE_DATABASE": database} if database else {}
    return Collector(directory, os.environ, secrets.token_urlsafe(24), settings=settings)


def _address(url: str) -> tuple[str, int]:
    """Return an address of the collector, looked up once."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise TransportError(f"{url!r}: the load generator speaks plain http://host:port only")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TransportError(f"{url}: {error}") from error
    host, port = found[0][4][:2]
    return str(host), int(port)
