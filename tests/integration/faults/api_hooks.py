"""For schemathesis: bodies of ``POST /v1/frames`` are real frames, mutated (``tests/fuzz``)."""

from __future__ import annotations

import random
from typing import Any

import schemathesis

from paceline.wire.codec import CONTENT_TYPE
from tests.fuzz.targets import frames

_SEEDS = sorted(frames.seeds().items())


@schemathesis.serializer(CONTENT_TYPE)
def frames_body(context: Any, value: Any) -> bytes:
    """Return mutated frames for most values, and what schemathesis made for the others."""
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    rng = random.Random(raw)
    if rng.random() < 0.2:
        return raw
    body = rng.choice(_SEEDS)[1]
    for _ in range(rng.randrange(4)):
        body = frames.mutate(body, rng)
    return body
