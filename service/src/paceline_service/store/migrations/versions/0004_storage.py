"""Lanes and rank windows; frames in partitions on PostgreSQL; offences outlive their incidents."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

PARTITION_BITS = 32
"""Frames whose ids agree above these bits are in one partition (``store.partitions``)."""
PARTITIONED = ("lanes", "rank_windows")
_IDENTITY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FRAME_FOREIGN_KEYS = (
    ("fk_frames_attempt_id", "attempt_id", "job_attempts"),
    ("fk_frames_incarnation_id", "incarnation_id", "rank_incarnations"),
)


def upgrade() -> None:
    """Apply this migration."""
    _create("lanes", columns=(
        sa.Column("end_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
    ))  # fmt: skip
    _create("rank_windows", columns=(
        sa.Column("end_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("self_ns", sa.BigInteger(), nullable=False),
        sa.Column("wait_ns", sa.BigInteger(), nullable=False),
        sa.Column("communication_ns", sa.BigInteger(), nullable=False),
        sa.Column("caused_wait_ns", sa.BigInteger(), nullable=False),
        sa.Column("blamed_wait_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_arrivals", sa.BigInteger(), nullable=False),
    ))  # fmt: skip
    op.add_column(
        "step_summaries",
        sa.Column("stored_wall_ns", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.create_table(
        "stored_sizes",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stored_sizes")),
    )
    op.execute(
        "INSERT INTO stored_sizes (name, bytes) SELECT 'step_summaries', "
        "COALESCE(SUM(LENGTH(ranks_blob)), 0) + 64 * COUNT(*) FROM step_summaries"
    )
    _free_offences()
    if op.get_bind().dialect.name == "postgresql":
        _partition_frames()


def downgrade() -> None:
    """Take this migration back."""
    if op.get_bind().dialect.name == "postgresql":
        _gather_frames()
    # What has outlived its incident has no place in the older schema.
    op.execute("DELETE FROM offences WHERE incident_id NOT IN (SELECT id FROM incidents)")
    with op.batch_alter_table("offences", schema=None) as batch_op:
        batch_op.drop_column("job")
        batch_op.drop_column("cause")
        for column, table in (("incident_id", "incidents"), ("attempt_id", "job_attempts")):
            batch_op.create_foreign_key(
                batch_op.f(f"fk_offences_{column}"), table, [column], ["id"]
            )
    op.execute("ALTER TABLE step_summaries DROP COLUMN stored_wall_ns")
    for table in ("stored_sizes", *PARTITIONED):
        op.drop_table(table)


def _create(name: str, *, columns: tuple[sa.Column[Any], ...]) -> None:
    """Make a table whose oldest rows go with their partition; without row ids on SQLite."""
    key = {
        "attempt_id": _IDENTITY,
        "start_wall_ns": sa.BigInteger(),
        "rank": sa.Integer(),
        "stored_wall_ns": sa.BigInteger(),
    }
    op.create_table(
        name,
        *(sa.Column(part, kind, autoincrement=False, nullable=False) for part, kind in key.items()),
        *columns,
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")),
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (stored_wall_ns)",
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"CREATE TABLE {name}_default PARTITION OF {name} DEFAULT")


def _free_offences() -> None:
    """Keep with an offence what its incident and its attempt told, and let go of both."""
    with op.batch_alter_table("offences", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_offences_incident_id"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("fk_offences_attempt_id"), type_="foreignkey")
        for name, length in (("job", 128), ("cause", 32)):
            batch_op.add_column(
                sa.Column(name, sa.String(length=length), nullable=False, server_default="")
            )
    op.execute(
        "UPDATE offences SET "
        "job = (SELECT jobs.name FROM jobs JOIN job_attempts ON job_attempts.job_id = jobs.id "
        "       WHERE job_attempts.id = offences.attempt_id), "
        "cause = (SELECT incidents.cause FROM incidents WHERE incidents.id = offences.incident_id)"
    )


def _partition_frames() -> None:
    """Make the table of frames the first partition of one that is cut by ranges of ids."""
    highest = op.get_bind().execute(sa.text(
        "SELECT GREATEST((SELECT MAX(id) FROM frames), "
        "(SELECT MAX(last_frame_id) FROM job_attempts), 0)"
    )).scalar_one()  # fmt: skip
    number = highest >> PARTITION_BITS
    first = f"frames_p{number}"
    op.execute(f"ALTER TABLE frames RENAME TO {first}")
    op.execute(f"ALTER TABLE {first} RENAME CONSTRAINT pk_frames TO pk_{first}")
    op.execute(
        f"ALTER TABLE {first} RENAME CONSTRAINT uq_frames_incarnation_id_frame_seq "
        f"TO uq_{first}_incarnation_id_frame_seq"
    )
    op.execute(f"ALTER INDEX ix_frames_attempt_id_id RENAME TO ix_{first}_attempt_id_id")
    op.execute("DROP SEQUENCE IF EXISTS frames_id_seq CASCADE")
    _create_frames("PARTITION BY RANGE (id)")
    op.execute("CREATE INDEX ix_frames_attempt_id_id ON frames (attempt_id, id)")
    op.execute(
        f"ALTER TABLE frames ATTACH PARTITION {first} "
        f"FOR VALUES FROM (MINVALUE) TO ({(number + 1) << PARTITION_BITS})"
    )


def _gather_frames() -> None:
    """Put the frames of all partitions back into one table."""
    op.execute("ALTER TABLE frames RENAME TO frames_parts")
    for index in ("pk_frames", "ix_frames_attempt_id_id"):
        op.execute(f"ALTER INDEX {index} RENAME TO {index}_parts")
    _create_frames("", sequence=True)
    op.execute("INSERT INTO frames SELECT * FROM frames_parts")
    op.execute("DROP TABLE frames_parts CASCADE")
    op.execute(
        "ALTER TABLE frames ADD CONSTRAINT uq_frames_incarnation_id_frame_seq "
        "UNIQUE (incarnation_id, frame_seq)"
    )
    op.execute("CREATE INDEX ix_frames_attempt_id_id ON frames (attempt_id, id)")


def _create_frames(tail: str, *, sequence: bool = False) -> None:
    number = "BIGSERIAL" if sequence else "BIGINT NOT NULL"
    keys = ", ".join(
        f"CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {table} (id)"
        for name, column, table in _FRAME_FOREIGN_KEYS
    )
    op.execute(
        f"CREATE TABLE frames (id {number}, attempt_id BIGINT NOT NULL, "
        "incarnation_id BIGINT NOT NULL, frame_seq BIGINT NOT NULL, records INTEGER NOT NULL, "
        "received_wall_ns BIGINT NOT NULL, body_bytes INTEGER NOT NULL, body BYTEA NOT NULL, "
        f"CONSTRAINT pk_frames PRIMARY KEY (id), {keys}) {tail}"
    )
