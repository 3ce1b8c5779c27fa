"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply this migration."""
    op.create_table(
        "drops",
        sa.Column("attempt_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "stage", "reason", name=op.f("pk_drops")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("first_seen_wall_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("name", name=op.f("uq_jobs_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("job_prefix", sa.String(length=128), nullable=False),
        sa.Column("created_wall_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("sha256", name=op.f("uq_tokens_sha256")),
    )
    op.create_table(
        "job_attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=256), nullable=False),
        sa.Column("launch_attempt", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("first_seen_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("frames", sa.BigInteger(), nullable=False),
        sa.Column("last_frame_id", sa.BigInteger(), nullable=False),
        sa.Column("raw_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("ranks_seen", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=32), nullable=False),
        sa.Column("headline", sa.Text(), nullable=False),
        sa.Column("slowdown", sa.Float(), nullable=True),
        sa.Column("report_frame_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_attempts_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_attempts")),
        sa.UniqueConstraint("job_id", "ordinal", name=op.f("uq_job_attempts_job_id_ordinal")),
        sa.UniqueConstraint(
            "job_id",
            "run_id",
            "launch_attempt",
            name=op.f("uq_job_attempts_job_id_run_id_launch_attempt"),
        ),
    )
    with op.batch_alter_table("job_attempts", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_job_attempts_last_seen_wall_ns"), ["last_seen_wall_ns"], unique=False
        )

    op.create_table(
        "incidents",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("opened_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("closed_wall_ns", sa.BigInteger(), nullable=True),
        sa.Column("closed_reason", sa.String(length=16), nullable=False),
        sa.Column("finding", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_incidents_attempt_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_attempt_id"), ["attempt_id"], unique=False)

    op.create_table(
        "rank_incarnations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("incarnation", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=256), nullable=False),
        sa.Column("producer", sa.String(length=64), nullable=False),
        sa.Column("clock_domain", sa.String(length=128), nullable=False),
        sa.Column("first_seen_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.String(length=16), nullable=False),
        sa.Column("low_seq", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_rank_incarnations_attempt_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rank_incarnations")),
        sa.UniqueConstraint(
            "attempt_id", "incarnation", name=op.f("uq_rank_incarnations_attempt_id_incarnation")
        ),
    )
    op.create_table(
        "step_summaries",
        sa.Column(
            "attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("duration_ns", sa.BigInteger(), nullable=False),
        sa.Column("slowest_rank", sa.Integer(), nullable=False),
        sa.Column("wait_ns", sa.BigInteger(), nullable=False),
        sa.Column("ranks_blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_step_summaries_attempt_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "step", name=op.f("pk_step_summaries")),
    )
    op.create_table(
        "frames",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column(
            "incarnation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("frame_seq", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("received_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("body_bytes", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_frames_attempt_id")
        ),
        sa.ForeignKeyConstraint(
            ["incarnation_id"], ["rank_incarnations.id"], name=op.f("fk_frames_incarnation_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_frames")),
        sa.UniqueConstraint(
            "incarnation_id", "frame_seq", name=op.f("uq_frames_incarnation_id_frame_seq")
        ),
    )
    with op.batch_alter_table("frames", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_frames_attempt_id_id"), ["attempt_id", "id"], unique=False
        )


def downgrade() -> None:
    """Take this migration back."""
    with op.batch_alter_table("frames", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_frames_attempt_id_id"))

    op.drop_table("frames")
    op.drop_table("step_summaries")
    op.drop_table("rank_incarnations")
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_incidents_attempt_id"))

    op.drop_table("incidents")
    with op.batch_alter_table("job_attempts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_attempts_last_seen_wall_ns"))

    op.drop_table("job_attempts")
    op.drop_table("tokens")
    op.drop_table("jobs")
    op.drop_table("drops")
