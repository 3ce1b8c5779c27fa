"""Who analyses which partition of the bus; frame ids that several processes may take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_FIRST_ID = """
SELECT setval('frame_ids', GREATEST(
    (SELECT COALESCE(MAX(id), 0) FROM frames),
    (SELECT COALESCE(MAX(last_frame_id), 0) FROM job_attempts)
) + 1, false)
"""


def upgrade() -> None:
    """Apply this migration."""
    op.create_table(
        "leases",
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_wall_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("partition", name=op.f("pk_leases")),
    )
    op.create_table(
        "analyzers",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("seen_wall_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_analyzers")),
    )
    op.add_column(
        "job_attempts",
        sa.Column("state_version", sa.BigInteger(), server_default="0", nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE SEQUENCE frame_ids")
        op.execute(_FIRST_ID)


def downgrade() -> None:
    """Take this migration back."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP SEQUENCE frame_ids")
    # Not in a batch: SQLite would make the table anew, and its rows are referred to.
    op.execute("ALTER TABLE job_attempts DROP COLUMN state_version")
    op.drop_table("analyzers")
    op.drop_table("leases")
