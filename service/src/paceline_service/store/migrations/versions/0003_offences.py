"""Which nodes and GPUs incidents name, so that who offends again is found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply this migration."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "offences",
        sa.Column("incident_id", identity, nullable=False),
        sa.Column("node", sa.String(length=256), nullable=False),
        sa.Column("gpu_uuid", sa.String(length=96), nullable=False),
        sa.Column("attempt_id", identity, nullable=False),
        sa.Column("opened_wall_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incidents.id"], name=op.f("fk_offences_incident_id")
        ),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_offences_attempt_id")
        ),
        sa.PrimaryKeyConstraint("incident_id", "node", "gpu_uuid", name=op.f("pk_offences")),
    )
    for column in ("node", "opened_wall_ns", "attempt_id"):
        op.create_index(op.f(f"ix_offences_{column}"), "offences", [column])


def downgrade() -> None:
    """Take this migration back."""
    for column in ("attempt_id", "opened_wall_ns", "node"):
        op.drop_index(op.f(f"ix_offences_{column}"), table_name="offences")
    op.drop_table("offences")
