"""The settings of who may do what, and how much of it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

_MIB = 1 << 20


class AccessSettings(BaseSettings):
    """Part of ``CollectorSettings``."""

    ingest_token: SecretStr | None = Field(
        None, description="A token accepted for sending frames, beside those in the database."
    )
    read_token: SecretStr | None = Field(
        None, description="A token accepted for reading, /metrics included; likewise."
    )
    rate_requests_per_s: float = Field(
        10_000, gt=0, description="Most requests per second of one token; beyond it: 429."
    )
    rate_bytes_per_s: float = Field(
        256 * _MIB, gt=0, description="Most bytes of bodies per second of one token."
    )
    max_launches_per_day: int = Field(
        10_000, ge=1, description="Launches of jobs that one token may begin in a day."
    )
    max_live_launches: int = Field(
        4096, ge=1, description="Launches of jobs that are heard of at once, of all tokens."
    )
    max_connections: int = Field(
        16_384, ge=1, description="Most connections at once; beyond it they are closed with 503."
    )
    request_timeout_s: float = Field(
        30.0, gt=0, description="Headers may take so long, and a body may stand still for so long."
    )
    tls_cert: Path | None = Field(
        None, description="PEM file of the certificate, with those between it and the root."
    )
    tls_key: Path | None = Field(None, description="PEM file of its key, without a passphrase.")
    tls_client_ca: Path | None = Field(
        None, description="PEM file of the authorities that clients must be certified by."
    )
    trusted_proxies: list[str] = Field(
        default_factory=list,
        description="Addresses or networks whose X-Forwarded-For and -Proto are believed.",
    )
    public_url: str = Field(
        "", description="Address at which browsers reach the page; needed for signing in."
    )
    oidc_issuer: str = Field("", description="OpenID Connect issuer; empty: tokens only.")
    oidc_client_id: str = Field("", description="The client that the issuer knows us as.")
    oidc_client_secret: SecretStr | None = Field(
        None, description="Its secret, for a confidential client; PKCE is used in any case."
    )
    oidc_scopes: str = Field("openid profile email", description="What is asked of the issuer.")
    oidc_audience: str = Field(
        "", description="`aud` of JWTs accepted as bearer tokens; empty: none are."
    )
    oidc_roles_claim: str = Field(
        "groups", description="Claim that holds roles; dots lead into objects."
    )
    oidc_read_roles: list[str] = Field(
        default_factory=list, description="Roles that may read (JSON list); `*`: everybody."
    )
    oidc_admin_roles: list[str] = Field(
        default_factory=list, description="Roles that may administer (JSON list)."
    )
    oidc_jobs_claim: str = Field(
        "",
        description="Claim that holds the job prefix of a person, `*`: all jobs; dots lead into "
        "objects. Empty: people read all jobs.",
    )
    session_s: float = Field(
        3600.0, gt=0, le=86_400, description="How long a session of a person lasts."
    )
    session_key: SecretStr | None = Field(
        None, description="Signs sessions, for several gateways; unset: a new one each start."
    )
    audit_retention_days: float = Field(
        400, gt=0, description="Entries of the audit log are deleted after so many days."
    )
