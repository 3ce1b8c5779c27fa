"""To be written: security."""

from __future__ import annotations

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply this migration."""


def downgrade() -> None:
    """Take this migration back."""
