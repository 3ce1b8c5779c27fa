"""The settings of who may do what, and how much of it."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

_MIB = 1 << 20


class AccessSettings(BaseSettings):
    """Part of ``CollectorSettings``."""

    rate_requests_per_s: float = Field(
        10_000, gt=0, description="Most requests per second of one token; beyond it: 429."
    )
    rate_bytes_per_s: float = Field(
        256 * _MIB, gt=0, description="Most bytes of bodies per second of one token."
    )
    audit_retention_days: float = Field(
        400, gt=0, description="Entries of the audit log are deleted after so many days."
    )
