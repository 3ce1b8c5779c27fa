"""The settings of scale-out (docs/scale-out.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

Role = Literal["all", "gateway", "analyzer"]
GATEWAY, ANALYZER = "gateway", "analyzer"


class BusSettings(BaseSettings):
    """Part of ``CollectorSettings``."""

    role: Role = Field(
        "all", description="gateway takes frames, analyzer analyses them, all does both."
    )
    bus: SecretStr = Field(
        SecretStr(""),
        description="NATS servers, for example `nats://a:4222,nats://b:4222`; empty: one process.",
    )
    bus_credentials: Path | None = Field(
        None, description="File of NATS credentials (`.creds`); it goes before those in the URLs."
    )
    bus_ca: Path | None = Field(
        None, description="PEM file of the authorities that NATS is certified by, with tls:// URLs."
    )
    bus_stream: str = Field(
        "PACELINE_FRAMES", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Name of the stream."
    )
    bus_max_bytes: int = Field(
        8 << 30, ge=1 << 20, description="Frames in the stream; when it is full: 429."
    )
    bus_max_age_s: float = Field(
        0.0, ge=0, description="Frames leave the stream after so long, analysed or not; 0: never."
    )
    bus_duplicate_window_s: float = Field(
        120.0, ge=1, description="The stream knows for so long what it was sent."
    )
    bus_replicas: int = Field(1, ge=1, le=5, description="Copies of the stream in a NATS cluster.")
    lease_s: float = Field(
        10.0, ge=0.5, description="An analyzer that is silent for so long loses its jobs."
    )

    @property
    def bus_servers(self) -> list[str]:
        """The URLs of the NATS servers; none: there is no bus."""
        told = self.bus.get_secret_value()
        return [one.strip() for one in told.split(",") if one.strip()]
