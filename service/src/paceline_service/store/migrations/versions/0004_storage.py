"""To be written: storage."""

from __future__ import annotations

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply this migration."""


def downgrade() -> None:
    """Take this migration back."""
