"""What the routes of administrators take and give."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_SCOPE = Literal["ingest", "read", "admin"]


class NewToken(BaseModel):
    """A token that is to be made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    scopes: list[_SCOPE] = Field(min_length=1, max_length=3)
    name: str = Field("", max_length=128, description="For lists and the audit log.")
    job_prefix: str = Field("", pattern="^[A-Za-z0-9._-]{0,128}$")
    expires_in_s: float | None = Field(None, gt=0, le=3.2e9, description="null: never.")
    requests_per_s: float | None = Field(
        None, gt=0, le=1e9, description="null: what the collector's settings say."
    )
    bytes_per_s: float | None = Field(None, gt=0, le=1e12, description="The same for bodies.")


class TokenView(BaseModel):
    """A token, without itself."""

    id: int
    name: str
    scopes: list[str]
    job_prefix: str
    state: Literal["usable", "expired", "revoked"]
    created_wall_ns: int
    created_by: str
    expires_wall_ns: int | None
    revoked_wall_ns: int | None
    last_used_wall_ns: int | None
    requests_per_s: float | None
    bytes_per_s: float | None


class MadeToken(TokenView):
    """The only answer that ever holds a token."""

    token: str


class TokenList(BaseModel):
    """Tokens in the order in which they were made."""

    tokens: list[TokenView]
    next_after: int | None = Field(description="`after` of the next page; null: there is none.")


class AuditView(BaseModel):
    """Something that an administrator did."""

    id: int
    at_wall_ns: int
    actor: str
    address: str
    action: str
    target: str
    old: Any
    new: Any


class AuditList(BaseModel):
    """Entries of the audit log, the newest first."""

    entries: list[AuditView]
    next_before: int | None = Field(description="`before` of the next page; null: there is none.")


class SessionView(BaseModel):
    """Whether people can sign in, and who is."""

    sign_in: bool
    name: str | None
    scopes: list[str]
