"""Tokens that expire and can be revoked; the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TOKEN_COLUMNS = (
    ("created_by", sa.String(length=256), False),
    ("expires_wall_ns", sa.BigInteger(), True),
    ("revoked_wall_ns", sa.BigInteger(), True),
    ("last_used_wall_ns", sa.BigInteger(), True),
    ("requests_per_s", sa.Float(), True),
    ("bytes_per_s", sa.Float(), True),
)


def upgrade() -> None:
    """Apply this migration."""
    with op.batch_alter_table("tokens") as table:
        for name, kind, nullable in _TOKEN_COLUMNS:
            default = None if nullable else ""
            table.add_column(sa.Column(name, kind, nullable=nullable, server_default=default))
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=256), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=256), nullable=False),
        sa.Column("old", sa.Text(), nullable=True),
        sa.Column("new", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_at_wall_ns"), "audit_log", ["at_wall_ns"])


def downgrade() -> None:
    """Take this migration back; a token that was revoked is deleted, or it would live again."""
    op.drop_index(op.f("ix_audit_log_at_wall_ns"), "audit_log")
    op.drop_table("audit_log")
    tokens = sa.table("tokens", sa.column("revoked_wall_ns"), sa.column("expires_wall_ns"))
    op.execute(
        sa.delete(tokens).where(
            tokens.c.revoked_wall_ns.is_not(None) | tokens.c.expires_wall_ns.is_not(None)
        )
    )
    with op.batch_alter_table("tokens") as table:
        for name, _, _ in reversed(_TOKEN_COLUMNS):
            table.drop_column(name)
