"""What no importer goes beyond, whatever its files say."""

from __future__ import annotations

MAX_RANKS = 1_000_000
"""Of one job, as many as the analysis takes; a higher number in a file is no rank."""
