"""Checkpoints of the analysis of running attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply this migration."""
    op.create_table(
        "checkpoints",
        sa.Column("attempt_id", _ID, autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("frame_id", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("body_bytes", sa.BigInteger(), nullable=False),
        sa.Column("made_wall_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_checkpoints_attempt_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "checkpoint_parts",
        sa.Column("attempt_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "attempt_id", "generation", "part", name=op.f("pk_checkpoint_parts")
        ),
    )


def downgrade() -> None:
    """Take this migration back."""
    op.drop_table("checkpoint_parts")
    op.drop_table("checkpoints")
