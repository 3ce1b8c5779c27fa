"""How long a collector takes to come back with a day of a job, with a checkpoint and without.

The database is written directly. The newest ``analysed_s`` seconds are a job that the collector
analyses when it starts without a checkpoint; stopping it leaves one. Then the day before is filled
with bundles of the same size that no checkpointed start reads, a minute of bundles is added that
the checkpoint does not know, as after a kill, and the collector is started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from paceline.errors import TransportError
from paceline.wire.bundle_codec import decode_bundle
from paceline_service.bench.load.bodies import Bodies
from paceline_service.bench.load.shape import LoadShape
from paceline_service.bench.machine import cpu_s
from paceline_service.demo.processes import Collector
from paceline_service.ingest import repository
from paceline_service.ingest.heads import Beginnings, Head
from paceline_service.settings import DATABASE_NAME
from paceline_service.store.database import Database
from paceline_service.store.frames import without_head
from paceline_service.store.migrate import migrate

DAY_S = 86_400
TAIL_S = 60
"""What a kill leaves to be replayed at most: a checkpoint is a minute old then."""
SETTINGS = {"PACELINE_SERVE_RAW_RETENTION_BYTES": str(1 << 36)}
TIMEOUT_S = 3600.0
JOB = "restart"
_INSERT = (
    "INSERT INTO frames (id, attempt_id, incarnation_id, frame_seq, records, received_wall_ns, "
    "body_bytes, body, head_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A job of one step a second, and one bundle a second and node."""

    ranks: int = 64
    collectives: int = 20
    stored_s: int = DAY_S
    analysed_s: int = 3600


def measure(*, quick: bool) -> dict[str, object]:
    """Return the figures."""
    scale = Scale(stored_s=3600, analysed_s=300) if quick else Scale()
    with tempfile.TemporaryDirectory(prefix="paceline-restart-") as directory:
        return _measure(scale, Path(directory))


def _measure(scale: Scale, directory: Path) -> dict[str, object]:
    with closing(_Store(scale, directory)) as store:
        store.create()
        store.add(scale.analysed_s)
        whole = _start(directory)
        checkpoint = store.checkpoint()
        clean = _start(directory)
        store.fill()
        store.add(TAIL_S)
        tail = _start(directory)
    day = DAY_S / scale.analysed_s
    return {
        "ranks": scale.ranks, "collectives": scale.collectives, "stored_s": scale.stored_s,
        "analysed_s": scale.analysed_s, "bundles": store.bundles,
        "database_mib": round((directory / DATABASE_NAME).stat().st_size / (1 << 20)),
        "checkpoint_kib": round(checkpoint / 1024),
        "without_checkpoint": whole,
        "without_checkpoint_day_s": round(day * whole["ready_s"]),
        "after_stop": clean,
        "after_kill": tail,
    }  # fmt: skip


class _Store:
    """Bundles of the job, second after second."""

    def __init__(self, scale: Scale, directory: Path) -> None:
        seconds = scale.analysed_s + TAIL_S
        self._path = directory / DATABASE_NAME
        self._older = max(scale.stored_s - seconds, 0)
        """Seconds, and bundles of each node, before those that are analysed."""
        self._began_wall_ns = time.time_ns() - seconds * 10**9
        shape = LoadShape(  # a step more: in the last one ranks say that they end
            ranks=scale.ranks, collectives=scale.collectives, steps=seconds + 1, rate=1.0, job=JOB
        )
        self._nodes = range(shape.nodes)
        self._bodies = Bodies(shape, directory, self._began_wall_ns, first=self._older)
        self._second = 0
        self._ids: list[int] = []
        self._heads: list[Head] = []
        self._attempt_id = 0
        self.bundles = 0

    def create(self) -> None:
        """Make the bundles, the database, the attempt and its streams."""
        self._bodies.encode()
        asyncio.run(self._create())

    def close(self) -> None:
        """Let go of the bundles."""
        self._bodies.close()

    def add(self, seconds: int) -> None:
        """Store the next seconds of the job."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            self._insert(connection, self._next(seconds))

    def fill(self) -> None:
        """Store what came before: bundles of the right size and number, which nobody decodes."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            bodies = connection.execute(
                "SELECT records, body FROM frames ORDER BY id LIMIT ?", (len(self._nodes) * 128,)
            ).fetchall()
            self._insert(connection, self._copies(bodies))

    def checkpoint(self) -> int:
        """Return how large the checkpoint is that the collector left."""
        with closing(sqlite3.connect(self._path)) as connection:
            row = connection.execute("SELECT body_bytes FROM checkpoints").fetchone()
        if row is None:
            raise TransportError("the collector left no checkpoint; the figures mean nothing")
        return int(row[0])

    async def _create(self) -> None:
        database = Database(f"sqlite+aiosqlite:///{self._path}")
        await migrate(database)
        first = [decode_bundle(self._bodies.read(0, node)) for node in self._nodes]
        async with database.write() as writer:
            attempt = await repository.create_attempt(writer, first[0], self._began_wall_ns)
            by_name = {(attempt.id, bundle.incarnation): bundle for bundle in first}
            made = await repository.create_incarnations(writer, by_name, self._began_wall_ns)
            self._heads = [self._head(node) for node in self._nodes]
            rows: list[dict[str, object]] = [
                {"frame_id": one.frame_id, "attempt_id": attempt.id, "head": one.content}
                for one in self._heads
            ]
            await repository.insert_heads(writer, rows)
        self._attempt_id = attempt.id
        self._ids = [made[attempt.id, bundle.incarnation] for bundle in first]
        await database.close()
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("UPDATE rank_incarnations SET low_seq = ?", (self._older,))

    def _head(self, node: int) -> Head:
        beginnings = Beginnings()
        beginnings.find(self._bodies.read(0, node), 0)
        found = beginnings.find(self._bodies.read(1, node), 1 + node)
        assert found is not None, "its bundles are of the same ranks"
        return found

    def _insert(self, connection: sqlite3.Connection, rows: Iterator[tuple[Any, ...]]) -> None:
        last_id = count = size = 0
        while batch := list(islice(rows, 10_000)):
            connection.executemany(_INSERT, batch)
            connection.commit()
            last_id = max(last_id, batch[-1][0])
            count += len(batch)
            size += sum(row[6] for row in batch)
        connection.execute(
            "UPDATE job_attempts SET last_frame_id = max(last_frame_id, ?), frames = frames + ?, "
            "raw_bytes = raw_bytes + ?, last_seen_wall_ns = ?",
            (last_id, count, size, time.time_ns()),
        )
        self.bundles += count

    def _next(self, seconds: int) -> Iterator[tuple[Any, ...]]:
        for second in range(self._second, self._second + seconds):
            for node in self._nodes:
                packed = self._bodies.read(second, node)
                yield self._row(node, self._older + second, decode_bundle(packed).count, packed)
        self._second += seconds

    def _copies(self, bodies: list[tuple[int, bytes]]) -> Iterator[tuple[Any, ...]]:
        for seq in range(self._older):
            for node in self._nodes:
                records, body = bodies[(seq * len(self._nodes) + node) % len(bodies)]
                yield self._row(node, seq, records, body)

    def _row(self, node: int, seq: int, records: int, body: bytes) -> tuple[Any, ...]:
        received_ns = self._began_wall_ns + (seq - self._older) * 10**9
        number = 1 + seq * len(self._nodes) + node
        head, head_id = self._heads[node], None
        if head.begins(body):
            body, head_id = without_head(body, head.content), head.frame_id
        return (number, self._attempt_id, self._ids[node], seq, records, received_ns, len(body),
                body, head_id)  # fmt: skip


def _start(directory: Path) -> dict[str, float]:
    """Start a collector on the database, ask for the report, and stop it."""
    token = secrets.token_urlsafe(24)
    began_s = time.perf_counter()
    collector = Collector(directory, os.environ, token, settings=SETTINGS)
    try:
        listens_s = time.perf_counter() - began_s
        _wait(collector, "/readyz", "ready")
        ready_s = time.perf_counter() - began_s
        steps = _wait(collector, f"/v1/jobs/{JOB}/report", "job")["job"]["steps"]
        report_s = time.perf_counter() - began_s
        used_s = cpu_s(collector.pid)
        began_s = time.perf_counter()
    finally:
        collector.close()
    return {
        "listens_s": round(listens_s, 2), "ready_s": round(ready_s, 2),
        "report_s": round(report_s, 2), "cpu_s": round(used_s, 2), "steps": steps,
        "stop_s": round(time.perf_counter() - began_s, 2),
    }  # fmt: skip


def _wait(collector: Collector, path: str, name: str) -> dict[str, Any]:
    """Return an answer once there is one in which ``name`` is true."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := _get(collector, path)).get(name):
        if time.monotonic() > deadline_s:
            raise TransportError(f"{path} does not say {name} after {TIMEOUT_S:.0f} s")
        time.sleep(0.05)
    return found


def _get(collector: Collector, path: str) -> dict[str, Any]:
    request = Request(collector.url + path, headers={"Authorization": f"Bearer {collector.token}"})
    try:
        with urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
    except HTTPError as error:
        if error.code != 503:
            raise TransportError(f"{path}: {error}") from error
        return {}
    return found
