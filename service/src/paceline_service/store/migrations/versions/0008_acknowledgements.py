"""Who knows of an incident, and what nobody wants to be told of for a while."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply this migration."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "acknowledgements",
        sa.Column("id", identity, nullable=False),
        sa.Column("incident_id", identity, nullable=False),
        sa.Column("at_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.String(length=256), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("withdrawn_wall_ns", sa.BigInteger(), nullable=True),
        sa.Column("withdrawn_by", sa.String(length=256), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_acknowledgements_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acknowledgements")),
    )
    op.create_index(op.f("ix_acknowledgements_incident_id"), "acknowledgements", ["incident_id"])
    op.create_table(
        "silences",
        sa.Column("id", identity, nullable=False),
        sa.Column("job", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("node", sa.String(length=256), nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=True),
        sa.Column("created_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("until_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_wall_ns", sa.BigInteger(), nullable=True),
        sa.Column("ended_by", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.create_index(op.f("ix_silences_until_wall_ns"), "silences", ["until_wall_ns"])


def downgrade() -> None:
    """Take this migration back."""
    op.drop_index(op.f("ix_silences_until_wall_ns"), table_name="silences")
    op.drop_table("silences")
    op.drop_index(op.f("ix_acknowledgements_incident_id"), table_name="acknowledgements")
    op.drop_table("acknowledgements")
