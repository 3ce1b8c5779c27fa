from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paceline_service.store.database import Database
from tests.integration.store.kit import async_url


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'paceline.db'}")
    else:
        database = Database(async_url(request.getfixturevalue("postgres_url")))
    yield database
    await database.close()
