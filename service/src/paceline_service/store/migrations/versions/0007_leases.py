"""To be written: leases."""

from __future__ import annotations

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply this migration."""


def downgrade() -> None:
    """Take this migration back."""
