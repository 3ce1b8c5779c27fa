from __future__ import annotations

from tests.integration.postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]
