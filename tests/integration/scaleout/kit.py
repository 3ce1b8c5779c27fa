"""Gateways and analyzers as real processes on one machine, with one NATS and one database."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paceline_service.bus.subjects import partition_of
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import CollectorProcess, is_ready, wait_until
from tests.integration.postgres import rows
from tests.integration.scaleout.credentials import Authority
from tests.integration.scaleout.nats import NatsServer

LEASE_S = "2"
STREAM = [f"$JS.API.STREAM.{what}.PACELINE_FRAMES" for what in ("INFO", "CREATE", "UPDATE")]
PUBLISH = {
    "gateway": ["paceline.frames.>", *STREAM],
    "analyzer": ["$JS.API.CONSUMER.>", "$JS.ACK.PACELINE_FRAMES.>", *STREAM],
}
"""What each role has to be allowed; docs/scale-out.md says the same."""
SUBSCRIBE = ["_INBOX.>"]


class Cluster:
    """Two gateways and two analyzers.

    Args:
        directory: of their files.
        nats: the bus.
        database_url: the one database.
        authority: makes their credentials for the bus; no process may do more than it has to.
    """

    def __init__(
        self, directory: Path, nats: NatsServer, database_url: str, authority: Authority
    ) -> None:
        self.nats = nats
        self.database_url = database_url
        self._directory = directory
        everything = [subject for may in PUBLISH.values() for subject in may]
        self.credentials = {
            role: authority.user(directory / f"{role}.creds", publish=may, subscribe=SUBSCRIBE)
            for role, may in {**PUBLISH, "all": everything}.items()
        }
        self.anything = authority.user(directory / "anything.creds")
        self.gateways = [self.process(f"gateway-{one}", "gateway") for one in range(2)]
        self.analyzers = [self.process(f"analyzer-{one}", "analyzer") for one in range(2)]

    @property
    def processes(self) -> list[CollectorProcess]:
        """All of them."""
        return self.gateways + self.analyzers

    def start(self) -> Cluster:
        """Start all that do not run, and return when they are ready and share the partitions."""
        began = [one for one in self.processes if not _runs(one)]
        for one in began:  # the slow part of a start, all at once
            ready = one.directory / "ready.json"
            ready.unlink(missing_ok=True)
            one.process = one.spawn("--ready-file", str(ready))
        for one in began:
            one.adopt()
        self.wait_ready()
        wait_until(lambda: self.owned() == [32, 32], 60)
        return self

    def wait_ready(self) -> None:
        """Return when every process that runs says that it is ready."""
        for one in self.processes:
            if _runs(one):
                wait_until(lambda one=one: is_ready(one.client()), 60)

    def stop(self) -> None:
        """Stop all."""
        for one in self.processes:
            if _runs(one):
                one.process.terminate()
        for one in self.processes:
            if one.process is not None:
                one.process.wait(30)

    def owned(self) -> list[int]:
        """Return how many partitions each living owner has."""
        query = (
            "SELECT count(*) FROM leases WHERE owner <> '' AND expires_wall_ns > "
            "EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000 GROUP BY owner ORDER BY 1"
        )
        return [row[0] for row in rows(self.database_url, query)]

    def owner_pid(self, job: str) -> int:
        """Return the process id of the analyzer that owns a job."""
        query = "SELECT owner FROM leases WHERE partition = ?"
        return int(rows(self.database_url, query, partition_of(job))[0][0].split("-")[-2])

    def owner_of(self, job: str) -> CollectorProcess:
        """Return the analyzer that owns a job."""
        pid = self.owner_pid(job)
        return next(one for one in self.analyzers if one.process.pid == pid)

    def frames(self, job: str) -> int:
        """Return how many frames of a job are stored."""
        query = (
            "SELECT count(*) FROM frames f JOIN job_attempts a ON a.id = f.attempt_id "
            "JOIN jobs j ON j.id = a.job_id WHERE j.name = ?"
        )
        return int(rows(self.database_url, query, job)[0][0])

    def process(self, name: str, role: str) -> CollectorProcess:
        return BusProcess(
            self._directory / name, database_url=self.database_url,
            PACELINE_SERVE_ROLE=role, PACELINE_SERVE_BUS=self.nats.url,
            PACELINE_SERVE_BUS_CREDENTIALS=str(self.credentials[role]),
            PACELINE_SERVE_BUS_MAX_BYTES=str(256 << 20), PACELINE_SERVE_LEASE_S=LEASE_S,
        )  # fmt: skip


class BusProcess(CollectorProcess):
    """A collector that was spawned and is waited for later."""

    def adopt(self) -> None:
        """Return when it listens."""
        import json

        ready = self.directory / "ready.json"
        wait_until(lambda: ready.exists() or self.process.poll() is not None, 90)
        assert ready.exists(), self.log.read_text()
        self.url = json.loads(ready.read_text())["url"]


def send(client: Client, bodies: Iterable[bytes], pause_s: float = 0.0) -> int:
    """Post bodies as a sidecar does: what is refused is sent again; return what was accepted."""
    accepted = 0
    for body in bodies:
        accepted += send_one(client, body)["accepted"]
        time.sleep(pause_s)
    return accepted


def send_one(client: Client, body: bytes, timeout_s: float = 30) -> dict[str, Any]:
    """Post one body until it is taken."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return client.post_frames(body)
        except (ProblemError, OSError) as error:
            status = getattr(error, "status", 503)
            if status not in (429, 503) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


def ended_report(client: Client, job: str, timeout_s: float = 90) -> dict[str, Any]:
    """Return the report of a job once it has ended."""

    def report() -> Any:
        try:
            found = client.get_json(f"/v1/jobs/{job}/report")
        except ProblemError as error:
            if error.status not in (404, 503):
                raise
            return None
        return found if found["job"]["state"] == "ended" else None

    return dict(wait_until(report, timeout_s))


def _runs(process: CollectorProcess) -> bool:
    return process.process is not None and process.process.poll() is None


def metric(client: Client, name: str) -> float:
    """Return the value of one series, 0 where there is none."""
    for line in b"".join(client.stream("/metrics")).decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[-1])
    return 0.0
