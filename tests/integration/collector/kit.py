"""A real collector process, and real frames of simulated ranks to send to it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.ranks import format_ranks
from paceline.vocabulary import RecordKind
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef, Sample
from paceline_service.client import Client, ProblemError
from paceline_service.store.frames import with_head
from tests.integration import postgres
from tests.simulator.job import Simulated

TOKEN = "a-token-of-the-tests-0123456789"
STEP_COLUMN = 4


class CollectorProcess:
    """``paceline serve`` on a free port, with its state in a directory of the test.

    ``database_url`` names a PostgreSQL database (``tests/integration/postgres.py``) instead of
    the SQLite file in the directory.
    """

    def __init__(
        self, directory: Path, *, database_url: str | None = None, **environment: str
    ) -> None:
        self.directory = directory
        self.environment = {"PACELINE_TOKEN": TOKEN, **environment}
        self.database_url = database_url
        if database_url is not None:
            self.environment["PACELINE_SERVE_DATABASE"] = database_url
        self.database = directory / "paceline.db"
        self.log = directory / "collector.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self, *arguments: str) -> CollectorProcess:
        """Start it, and return when it listens."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        self.process = self.spawn("--ready-file", str(ready), *arguments)
        wait_until(lambda: ready.exists() or self.process.poll() is not None, 60)
        assert ready.exists(), self.log.read_text()
        told = json.loads(ready.read_text())
        assert told["pid"] == self.process.pid
        self.url = told["url"]
        return self

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "paceline_service.serve", "--port", "0", *arguments]

    def environ(self) -> dict[str, str]:
        """Return the environment of the process."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
        return {**kept, "PACELINE_STATE_DIR": str(self.directory), **self.environment}

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it, and return at once."""
        self.directory.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command(*arguments), env=self.environ(), stderr=log, stdout=log
            )

    def client(self, token: str = TOKEN) -> Client:
        """Return a client with that token."""
        return Client(self.url, token, timeout_s=20)

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """Ask it to stop, and return its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what the database says, read from outside."""
        if self.database_url is not None:
            return postgres.rows(self.database_url, query, *values)
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def stored(self) -> list[tuple[bytes, str]]:
        """Return every stored frame as it came, and its number within its incarnation."""
        return stored_frames(self.rows(STORED))


STORED = (
    "SELECT f.body, h.head, f.incarnation_id || ':' || f.frame_seq FROM frames f "
    "LEFT JOIN frame_heads h ON h.frame_id = f.head_id"
)


def stored_frames(rows: Iterable[tuple[Any, ...]]) -> list[tuple[bytes, str]]:
    """Return what ``STORED`` tells: frames as they came, and their numbers."""
    return [(with_head(bytes(body), bytes(head or b"")), key) for body, head, key in rows]


def wait_until(is_so: Callable[[], Any], timeout_s: float = 40.0) -> Any:
    """Return what ``is_so`` returns once it is true."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if found := is_so():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not so after {timeout_s} s")


@dataclass(kw_only=True)
class RankSender:
    """Makes the frames of one rank, as a sidecar would."""

    rank: int
    world_size: int
    groups: list[tuple[str, tuple[int, ...]]]
    job: str = "train"
    run_id: str = "run-1"
    attempt: int = 0
    incarnation: str = ""
    node: str = "node-a"
    clock_domain: str = ""
    anchor: tuple[int, int] = (10**12, 1_700_000_000 * 10**9)
    next_seq: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    telemetry: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.incarnation = self.incarnation or f"{self.rank:032x}"

    def frame(self, rows: Iterable[tuple[int, ...]], *, ended: str = "") -> bytes:
        """Return the next frame."""
        rows = list(rows)
        used = {row[2] for row in rows if row[0] == RecordKind.COLLECTIVE}
        definitions = [
            GroupDef(index=index, name=name, ranks=format_ranks(ranks), backend="gloo")
            for index, (name, ranks) in enumerate(self.groups)
            if index in used
        ]
        frame = Frame(
            job=self.job, run_id=self.run_id, attempt=self.attempt, rank=self.rank,
            world_size=self.world_size, incarnation=self.incarnation, frame_seq=self.next_seq,
            node=self.node, producer="python", count=len(rows), columns=encode_rows(rows),
            groups=definitions, clock_domain=self.clock_domain, anchor_mono_ns=self.anchor[0],
            anchor_wall_ns=self.anchor[1], step=max((row[STEP_COLUMN] for row in rows), default=0),
            dropped=self.dropped, ended=ended, telemetry=self.telemetry,
        )  # fmt: skip
        self.next_seq += 1
        return encode_frame(frame)


def senders(simulated: Simulated, **values: Any) -> list[RankSender]:
    """Return a sender per rank of a simulated job."""
    size = len(simulated.rows)
    return [
        RankSender(
            rank=rank,
            world_size=size,
            groups=simulated.groups,
            clock_domain=simulated.clocks[rank],
            **values,
        )
        for rank in range(size)
    ]


def steps_of(rows: list[tuple[int, ...]], first: int, last: int) -> list[tuple[int, ...]]:
    """Return the rows of the steps from ``first`` to before ``last``."""
    return [row for row in rows if first <= row[STEP_COLUMN] < last]


def bodies(
    job: Simulated, ranks: list[RankSender], *, steps_per_frame: int = 10, end: bool = True
) -> Iterator[bytes]:
    """Yield request bodies: a frame of every rank in each, in the order of steps."""
    steps = 1 + max(row[STEP_COLUMN] for rows in job.rows for row in rows)
    for first in range(0, steps, steps_per_frame):
        last = first + steps_per_frame
        ended = "closed" if end and last >= steps else ""
        yield b"".join(
            sender.frame(steps_of(job.rows[sender.rank], first, last), ended=ended)
            for sender in ranks
        )


def post_all(client: Client, posted: Iterable[bytes]) -> int:
    """Post bodies; return how many frames were accepted."""
    return sum(client.post_frames(body)["accepted"] for body in posted)


def is_ready(client: Client) -> bool:
    """Whether the collector says that it is ready."""
    try:
        return bool(client.get_json("/readyz")["ready"])
    except ProblemError as error:
        if error.status != 503:
            raise
        return False


def wait_for_state(client: Client, job: str, state: str, timeout_s: float = 40) -> dict[str, Any]:
    """Return the row of a job once it is in ``state``."""

    def row() -> Any:
        detail = client.get_json(f"/v1/jobs/{job}")
        return detail if detail["state"] == state else None

    return wait_until(row, timeout_s)
