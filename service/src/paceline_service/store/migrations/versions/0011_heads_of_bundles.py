"""What bundles of a stream begin with alike is stored once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_HEADER_BYTES = 20
"""Of a bundle; what was left out of it lies behind."""


def upgrade() -> None:
    """Apply this migration."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "frame_heads",
        sa.Column("frame_id", identity, autoincrement=False, nullable=False),
        sa.Column("attempt_id", identity, nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["job_attempts.id"], name=op.f("fk_frame_heads_attempt_id")
        ),
        sa.PrimaryKeyConstraint("frame_id", name=op.f("pk_frame_heads")),
    )
    op.create_index(op.f("ix_frame_heads_attempt_id"), "frame_heads", ["attempt_id"])
    # In place on both databases: a table of gigabytes is not copied for it.
    op.add_column("frames", sa.Column("head_id", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take this migration back: every bundle gets back what it begins with."""
    op.execute(
        "UPDATE job_attempts SET raw_bytes = raw_bytes + (SELECT COALESCE(SUM(LENGTH(head)), 0) "
        "FROM frames JOIN frame_heads ON frame_heads.frame_id = frames.head_id "
        "WHERE frames.attempt_id = job_attempts.id)"
    )
    # SQLite makes text of bytes that are put together.
    kind = "BYTEA" if op.get_bind().dialect.name == "postgresql" else "BLOB"
    op.execute(
        f"UPDATE frames SET body_bytes = body_bytes + LENGTH(head), "
        f"body = CAST(SUBSTR(body, 1, {_HEADER_BYTES}) || head || "
        f"SUBSTR(body, {_HEADER_BYTES + 1}) AS {kind}) "
        "FROM frame_heads WHERE frame_heads.frame_id = frames.head_id"
    )
    op.drop_column("frames", "head_id")
    op.drop_index(op.f("ix_frame_heads_attempt_id"), table_name="frame_heads")
    op.drop_table("frame_heads")
