"""The plots of ``paceline plan overlap`` and ``paceline simulate overlap``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paceline_service.analysis.costs.overlap import BucketTime
from paceline_service.analysis.costs.words import bytes_of
from paceline_service.commands.overlap_options import Asked
from paceline_service.export.plots import Drawing, Lane, Line, Mark, Span, lanes, plot

_MS, _MB, _POINTS = 1e3, 1e6, 80


def sweep_plots(asked: Asked, best: int) -> list[Drawing]:
    """Return what is exposed over the bucket size, and the two things that make it."""
    model, size = asked.model, asked.gradient_bytes
    most = max(20 * best, 200)
    counts = sorted({round(most ** (place / _POINTS)) for place in range(_POINTS + 1)})[::-1]
    sizes = [size / count / _MB for count in counts]
    drawn = plot(
        "What is not hidden, by bucket size", "bucket size, MB", "ms",
        [
            Line("exposed", sizes, [model.exposed_s(count) * _MS for count in counts]),
            Line("last bucket alone", sizes, [model.residual_s(count) * _MS for count in counts]),
            Line("latency of all buckets", sizes,
                 [count * model.latency_s * _MS for count in counts]),
        ],
        log_x=True, log_y=True,
        marks=[Mark(size / best / _MB, f"best: {bytes_of(size / best)}")],
    )  # fmt: skip
    return [drawn]


def timeline_plot(asked: Asked, buckets: Sequence[BucketTime]) -> Drawing:
    """Return the backward pass and the link as two lanes."""
    before = [0.0, *(bucket.ready_s for bucket in buckets)]
    works = [
        Span(begin * _MS, end * _MS, "backward", says=f"fills bucket {number}")
        for number, (begin, end) in enumerate(pairwise(before), start=1)
    ]
    over_s = asked.model.backward_s
    sends = [
        Span(one.begin_s * _MS, one.end_s * _MS, "comm", says=f"bucket {number}")
        for number, one in enumerate(buckets, start=1)
    ]
    return lanes(
        "Backward pass and all-reduces", "ms",
        [Lane("backward", works), Lane("all-reduce", sends)],
        {"backward": "computes gradients", "comm": "all-reduce of a bucket"},
        barriers=[over_s * _MS],
    )  # fmt: skip
