"""The settings of how long, and how much of it, things are kept."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

_MIB = 1 << 20


class StoreSettings(BaseSettings):
    """Part of ``CollectorSettings``; the oldest goes first, and is counted."""

    database_reader: str = Field(
        "", max_length=63, description="Role of PostgreSQL that may read what dashboards show."
    )
    raw_retention_bytes: int = Field(
        2048 * _MIB, ge=0, description="Raw frames kept in the database; the oldest go first."
    )
    raw_retention_days: float = Field(
        30, gt=0, description="Raw frames that came longer ago are deleted."
    )
    steps_retention_bytes: int = Field(
        1024 * _MIB, ge=0, description="Step summaries kept, in bytes."
    )
    steps_retention_days: float = Field(90, gt=0, description="Step summaries kept, in days.")
    lanes_retention_bytes: int = Field(
        512 * _MIB, ge=0, description="Lanes (busy and idle intervals) kept, in bytes."
    )
    lanes_retention_days: float = Field(7, gt=0, description="Lanes kept, in days.")
    windows_retention_bytes: int = Field(
        512 * _MIB, ge=0, description="Windows of steps per rank kept, in bytes."
    )
    windows_retention_days: float = Field(
        30, gt=0, description="Windows of steps per rank kept, in days."
    )
    incidents_retention_bytes: int = Field(
        256 * _MIB, ge=0, description="Closed incidents kept, in bytes of their findings."
    )
    incidents_retention_days: float = Field(
        365, gt=0, description="Closed incidents kept, in days."
    )
    attempts_retention_bytes: int = Field(
        1024 * _MIB, ge=0, description="Attempts kept, in bytes of their stored states."
    )
    attempts_retention_days: float = Field(
        180, gt=0, description="Attempts that were heard of longer ago are deleted whole."
    )
    offences_retention_days: float = Field(
        400, gt=0, description="How long it is remembered which nodes and GPUs incidents named."
    )
