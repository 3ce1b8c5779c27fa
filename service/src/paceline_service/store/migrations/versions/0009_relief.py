"""The stride that the collector asks jobs for while it cannot keep up, and the level agreed on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply this migration."""
    with op.batch_alter_table("job_settings") as table:
        table.add_column(
            sa.Column("relief_stride", sa.Integer(), nullable=False, server_default="1")
        )
    with op.batch_alter_table("setting_agreements") as table:
        table.add_column(
            sa.Column("level", sa.String(length=16), nullable=False, server_default="")
        )


def downgrade() -> None:
    """Take this migration back."""
    with op.batch_alter_table("setting_agreements") as table:
        table.drop_column("level")
    # Rows that only relief has made say nothing that the version before could tell ranks.
    op.execute("DELETE FROM job_settings WHERE level = ''")
    with op.batch_alter_table("job_settings") as table:
        table.drop_column("relief_stride")
