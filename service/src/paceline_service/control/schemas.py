"""Settings as the API takes and shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, with_config
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from paceline.ring.control import MAX_STRIDE
from paceline.wire.settings import MAX_TELEMETRY_INTERVAL_S, MIN_TELEMETRY_INTERVAL_S

Level = Literal["off", "steps", "collectives", "full"]


def _not_too_often(interval_s: float) -> float:
    if 0 < interval_s < MIN_TELEMETRY_INTERVAL_S:
        raise ValueError(
            f"{interval_s} s is under {MIN_TELEMETRY_INTERVAL_S} s, the shortest interval; 0 is off"
        )
    return interval_s


_OFTEN_ENOUGH = {
    "type": "number",
    "minimum": MIN_TELEMETRY_INTERVAL_S,
    "maximum": MAX_TELEMETRY_INTERVAL_S,
}
Interval = Annotated[
    float,
    Field(ge=0, le=MAX_TELEMETRY_INTERVAL_S),
    AfterValidator(_not_too_often),
    WithJsonSchema({"anyOf": [{"const": 0}, _OFTEN_ENOUGH]}),
]
_SHAPE: JsonDict = {"minProperties": 1, "examples": [{"level": "collectives", "stride": 5}]}


@with_config(ConfigDict(extra="forbid", strict=True, json_schema_extra=_SHAPE))
class SettingsChange(TypedDict, total=False):
    """What is to change; what is left out stays as it is."""

    level: Level
    stride: Annotated[int, Field(ge=1, le=MAX_STRIDE)]
    enabled: bool
    telemetry_interval_s: Interval | None
    """Seconds; 0 is off, null is as each sidecar was started."""


class Followers(BaseModel):
    """Running ranks by what they do, each a rank list such as ``0-6``."""

    follows: str
    """From the agreed step on, or at once because they began later or count no steps."""
    waits: str
    """The step is still ahead of them."""
    missed: dict[int, int]
    """By rank: the step from which it follows, later than the others."""
    silent: str
    """They are past the step and do not say that they follow."""


class JobSettingsView(BaseModel):
    """What a job is to record, from which step on, and who follows.

    Without settings ``generation`` is 0 and the ranks do what ``PACELINE_LEVEL`` says.
    """

    job: str
    attempt: int
    generation: int
    level: Level | None
    stride: int | None
    relief_stride: int
    """The larger one of the two strides holds. This one the collector asks for by itself while it
    cannot keep up; 1: it does not."""
    enabled: bool | None
    telemetry_interval_s: float | None
    updated_wall_ns: int | None
    updated_by: str | None
    effective_step: int | None
    """None: not agreed yet, because the attempt is not running or not all its ranks are heard."""
    agreed_wall_ns: int | None
    ranks: Followers
