"""The answers about incidents as types: they make the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel


class IncidentRow(BaseModel):
    """A finding of the report with its life."""

    id: int
    kind: str
    ranks: list[int]
    cause: str
    phase: str | None
    first_step: int | None
    last_step: int | None
    open: bool
    opened_wall_ns: int
    updated_wall_ns: int
    closed_wall_ns: int | None
    closed_reason: str | None


class IncidentList(BaseModel):
    """The incidents of one attempt, the newest first."""

    incidents: list[IncidentRow]
