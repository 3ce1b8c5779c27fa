"""What waits for the next frame of one rank: bounded, and without repeating what is unchanged."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from paceline.telemetry import REFRESH_NS, Kind, Value, Values, kind_of

MAX_SAMPLES = 1024
"""Of one frame; wire v1 says so too."""
MAX_VALUES = 20_000
"""Of one frame: its unpacked size is limited, and samples are not all of one size."""
_KINDS: dict[str, Kind] = {}
_MAX_KINDS = 4096


class Sample(NamedTuple):
    """Values of one moment on the clock of the rank's records."""

    time_ns: int
    values: Values


class TelemetryBuffer:
    """Samples of one rank, in the order of their arrival."""

    def __init__(self) -> None:
        self.dropped = 0
        """Samples that had no room, or no time on the rank's clock."""
        self._samples: deque[Sample] = deque()
        self._values = 0
        self._given = 0
        self._sent: dict[str, tuple[Value, int]] = {}

    def add(self, time_ns: int, values: Values) -> None:
        """Take a sample; of facts and counters only what is new or was said a minute ago."""
        news: Values = {}
        for name, value in values.items():
            kind = _kind(name)
            if kind is Kind.COUNTER or kind is Kind.FACT:
                said = self._sent.get(name)
                if said is not None and said[0] == value and time_ns - said[1] < REFRESH_NS:
                    continue
                self._sent[name] = (value, time_ns)
            news[name] = value
        if not news:
            return
        self._samples.append(Sample(time_ns, news))
        self._values += len(news)
        while len(self._samples) > MAX_SAMPLES or self._values > MAX_VALUES:
            self._values -= len(self._samples.popleft().values)
            self._given = max(self._given - 1, 0)
            self.dropped += 1
            self._sent.clear()  # what was lost may have been news

    def give(self) -> list[Sample]:
        """Return all samples; ``taken`` forgets them."""
        self._given = len(self._samples)
        return list(self._samples)

    def taken(self) -> None:
        """The samples given out last are stored."""
        for _ in range(self._given):
            self._values -= len(self._samples.popleft().values)
        self._given = 0


def _kind(name: str) -> Kind:
    kind = _KINDS.get(name)
    if kind is None:
        kind = kind_of(name)
        if len(_KINDS) < _MAX_KINDS:
            _KINDS[name] = kind
    return kind
