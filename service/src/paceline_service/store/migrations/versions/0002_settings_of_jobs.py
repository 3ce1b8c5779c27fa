"""Settings of jobs, and the steps that their attempts agreed on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply this migration."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "job_settings",
        sa.Column("job_id", identity, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("stride", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("telemetry_interval_s", sa.Float(), nullable=True),
        sa.Column("updated_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_by", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_settings_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_settings")),
    )
    op.create_table(
        "setting_agreements",
        sa.Column("attempt_id", identity, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("effective_step", sa.BigInteger(), nullable=False),
        sa.Column("agreed_wall_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_setting_agreements_attempt_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_setting_agreements")),
    )


def downgrade() -> None:
    """Take this migration back."""
    op.drop_table("setting_agreements")
    op.drop_table("job_settings")
