"""Makes the parts of the bus where there is one; NATS is imported nowhere else without need."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline_service.store.database import Database

if TYPE_CHECKING:
    from paceline_service.bus.parts import BusParts
    from paceline_service.settings import CollectorSettings

_NEEDED = ("nats", "cryptography")
BUS_SLACK_S = 4.0
"""What the bus adds between a rank and its settings: two reads of them, and a frame's wait."""


def bus_parts(settings: CollectorSettings, database: Database) -> BusParts | None:
    """Return the parts that the settings ask for; None where everything is one process.

    Raises:
        ConfigError: a role without a bus, a bus without PostgreSQL, no client for NATS, or
            credentials that cannot be used.
    """
    if not settings.bus_servers:
        if settings.role != "all":
            raise ConfigError(
                f"role {settings.role} needs a bus: give --bus nats://host:4222, or leave --role "
                "out (docs/scale-out.md)"
            )
        return None
    if database.is_sqlite:
        raise ConfigError(
            "--bus shares the jobs with other processes, and they need one PostgreSQL: give "
            "--database postgresql://..., or leave --bus out (docs/scale-out.md)"
        )
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--bus needs {' and '.join(missing)}: pip install 'paceline-service[nats]'"
        )
    from paceline_service.bus.credentials import Credentials, CredentialsError

    if settings.bus_credentials is not None:
        try:
            Credentials(settings.bus_credentials).read()
        except CredentialsError as error:
            raise ConfigError(f"PACELINE_SERVE_BUS_CREDENTIALS: {error}") from None
    from paceline_service.bus.parts import BusParts

    return BusParts(
        settings,
        database,
        queue_bytes=settings.queue_bytes,
        max_world_size=settings.max_world_size,
        rebuild_window_s=settings.rebuild_window_s,
    )
