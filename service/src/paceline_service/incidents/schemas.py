"""The answers about incidents as types: they make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from paceline.errors import InputError
from paceline.ranks import format_ranks, parse_ranks
from paceline_service.report_schema import Finding, Kind

MAX_SILENCE_S = 90 * 86_400
"""Longer silences are forgotten; what is meant to stay needs another alert rule."""
_RUN = r"\d{1,9}(-\d{1,9}(:\d{1,9})?)?"
_RANK_LIST = rf"^({_RUN}(,{_RUN})*)?$".replace(r"\d", "[0-9]")
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""PostgreSQL keeps no NUL in texts."""


class AcknowledgementView(BaseModel):
    """Somebody knows of the incident."""

    at_wall_ns: int
    by: str
    note: str
    withdrawn_wall_ns: int | None
    withdrawn_by: str


class SilenceView(BaseModel):
    """What alerts leave out; a field that is null covers everything."""

    id: int
    active: bool
    job: str | None
    kind: str | None
    ranks: str | None
    node: str | None
    incident_id: int | None
    created_wall_ns: int
    created_by: str
    note: str
    until_wall_ns: int
    ended_wall_ns: int | None
    ended_by: str | None


class IncidentRow(Finding):
    """A finding of the report with its life."""

    id: int
    job: str
    attempt: int
    open: bool
    opened_wall_ns: int
    updated_wall_ns: int
    closed_wall_ns: int | None
    closed_reason: Literal["recovered", "withdrawn", "ended"] | None
    earlier_incidents: int
    """Of other jobs or launches in the 30 days before, that named the same node or GPU."""
    acknowledged: AcknowledgementView | None
    silenced: SilenceView | None
    """The silence that hides it from alerts now."""


class IncidentDetail(IncidentRow):
    """An incident with all that people said about it."""

    acknowledgements: list[AcknowledgementView]


class IncidentList(BaseModel):
    """Incidents, the newest first."""

    incidents: list[IncidentRow]
    next: str | None = Field(None, description="`cursor` of the next page; null: there is none.")


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
    next: str | None = Field(None, description="`cursor` of the next page; null: there is none.")


class SilenceList(BaseModel):
    """Silences, the newest first."""

    silences: list[SilenceView]
    next: str | None = Field(None, description="`cursor` of the next page; null: there is none.")


class _Said(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"who": "ana", "note": "node drained"}]},
    )

    who: Text = Field("", max_length=128, description="A person; default: the token's name.")
    note: Text = Field("", max_length=2000)


class Acknowledge(_Said):
    """Says that somebody knows of an incident."""


class SilenceIncident(_Said):
    """Silences what an incident is about: its job, kind and ranks."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"for_s": 14400, "who": "ana", "note": "node drained"}]},
    )
    for_s: float = Field(gt=0, le=MAX_SILENCE_S, description="For how long.")


def _rank_list(text: str) -> str:
    try:
        return format_ranks(sorted(set(parse_ranks(text)))) if text else ""
    except InputError as error:
        raise ValueError(str(error)) from error


class NewSilence(SilenceIncident):
    """Silences whatever lies within all that is given; at least one field is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"job": "llm-7b", "ranks": "8-15", "for_s": 3600, "note": "maintenance"}],
            "anyOf": [
                {"required": [name], "properties": {name: {"minLength": 1}}}
                for name in ("job", "kind", "ranks", "node")
            ],
        },
    )
    job: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,128}$")
    kind: Kind | Literal[""] = ""
    ranks: Annotated[str, AfterValidator(_rank_list)] = Field(
        "", max_length=4096, pattern=_RANK_LIST, description="A rank list such as `0-7`."
    )
    node: Text = Field("", max_length=256)
