"""Event logs instead of a collector: one file a rank (docs/event-log.md)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.errors import ConfigError
from paceline.event_log import LogHeader
from paceline.ring import RingIdentity
from paceline.sidecar.follow import Chunk
from paceline.sidecar.pack import job_name
from paceline.sidecar.progress import Progress
from paceline.sidecar.rank_log import MAX_LOG_BYTES, RankLog

_log = logging.getLogger("paceline.sidecar")


@dataclass(slots=True)
class _JobFacts:
    nodes: dict[int, str] = field(default_factory=dict)
    clock_domains: dict[int, str] = field(default_factory=dict)


class EventLogSink:
    """Writes the chunks of each rank into its own log under ``directory``.

    Raises:
        ConfigError: the directory cannot be made.
    """

    def __init__(self, directory: Path, max_log_bytes: int = MAX_LOG_BYTES) -> None:
        self._directory = directory
        self._max_log_bytes = max_log_bytes
        self._logs: dict[str, RankLog] = {}
        self._jobs: dict[tuple[str, str, int], _JobFacts] = {}
        self._failing = False
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write event logs to {directory}: {error}") from error

    def progress(self, identity: RingIdentity) -> Progress:
        """Return how far the log of a ring came in an earlier sidecar."""
        return self._log_of(identity).progress

    def write_all(self, chunks: Sequence[Chunk]) -> list[bool | Exception]:
        """Append each chunk to the log of its rank."""
        outcomes: list[bool | Exception] = []
        for chunk in chunks:
            try:
                outcomes.append(self.write(chunk))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    def write(self, chunk: Chunk) -> bool:
        """Append ``chunk`` to its log; its last one also compresses the log."""
        identity = chunk.identity
        log = self._log_of(identity)
        job = self._jobs.setdefault((identity.job, identity.run_id, identity.attempt), _JobFacts())
        job.nodes[identity.rank] = chunk.node
        job.clock_domains[identity.rank] = chunk.clock_domain
        stored = log.write(chunk, _header(chunk, log, job))
        if stored and chunk.ended:
            log.close()
            if not log.finish(_header(chunk, log, job)):
                _log.warning("cannot compress %s: it stays as it is", log.path)
            log.progress.ended = True
        if self._failing == stored:
            self._failing = not stored
            state = "goes on" if stored else "has no room: records stay in the rings"
            _log.warning("the event log %s %s", log.path, state)
        return stored

    def forget(self, incarnation: str) -> None:
        """Let go of a finished log."""
        self._logs.pop(incarnation, None)

    def keep_only(self, incarnations: set[str]) -> None:
        """Do nothing: a log without its ring stays as it is."""

    def settle(self) -> None:
        """Do nothing: what is written is at its goal."""

    def hurry(self) -> None:
        """Do nothing: nothing is waited for."""

    def drained(self) -> bool:
        """Return True: nothing is waited for."""
        return True

    def close(self) -> None:
        """End the logs of ranks that still run; a later sidecar goes on with them."""
        for log in self._logs.values():
            if not log.progress.ended:
                log.close()

    def _log_of(self, identity: RingIdentity) -> RankLog:
        incarnation = identity.incarnation.hex()
        log = self._logs.get(incarnation)
        if log is None:
            name = (
                f"{job_name(identity.job)[:80]}.a{identity.attempt}.r{identity.rank}."
                f"{incarnation[:12]}.{job_name(identity.producer)}.ndjson"
            )
            log = RankLog(self._directory / name, self._max_log_bytes)
            self._logs[incarnation] = log
        return log


def _header(chunk: Chunk, log: RankLog, job: _JobFacts) -> LogHeader:
    identity = chunk.identity
    domains = set(job.clock_domains.values())
    # Only with every rank in sight: another node may have ranks on another clock.
    complete = len(job.clock_domains) == identity.world_size
    return LogHeader(
        world_size=identity.world_size,
        groups=log.names.groups,
        nodes=job.nodes,
        shared_clock=complete and len(domains) == 1 and "" not in domains,
        clock_domains={identity.rank: chunk.clock_domain},
        anchors={identity.rank: (chunk.anchor.mono_ns, chunk.anchor.wall_ns)},
        job=job_name(identity.job),
        run_id=identity.run_id,
        attempt=identity.attempt,
        rank=identity.rank,
        info=chunk.info,
    )
