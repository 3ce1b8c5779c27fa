"""Makes the parts of the bus where there is one; NATS is imported nowhere else without need."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline_service.store.database import Database

if TYPE_CHECKING:
    from paceline_service.bus.parts import BusParts
    from paceline_service.settings import CollectorSettings

BUS_SLACK_S = 4.0
"""What the bus adds between a rank and its settings: two reads of them, and a frame's wait."""


def bus_parts(settings: CollectorSettings, database: Database) -> BusParts | None:
    """Return the parts that the settings ask for; None where everything is one process.

    Raises:
        ConfigError: a role without a bus, a bus without PostgreSQL, or no client for NATS or for
            its credentials.
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
    if importlib.util.find_spec("nats") is None:
        raise ConfigError("--bus needs nats-py: pip install 'paceline-service[nats]'")
    if settings.bus_credentials is not None:
        if importlib.util.find_spec("nkeys") is None:
            raise ConfigError("NATS credentials need nkeys: pip install 'nats-py[nkeys]'")
        if not settings.bus_credentials.is_file():
            raise ConfigError(f"there is no file of NATS credentials at {settings.bus_credentials}")
    from paceline_service.bus.parts import BusParts

    return BusParts(
        settings,
        database,
        queue_bytes=settings.queue_bytes,
        max_world_size=settings.max_world_size,
        rebuild_window_s=settings.rebuild_window_s,
    )
