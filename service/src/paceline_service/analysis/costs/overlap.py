"""Gradients that are reduced while the backward pass goes on (docs/math/overlap.md).

The backward pass makes gradients at an even pace, a bucket is sent when it is full, and buckets go
one after the other. Backward T_b and the whole all-reduce in one piece a + T_c, with a for its
messages' latency; n equal buckets cost a + T_c / n each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.errors import ConfigError
from paceline_service.analysis.costs.units import not_negative, positive, whole

BUCKET_BYTES = 25 * 2**20
"""Of torch's DistributedDataParallel (bucket_cap_mb = 25)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTime:
    """One bucket, in seconds since the backward pass began."""

    ready_s: float
    """Its last gradient is there."""
    begin_s: float
    """Its all-reduce begins; later than ready while the one before it still runs."""
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A backward pass and the all-reduce of its gradients.

    Attributes:
        backward_s: T_b, without any communication.
        latency_s: a, what an all-reduce of nothing takes; each bucket pays it.
        transfer_s: T_c, what all gradients take beyond that, however they are cut.
    """

    backward_s: float
    latency_s: float
    transfer_s: float

    def __post_init__(self) -> None:
        """Check the times.

        Raises:
            ConfigError: one is negative or infinite.
        """
        positive(self.backward_s, "--backward", "seconds")
        not_negative(self.latency_s, "the latency of an all-reduce", "seconds")
        positive(self.transfer_s, "the transfer of an all-reduce", "seconds")

    @property
    def all_reduce_s(self) -> float:
        """One all-reduce of all gradients."""
        return self.latency_s + self.transfer_s

    @property
    def naive_s(self) -> float:
        """Backward, then one all-reduce (eq. 1)."""
        return self.backward_s + self.all_reduce_s

    @property
    def bound_s(self) -> float:
        """No schedule is faster, with buckets as small as one likes and no latency (eq. 2)."""
        return max(self.backward_s, self.transfer_s)

    def bucketed_s(self, buckets: int) -> float:
        """Return when the last of ``buckets`` equal buckets is reduced (eq. 3)."""
        n = whole(buckets, "--buckets", "buckets")
        cost = self.latency_s + self.transfer_s / n
        return max(self.backward_s + cost, self.backward_s / n + n * cost)

    def exposed_s(self, buckets: int) -> float:
        """Return what of the communication the backward pass does not hide (eq. 4)."""
        return self.bucketed_s(buckets) - self.backward_s

    def residual_s(self, buckets: int) -> float:
        """Return the all-reduce of the last bucket, which begins when the backward is over."""
        return self.latency_s + self.transfer_s / whole(buckets, "--buckets", "buckets")

    def hidden_ratio(self, buckets: int) -> float:
        """Return the share of the communication that is hidden, as traces tell it (eq. 5)."""
        spent = buckets * self.latency_s + self.transfer_s
        return max(0.0, 1.0 - self.exposed_s(buckets) / spent)

    def best_buckets(self, most: int = 1_000_000) -> int:
        """Return the number of equal buckets with which the pass ends first (eq. 6).

        Args:
            most: none beyond, which is what decides where latency is zero.
        """
        if self.latency_s == 0:
            return most
        crossing = (self.backward_s - self.transfer_s) / self.latency_s
        best = max(crossing, math.sqrt(self.backward_s / self.latency_s), 1.0)
        near = {min(max(int(best) + more, 1), most) for more in (0, 1)}
        return min(sorted(near), key=self.bucketed_s)

    def good_buckets(self, tolerance: float = 0.01, most: int = 1_000_000) -> tuple[int, int]:
        """Return the fewest and the most equal buckets that are nearly as good as the best.

        Args:
            tolerance: by what share the pass may end later than with the best.
            most: none beyond.
        """
        best = self.best_buckets(most)
        limit_s = self.bucketed_s(best) * (1 + tolerance)
        fewest = _first(1, best, lambda count: self.bucketed_s(count) <= limit_s)
        beyond = _first(best, most + 1, lambda count: self.bucketed_s(count) > limit_s)
        return fewest, beyond - 1


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from ``low`` on for which a test holds; ``high`` is taken to."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def timeline(ready_s: Sequence[float], cost_s: Sequence[float]) -> list[BucketTime]:
    """Return when each bucket is reduced, in the order in which they are ready (eq. 7).

    Args:
        ready_s: (n,) ascending.
        cost_s: (n,) what each one's all-reduce takes.

    Raises:
        ConfigError: the times do not ascend, or there are not as many of one as of the other.
    """
    if len(ready_s) != len(cost_s) or list(ready_s) != sorted(ready_s):
        raise ConfigError("buckets need one time and one cost each, in the order of their times")
    done, free_s = [], 0.0
    for ready, cost in zip(ready_s, cost_s, strict=True):
        begin = max(ready, free_s)
        free_s = begin + cost
        done.append(BucketTime(ready_s=ready, begin_s=begin, end_s=free_s))
    return done


def sized_buckets(overlap: Overlap, sizes: Sequence[int]) -> list[BucketTime]:
    """Return the timeline of buckets of any sizes, in the order in which they fill (eq. 8).

    Of equal ones it ends at ``bucketed_s``.

    Args:
        overlap: backward and all-reduce.
        sizes: (n,) of the buckets; together they are all gradients.
    """
    total, filled, ready, cost = sum(sizes), 0, [], []
    for size in sizes:
        filled += size
        ready.append(overlap.backward_s * filled / total)
        cost.append(overlap.latency_s + overlap.transfer_s * size / total)
    return timeline(ready, cost)


def equal_sizes(gradient_bytes: int, buckets: int) -> list[int]:
    """Return the sizes of so many buckets, which differ by a byte at most.

    Raises:
        ConfigError: there are fewer bytes than buckets.
    """
    if whole(buckets, "--buckets", "buckets") > gradient_bytes:
        raise ConfigError(f"--buckets is {buckets}, more than the {gradient_bytes} bytes there are")
    ends = [gradient_bytes * place // buckets for place in range(buckets + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def bucket_sizes(
    gradient_bytes: int, bucket_bytes: int, first_bytes: int | None = None
) -> list[int]:
    """Return the sizes of buckets in the order in which they fill; what is left over is last.

    Args:
        gradient_bytes: all gradients.
        bucket_bytes: of each bucket but the first and the last.
        first_bytes: of the first, as torch's DDP has it (1 MiB); None for ``bucket_bytes``.
    """
    left = whole(gradient_bytes, "--gradients", "bytes")
    bucket = whole(bucket_bytes, "--bucket", "bytes")
    count = left / bucket
    if count > 1e6:
        raise ConfigError(
            f"--bucket of {bucket} bytes makes {count:,.0f} buckets: give one that makes fewer "
            "than a million"
        )
    sizes = [min(left, first_bytes if first_bytes is not None else bucket)]
    left -= sizes[0]
    sizes += [bucket] * (left // bucket)
    return [*sizes, left % bucket] if left % bucket else sizes
