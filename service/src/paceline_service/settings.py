"""Settings of the collector: argument > environment > default, read once at the edge.

docs/configuration.md documents each; a test keeps the two together.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from paceline_service.access.settings import AccessSettings
from paceline_service.access.tokens import Scope
from paceline_service.notify_settings import NotifySettings
from paceline_service.scale_settings import BusSettings
from paceline_service.store.settings import StoreSettings

DEFAULT_PORT = 8750
DATABASE_NAME = "paceline.db"
TOKEN_NAME = "token"
_MIB = 1 << 20


def default_state_dir() -> Path:
    """Return where the database and the token file are kept unless told otherwise."""
    named = os.environ.get("PACELINE_STATE_DIR")
    return Path(named) if named else Path.home() / ".local" / "share" / "paceline"


class CollectorSettings(AccessSettings, BusSettings, NotifySettings, StoreSettings):
    """Everything that ``paceline serve`` can be told; frozen once read."""

    model_config = SettingsConfigDict(
        env_prefix="PACELINE_SERVE_", frozen=True, populate_by_name=True, extra="ignore"
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="TCP port; 0 picks a free one.")
    database: str = Field(
        "", description="Database URL; empty: SQLite file `paceline.db` in the state directory."
    )
    state_dir: Path = Field(
        default_factory=default_state_dir,
        validation_alias=AliasChoices("PACELINE_STATE_DIR", "state_dir"),
        description="Directory of the database and of the token file.",
    )
    token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("PACELINE_TOKEN", "token"),
        description="A token accepted as admin, beside those in the database.",
    )
    ready_file: Path | None = Field(
        None, description="File that gets `{url, pid}` as JSON once the collector listens."
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Host names accepted in the Host header beside the loopback ones (JSON list).",
    )
    max_body_bytes: int = Field(8 * _MIB, ge=4096, description="Largest body of a POST.")
    max_unpacked_bytes: int = Field(
        64 * _MIB, ge=4096, description="Largest sum of unpacked frame sizes that a body promises."
    )
    max_world_size: int = Field(131_072, ge=1, description="Most ranks of one job.")
    reading_bytes: int = Field(
        512 * _MIB,
        ge=4096,
        description="Bodies of POSTs that are being read, half of it for one token; beyond it: "
        "429.",
    )
    queue_bytes: int = Field(
        64 * _MIB, ge=4096, description="Frames waiting for their commit; beyond it: 429."
    )
    backlog_bytes: int = Field(
        256 * _MIB, ge=4096, description="Committed frames waiting for analysis; beyond it: 429."
    )
    reorder_wait_s: float = Field(
        10.0, ge=0, description="How long a missing frame is waited for before it is skipped."
    )
    checkpoint_s: float = Field(
        60.0, gt=0, description="How often the analysis of a running job is written down."
    )
    rebuild_window_s: float = Field(
        3600.0, ge=0, description="Jobs heard of this recently are analysed again at start."
    )
    live_window_s: float = Field(
        900.0,
        ge=15,
        le=3000,
        description="A job silent for this long leaves memory; its store remains. At most 3000: "
        "after an hour of silence retention may delete it.",
    )
    rebuilt_attempts: int = Field(
        8, ge=1, description="Old attempts kept in memory after a request rebuilt them."
    )
    recent_rows_bytes: int = Field(
        64 * _MIB, ge=_MIB, description="Memory for the recent steps of one attempt."
    )
    apart_ranks: int = Field(
        4096,
        ge=0,
        description="Jobs of more ranks are analysed in a process of their own, so that taking "
        "frames and judging steps do not wait for each other; 0: none. With a bus: none.",
    )
    hang_floor_s: float = Field(
        30.0, ge=1, description="No wait that is shorter is called a hang, however short steps are."
    )
    hang_startup_s: float = Field(
        600.0, ge=1, description="The same before the first step of a job is over."
    )
    rank_series: int = Field(
        512, ge=1, description="Most ranks of a job with own series in /metrics; costliest first."
    )
    relief_max_stride: int = Field(
        64,
        ge=1,
        le=10_000,
        description="Largest stride that the collector asks jobs for by itself while it cannot "
        "keep up; 1: it asks for none.",
    )
    log_format: Literal["text", "json"] = Field("text", description="Form of the log's lines.")
    log_level: str = Field("info", description="debug, info, warning or error.")

    @property
    def given_tokens(self) -> dict[Scope, str]:
        """The tokens that were given here, by their scope."""
        named: dict[Scope, SecretStr | None] = {
            "admin": self.token, "ingest": self.ingest_token, "read": self.read_token,
        }  # fmt: skip
        found = {scope: one.get_secret_value() for scope, one in named.items() if one is not None}
        return {scope: token for scope, token in found.items() if token}

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the collector."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def page_url(self) -> str:
        """Where people reach the page, as far as it is known; empty where it is not."""
        if self.public_url or not self.port or not self.loopback:
            return self.public_url
        scheme = "https" if self.tls_cert is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def database_url(self) -> str:
        """The URL as SQLAlchemy wants it, with an asynchronous driver."""
        url = self.database or f"sqlite:///{(self.state_dir / DATABASE_NAME).absolute()}"
        for plain, driver in (("sqlite:", "sqlite+aiosqlite:"), ("postgresql:", _POSTGRESQL)):
            if url.startswith(plain):
                return driver + url[len(plain) :]
        return url

    @property
    def has_database_file(self) -> bool:
        """Whether the database can be opened by another process, which one in memory cannot."""
        return ":memory:" not in self.database_url

    @property
    def token_file(self) -> Path:
        """Where the first start writes its token."""
        return self.state_dir / TOKEN_NAME


_POSTGRESQL = "postgresql+asyncpg:"
