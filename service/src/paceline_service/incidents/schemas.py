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
    earlier_incidents: int
    """Of other jobs or launches in the 30 days before, that named the same node or GPU."""


class IncidentList(BaseModel):
    """The incidents of one attempt, the newest first."""

    incidents: list[IncidentRow]


class OffenderRow(BaseModel):
    """A node, or one of its GPUs, that incidents named."""

    node: str
    gpu_uuid: str | None
    incidents: int
    jobs: list[str]
    causes: list[str]
    first_wall_ns: int
    last_wall_ns: int


class OffenderList(BaseModel):
    """Who was named, first who was named in the most jobs."""

    offenders: list[OffenderRow]
