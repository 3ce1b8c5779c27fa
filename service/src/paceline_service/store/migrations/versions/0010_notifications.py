"""Messages about incidents, and what was done to nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply this migration."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "notifications",
        sa.Column("incident_id", identity, autoincrement=False, nullable=False),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("delivered", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("thread", sa.String(length=256), nullable=False),
        sa.Column("uncertain", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("made_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("next_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("told_wall_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.String(length=512), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_notifications_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident_id", "channel", name=op.f("pk_notifications")),
    )
    op.create_index(op.f("ix_notifications_state"), "notifications", ["state"])
    op.create_table(
        "node_actions",
        sa.Column("id", identity, nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        sa.Column("job", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=256), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("takes_capacity", sa.Boolean(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("begun_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_wall_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_actions")),
    )
    for column in ("incident_id", "begun_wall_ns", "state"):
        op.create_index(op.f(f"ix_node_actions_{column}"), "node_actions", [column])
    # Who tells people of incidents asks every few seconds which have changed.
    op.create_index(op.f("ix_incidents_updated_wall_ns"), "incidents", ["updated_wall_ns"])


def downgrade() -> None:
    """Take this migration back."""
    op.drop_index(op.f("ix_incidents_updated_wall_ns"), table_name="incidents")
    for column in ("state", "begun_wall_ns", "incident_id"):
        op.drop_index(op.f(f"ix_node_actions_{column}"), table_name="node_actions")
    op.drop_table("node_actions")
    op.drop_index(op.f("ix_notifications_state"), table_name="notifications")
    op.drop_table("notifications")
