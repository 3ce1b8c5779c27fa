"""What the answer to frames asks of their launches (docs/control.md)."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_SETTINGS = 1024
"""Of one answer; a node that serves more launches at once there is not."""
MIN_TELEMETRY_INTERVAL_S = 0.1
MAX_TELEMETRY_INTERVAL_S = 60.0
"""What a sidecar can do; 0 is off."""


class LaunchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch of a job records from ``effective_step`` on."""

    job: str
    run_id: str
    attempt: int
    """The launcher's count of restarts, as in its frames."""
    generation: int
    effective_step: int
    level: str
    stride: int
    telemetry_interval_s: float | None = None
    """None: as the sidecar was started."""


def read_settings(content: Any) -> list[LaunchSettings]:
    """Return the settings in an answer; what cannot be read is left out."""
    if not isinstance(content, list):
        return []
    found = []
    for one in content[:MAX_SETTINGS]:
        try:
            settings = msgspec.convert(one, LaunchSettings)
        except msgspec.ValidationError:
            continue
        interval_s = settings.telemetry_interval_s
        if interval_s is None or 0 <= interval_s <= MAX_TELEMETRY_INTERVAL_S:
            found.append(settings)
    return found
