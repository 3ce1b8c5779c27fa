"""How much one token may ask for: a token bucket for requests and one for bytes.

A request is let in while both are above zero; what it then costs is taken off, so that a large
body may overdraw the bytes and the next one waits until they are made up for.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 2.0
"""A bucket holds what its rate gives in this time."""
LONGEST_WAIT_S = 86_400.0
"""Nobody is told to wait for longer, however seldom he may come."""
MAX_BUCKETS = 20_000
"""More bearers than tokens and people of one collector; the longest unused are forgotten."""


@dataclass(slots=True)
class _Bucket:
    requests: float
    bytes: float
    at_s: float


class RateLimiter:
    """Buckets by bearer. On the event loop.

    Args:
        requests_per_s: of a bearer without limits of its own.
        bytes_per_s: the same for bodies.
        clock_s: monotonic.
    """

    def __init__(
        self,
        requests_per_s: float,
        bytes_per_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests_per_s = requests_per_s
        self._bytes_per_s = bytes_per_s
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def admit(
        self, bearer: str, requests_per_s: float | None = None, bytes_per_s: float | None = None
    ) -> tuple[str, float, float]:
        """Take one request off ``bearer``.

        Returns:
            What is exhausted (``requests``, ``bytes`` or nothing), its limit per second, and how
            many seconds to wait for it.
        """
        requests_rate = requests_per_s or self._requests_per_s
        bytes_rate = bytes_per_s or self._bytes_per_s
        now_s = self._clock_s()
        bucket = self._buckets.get(bearer)
        most = max(requests_rate * BURST_S, 1.0)
        if bucket is None:
            bucket = self._buckets[bearer] = _Bucket(most, bytes_rate * BURST_S, now_s)
            while len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            passed_s = max(now_s - bucket.at_s, 0.0)
            bucket.requests = min(bucket.requests + passed_s * requests_rate, most)
            bucket.bytes = min(bucket.bytes + passed_s * bytes_rate, bytes_rate * BURST_S)
            bucket.at_s = now_s
            self._buckets.move_to_end(bearer)
        if bucket.requests < 1.0:
            wait_s = (1.0 - bucket.requests) / requests_rate
            return "requests", requests_rate, min(wait_s, LONGEST_WAIT_S)
        if bucket.bytes <= 0.0:
            return "bytes", bytes_rate, min(-bucket.bytes / bytes_rate, LONGEST_WAIT_S)
        bucket.requests -= 1.0
        return "", 0.0, 0.0

    def spend(self, bearer: str, size_bytes: int) -> None:
        """Take the bytes of a body off ``bearer``, which was admitted before."""
        bucket = self._buckets.get(bearer)
        if bucket is not None:
            bucket.bytes -= size_bytes
