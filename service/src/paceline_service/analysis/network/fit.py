"""Transfer time as alpha + beta * bytes, and bus bandwidth (docs/math/network.md)."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Op
from paceline_service.analysis.costs.calibrate_line import theil_sen
from paceline_service.analysis.records import FloatArray

LEAST_SIZE_RATIO = 2.0
"""Sizes closer together than this cannot tell a start-up time from a price per byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFit:
    """What transfers of one group and operation cost.

    Attributes:
        group: index of the group.
        op: number of the operation, SEND for a pair.
        source, destination: global ranks of a pair, -1 of a collective.
        members: ranks that take part.
        sizes: how many sizes were seen.
        largest_bytes: the largest of them.
        busbw_bytes_per_s: bus bandwidth at that size.
        alpha_ns: time that does not depend on the size; None where it cannot be told.
        beta_ns_per_byte: price of a byte; None likewise.
    """

    group: int
    op: int
    source: int
    destination: int
    members: int
    sizes: int
    largest_bytes: int
    busbw_bytes_per_s: float
    alpha_ns: float | None
    beta_ns_per_byte: float | None


def busbw_factor(op: int, members: int) -> float:
    """Return bus bandwidth over payload per time (nccl-tests, doc/PERFORMANCE.md)."""
    if members < 2:
        return 1.0
    if op == Op.ALL_REDUCE:
        return 2 * (members - 1) / members
    if op in (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER):
        return (members - 1) / members
    return 1.0


def busbw(op: int, members: int, size: float, transfer_ns: float) -> float:
    """Return bus bandwidth, bytes/s; 0 where the time is not positive."""
    if transfer_ns <= 0:
        return 0.0
    return busbw_factor(op, members) * size * 1e9 / transfer_ns


def fit_line(size: FloatArray, transfer_ns: FloatArray, error_ns: FloatArray) -> (
    tuple[float, float] | None
):  # fmt: skip
    """Return (alpha_ns, beta_ns_per_byte), both >= 0, or None where they cannot be told apart.

    The line is that of ``theil_sen``.

    Args:
        size: (n,) bytes, positive.
        transfer_ns: (n,) typical transfer at each size.
        error_ns: (n,) standard error of each.
    """
    if len(size) < 2 or size.max() < LEAST_SIZE_RATIO * size.min():
        return None
    least, most = int(np.argmin(size)), int(np.argmax(size))
    doubt = 3 * float(np.hypot(error_ns[least], error_ns[most]))
    if transfer_ns[most] - transfer_ns[least] <= doubt:
        return None  # the difference may be noise
    alpha, beta = theil_sen(size, transfer_ns[None, :])
    return (float(alpha[0]), float(beta[0])) if beta[0] > 0 else None
