"""What the doctor says of one thing."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. ``remedy`` is empty where nothing needs doing."""

    name: str
    status: str
    found: str
    remedy: str = ""
