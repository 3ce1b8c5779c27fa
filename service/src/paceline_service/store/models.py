"""The tables, in words that SQLite and PostgreSQL both understand.

Times are ns since the epoch on the collector's wall clock unless the name says otherwise.
Changing a table needs a migration (``store/migrations``).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from paceline_service.store.base import Base as Base
from paceline_service.store.base import BigId
from paceline_service.store.notify_models import NodeAction as NodeAction
from paceline_service.store.notify_models import Notification as Notification


class Job(Base):
    """A job name that was seen at least once."""

    __tablename__ = "jobs"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    first_seen_wall_ns: Mapped[int] = mapped_column(BigInteger)


class JobAttempt(Base):
    """One launch of a job; ``ordinal`` counts them from 1 in the order in which they appeared."""

    __tablename__ = "job_attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "run_id", "launch_attempt"),
        UniqueConstraint("job_id", "ordinal"),
        Index(None, "last_seen_wall_ns"),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    ordinal: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[str] = mapped_column(String(256))
    launch_attempt: Mapped[int] = mapped_column(Integer)
    world_size: Mapped[int] = mapped_column(Integer)
    first_seen_wall_ns: Mapped[int] = mapped_column(BigInteger)
    last_seen_wall_ns: Mapped[int] = mapped_column(BigInteger)
    frames: Mapped[int] = mapped_column(BigInteger, default=0)
    last_frame_id: Mapped[int] = mapped_column(BigInteger, default=0)
    """The newest committed frame of this attempt."""
    raw_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Raw frames kept at present."""
    ended: Mapped[bool] = mapped_column(Boolean, default=False)
    steps: Mapped[int] = mapped_column(BigInteger, default=0)
    ranks_seen: Mapped[int] = mapped_column(Integer, default=0)
    verdict: Mapped[str] = mapped_column(String(32), default="")
    headline: Mapped[str] = mapped_column(Text, default="")
    slowdown: Mapped[float | None] = mapped_column(Float)
    report_frame_id: Mapped[int] = mapped_column(BigInteger, default=0)
    """The newest frame that ``state`` takes into account; 0: it has to be made again."""
    state: Mapped[bytes | None] = mapped_column(LargeBinary)
    """The last published state (report, ranks, groups, nodes), as compressed JSON."""
    state_version: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Counts how often ``state`` was written: other processes see that there is a newer one."""


class RankIncarnation(Base):
    """One ring of one rank process; a restarted rank has another."""

    __tablename__ = "rank_incarnations"
    __table_args__ = (UniqueConstraint("attempt_id", "incarnation"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"))
    incarnation: Mapped[str] = mapped_column(String(32))
    rank: Mapped[int] = mapped_column(Integer)
    node: Mapped[str] = mapped_column(String(256))
    producer: Mapped[str] = mapped_column(String(64))
    clock_domain: Mapped[str] = mapped_column(String(128))
    first_seen_wall_ns: Mapped[int] = mapped_column(BigInteger)
    ended: Mapped[str] = mapped_column(String(16), default="")
    low_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    """Every frame below it is done with, even where retention has deleted it."""


class FrameRow(Base):
    """A frame as it came; ``id`` is the order of commits.

    PostgreSQL cuts the table into partitions by ranges of ids; each has the unique key for itself.
    """

    __tablename__ = "frames"
    __table_args__ = (
        UniqueConstraint("incarnation_id", "frame_seq"),
        Index(None, "attempt_id", "id"),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"))
    incarnation_id: Mapped[int] = mapped_column(ForeignKey("rank_incarnations.id"))
    frame_seq: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int] = mapped_column(Integer)
    received_wall_ns: Mapped[int] = mapped_column(BigInteger)
    body_bytes: Mapped[int] = mapped_column(Integer)
    body: Mapped[bytes] = mapped_column(LargeBinary)
    head_id: Mapped[int | None] = mapped_column(BigInteger)
    """Of ``frame_heads``: what was left out of ``body`` behind its header; None: nothing.

    No foreign key: to delete a head the database would look through all frames, or keep an index.
    """


class FrameHead(Base):
    """What bundles of a stream begin with alike (``ingest/heads.py``); goes with its attempt."""

    __tablename__ = "frame_heads"
    frame_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    """Of the first bundle that it was left out of."""
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"), index=True)
    head: Mapped[bytes] = mapped_column(LargeBinary)


class StepSummary(Base):
    """One step over all ranks; ``ranks_blob`` is described in ``export/step_blob.py``."""

    __tablename__ = "step_summaries"
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    start_wall_ns: Mapped[int] = mapped_column(BigInteger)
    """On the wall clock of the ranks; -1 unknown."""
    duration_ns: Mapped[int] = mapped_column(BigInteger)
    slowest_rank: Mapped[int] = mapped_column(Integer)
    wait_ns: Mapped[int] = mapped_column(BigInteger)
    """Summed over the ranks."""
    ranks_blob: Mapped[bytes] = mapped_column(LargeBinary)
    stored_wall_ns: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """On the collector's clock, for retention: logs of last year may be replayed today."""


class Lane(Base):
    """What one rank did for a while within a step: busy or idle, and on what.

    ``kind`` is ``compute``, ``wait`` (for a last arriver) or ``communication`` (after it came).
    Only telling ranks have lanes (``jobs/lanes.py``). Cut by ``stored_wall_ns`` on PostgreSQL.
    """

    __tablename__ = "lanes"
    __table_args__ = ({"sqlite_with_rowid": False},)
    attempt_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    start_wall_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """On the wall clock of the rank's node."""
    rank: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    stored_wall_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    end_wall_ns: Mapped[int] = mapped_column(BigInteger)
    step: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(16))


class RankWindow(Base):
    """What one rank did over some steps, ns summed over them. Cut as ``lanes`` are."""

    __tablename__ = "rank_windows"
    __table_args__ = ({"sqlite_with_rowid": False},)
    attempt_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    start_wall_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    stored_wall_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    end_wall_ns: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    steps: Mapped[int] = mapped_column(Integer)
    """In which the rank took part."""
    self_ns: Mapped[int] = mapped_column(BigInteger)
    wait_ns: Mapped[int] = mapped_column(BigInteger)
    communication_ns: Mapped[int] = mapped_column(BigInteger)
    caused_wait_ns: Mapped[int] = mapped_column(BigInteger)
    """Waits of others where this rank arrived last."""
    blamed_wait_ns: Mapped[int] = mapped_column(BigInteger)
    """Waits of others that its own delay explains."""
    last_arrivals: Mapped[int] = mapped_column(BigInteger)


class StoredSize(Base):
    """What the rows of a table take, as retention counts it (``store/sizes.py``)."""

    __tablename__ = "stored_sizes"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger)


class Incident(Base):
    """A finding with a life: opened, updated, closed."""

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "attempt_id"), Index(None, "updated_wall_ns"))
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"))
    kind: Mapped[str] = mapped_column(String(32))
    ranks: Mapped[str] = mapped_column(Text)
    cause: Mapped[str] = mapped_column(String(32))
    phase: Mapped[str | None] = mapped_column(String(16))
    first_step: Mapped[int | None] = mapped_column(BigInteger)
    last_step: Mapped[int | None] = mapped_column(BigInteger)
    opened_wall_ns: Mapped[int] = mapped_column(BigInteger)
    updated_wall_ns: Mapped[int] = mapped_column(BigInteger)
    closed_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    closed_reason: Mapped[str] = mapped_column(String(16), default="")
    finding: Mapped[str] = mapped_column(Text)
    """The whole finding as JSON."""


class Acknowledgement(Base):
    """Somebody knows of an incident; what was taken back stays as its history."""

    __tablename__ = "acknowledgements"
    __table_args__ = (Index(None, "incident_id"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    incident_id: Mapped[int] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"))
    at_wall_ns: Mapped[int] = mapped_column(BigInteger)
    by: Mapped[str] = mapped_column(String(256))
    note: Mapped[str] = mapped_column(Text)
    withdrawn_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    withdrawn_by: Mapped[str] = mapped_column(String(256), default="")


class SilenceRow(Base):
    """What alerts leave out until a time; an empty text covers everything."""

    __tablename__ = "silences"
    __table_args__ = (Index(None, "until_wall_ns"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job: Mapped[str] = mapped_column(String(128), default="")
    kind: Mapped[str] = mapped_column(String(32), default="")
    ranks: Mapped[str] = mapped_column(Text, default="")
    node: Mapped[str] = mapped_column(String(256), default="")
    incident_id: Mapped[int | None] = mapped_column(BigInteger)
    """The incident that it was made for."""
    created_wall_ns: Mapped[int] = mapped_column(BigInteger)
    created_by: Mapped[str] = mapped_column(String(256))
    note: Mapped[str] = mapped_column(Text, default="")
    until_wall_ns: Mapped[int] = mapped_column(BigInteger)
    ended_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    ended_by: Mapped[str] = mapped_column(String(256), default="")


class Offence(Base):
    """A place that an incident names: who offends again is known beyond one job.

    ``gpu_uuid`` is empty where no telemetry told it. It outlives its incident and its attempt;
    ``job`` and ``cause`` are what they told.
    """

    __tablename__ = "offences"
    __table_args__ = (Index(None, "node"), Index(None, "opened_wall_ns"), Index(None, "attempt_id"))
    incident_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    node: Mapped[str] = mapped_column(String(256), primary_key=True)
    gpu_uuid: Mapped[str] = mapped_column(String(96), primary_key=True)
    attempt_id: Mapped[int] = mapped_column(BigId)
    opened_wall_ns: Mapped[int] = mapped_column(BigInteger)
    job: Mapped[str] = mapped_column(String(128), server_default="")
    cause: Mapped[str] = mapped_column(String(32), server_default="")


class Token(Base):
    """A token by its hash; the token itself is never stored."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(String(128))
    scopes: Mapped[str] = mapped_column(String(64))
    job_prefix: Mapped[str] = mapped_column(String(128), default="")
    created_wall_ns: Mapped[int] = mapped_column(BigInteger)
    created_by: Mapped[str] = mapped_column(String(256), default="")
    expires_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    revoked_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    last_used_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    """Written about once a minute."""
    requests_per_s: Mapped[float | None] = mapped_column(Float)
    """None: what the settings of the collector say; so the next."""
    bytes_per_s: Mapped[float | None] = mapped_column(Float)


class AuditEntry(Base):
    """Something that an administrator did; rows are only added, and deleted by age."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "at_wall_ns"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    at_wall_ns: Mapped[int] = mapped_column(BigInteger)
    actor: Mapped[str] = mapped_column(String(256))
    address: Mapped[str] = mapped_column(String(64))
    """Where the request came from; ``local`` for a command on the database itself."""
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(256))
    old: Mapped[str | None] = mapped_column(Text)
    """JSON; so the next."""
    new: Mapped[str | None] = mapped_column(Text)


class JobSetting(Base):
    """What somebody asked a job to record; it stays for later launches."""

    __tablename__ = "job_settings"
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(BigInteger)
    level: Mapped[str] = mapped_column(String(16))
    stride: Mapped[int] = mapped_column(Integer)
    enabled: Mapped[bool] = mapped_column(Boolean)
    telemetry_interval_s: Mapped[float | None] = mapped_column(Float)
    """None: as each sidecar was started."""
    updated_wall_ns: Mapped[int] = mapped_column(BigInteger)
    updated_by: Mapped[str] = mapped_column(String(128))
    relief_stride: Mapped[int] = mapped_column(Integer, default=1, server_default="1")
    """What the collector asks for by itself while it cannot keep up; 1: nothing."""


class SettingAgreement(Base):
    """The step of one attempt from which the setting of its job holds."""

    __tablename__ = "setting_agreements"
    attempt_id: Mapped[int] = mapped_column(ForeignKey("job_attempts.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(BigInteger)
    effective_step: Mapped[int] = mapped_column(BigInteger)
    agreed_wall_ns: Mapped[int] = mapped_column(BigInteger)
    level: Mapped[str] = mapped_column(String(16), default="", server_default="")
    """The level that its ranks were launched with, where nobody asked for one."""


class Checkpoint(Base):
    """The analysis of a running attempt as it was after ``frame_id`` (``jobs/checkpoint.py``)."""

    __tablename__ = "checkpoints"
    attempt_id: Mapped[int] = mapped_column(
        ForeignKey("job_attempts.id"), primary_key=True, autoincrement=False
    )
    generation: Mapped[int] = mapped_column(BigInteger)
    """Which parts it consists of."""
    frame_id: Mapped[int] = mapped_column(BigInteger)
    """The newest frame that it holds; later ones are replayed."""
    fingerprint: Mapped[str] = mapped_column(String(64))
    """Of the program that can read it."""
    sha256: Mapped[str] = mapped_column(String(64))
    body_bytes: Mapped[int] = mapped_column(BigInteger)
    made_wall_ns: Mapped[int] = mapped_column(BigInteger)


class CheckpointPart(Base):
    """A piece of a checkpoint; pieces that no ``Checkpoint`` names are of one that was cut short.

    Without a foreign key: a piece is written before the row that names it.
    """

    __tablename__ = "checkpoint_parts"
    attempt_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    generation: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    part: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class Drop(Base):
    """What was lost, where and why; attempt 0 is what belongs to no attempt."""

    __tablename__ = "drops"
    attempt_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    stage: Mapped[str] = mapped_column(String(32), primary_key=True)
    reason: Mapped[str] = mapped_column(String(64), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger, default=0)


class Lease(Base):
    """Which analyzer owns a partition of the bus (``bus/leases.py``)."""

    __tablename__ = "leases"
    partition: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    owner: Mapped[str] = mapped_column(String(128))
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Grows with every owner: what an earlier one still writes is refused."""
    expires_wall_ns: Mapped[int] = mapped_column(BigInteger)
    """On the clock of the database; until then nobody else takes it."""


class AnalyzerRow(Base):
    """An analyzer that is alive, so that the others know how many share the partitions."""

    __tablename__ = "analyzers"
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    seen_wall_ns: Mapped[int] = mapped_column(BigInteger)
    """On the clock of the database."""
