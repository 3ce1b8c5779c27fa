"""The tables and plots of ``paceline plan collectives``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline_service.analysis.costs.words import bytes_of, digits, duration_of
from paceline_service.commands.answer import Table
from paceline_service.commands.plan_collectives_words import Judged

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_GB = 1e9
_POINTS = 80
_LEAST = "bound"


def costs_table(judged: Judged) -> Table:
    """Return what each algorithm is made of."""
    rows = [
        [name, duration_of(cost.latency_s), duration_of(cost.s_per_byte * _GB),
         bytes_of(cost.even_bytes())]
        for name, cost in [*judged.costs.items(), (_LEAST, judged.least)]
    ]  # fmt: skip
    return Table(
        title=f"{judged.name} of {judged.machine.ranks:,} ranks",
        heads=["algorithm", "latency", "each GB", "mostly latency below"],
        rows=rows,
        sentences=[f"{_LEAST}: what no algorithm beats, latency and bytes each for itself"],
    )


def sizes_table(judged: Judged) -> Table:
    """Return the time of each algorithm at each size."""
    rows = [
        [bytes_of(size),
         *(duration_of(cost.seconds(size)) for cost in judged.costs.values()),
         judged.best(size), digits(judged.busbw(size) / _GB)]
        for size in judged.payloads
    ]  # fmt: skip
    names = [name.replace(" ", "\n") for name in judged.costs]
    return Table(
        title=f"Time of one {judged.name}, by payload",
        heads=["payload", *names, "cheapest", "its busbw\nGB/s"],
        rows=rows,
        plots=lambda: _plots(judged),
    )


def _plots(judged: Judged) -> list[Drawing]:
    from paceline_service.export.plots import Line, Mark, plot

    low, high = judged.payloads[0], max(judged.payloads[-1], judged.payloads[0] * 10)
    sizes = [low * (high / low) ** (place / _POINTS) for place in range(_POINTS + 1)]
    marks = [Mark(at, f"{name} from {bytes_of(at)} on") for at, name in judged.cheapest if at > 0]
    times = plot(
        f"Time of one {judged.name}, {judged.machine.ranks:,} ranks", "bytes", "ms",
        [
            *(Line(name, sizes, [cost.seconds(size) * 1e3 for size in sizes])
              for name, cost in judged.costs.items()),
            Line("no algorithm is faster", sizes, [judged.least_s(size) * 1e3 for size in sizes]),
        ],
        log_x=True, log_y=True, marks=marks,
    )  # fmt: skip
    speed = plot(
        "Bus bandwidth of the cheapest: what nccl-tests should show", "bytes", "GB/s",
        [Line("bus bandwidth", sizes, [judged.busbw(size) / _GB for size in sizes])],
        log_x=True, marks=marks,
    )  # fmt: skip
    return [times, speed]
