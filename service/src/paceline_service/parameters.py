"""Parameters that many routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

JobName = Annotated[
    str, Path(description="Job name.", pattern=r"^[A-Za-z0-9._-]{1,128}$", examples=["llm-7b"])
]
Attempt = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Attempt, from 1; default: the latest.")
]
MAX_INT64 = 2**63 - 1
SinceWallNs = Annotated[
    int | None, Query(ge=0, le=MAX_INT64, description="Nothing older: ns since the epoch.")
]
