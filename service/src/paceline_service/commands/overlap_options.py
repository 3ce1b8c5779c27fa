"""The arguments that ``plan overlap`` and ``simulate overlap`` share, and the model they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.alpha_beta import Link, Machine
from paceline_service.analysis.costs.collectives import ring_all_reduce
from paceline_service.analysis.costs.overlap import Overlap
from paceline_service.analysis.costs.words import bandwidth_of, bytes_of, duration_of

Backward = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of the backward pass without communication; 200ms."),
]
AllReduce = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of all gradients in one piece, latency included; 60ms."),
]
Gradients = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="All gradients: 800MB. Two of it, --all-reduce and "
                 "--bandwidth tell the third."),
]  # fmt: skip
Bandwidth = Annotated[
    str | None, typer.Option(metavar="B", help="Out of a rank: 25GB/s or 200Gb/s.")
]
Latency = Annotated[str | None, typer.Option(metavar="TIME", help="Of a message (alpha); 5us.")]
Launch = Annotated[
    str, typer.Option(metavar="TIME", help="What each all-reduce costs besides: its launch.")
]
Ranks = Annotated[str | None, typer.Option(metavar="K", help="Ranks in the ring; 8.")]
_BACKWARD, _ALL_REDUCE, _BANDWIDTH, _LATENCY, _RANKS = "200ms", "60ms", "25GB/s", "5us", "8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked, understood.

    Attributes:
        model: backward, latency and transfer.
        ranks: K.
        alpha_s: of a message.
        launch_s: of an all-reduce.
        bytes_per_s: B.
        gradient_bytes: of all gradients.
        sized: whether they are known, and not only how long they take.
    """

    model: Overlap
    ranks: int
    alpha_s: float
    launch_s: float
    bytes_per_s: float
    gradient_bytes: int
    sized: bool = True

    def told(self) -> dict[str, object]:
        """Return the arguments in base units, for JSON."""
        return {
            "backward_s": self.model.backward_s, "all_reduce_s": self.model.all_reduce_s,
            "gradient_bytes": self.gradient_bytes if self.sized else None,
            "bytes_per_s": self.bytes_per_s if self.sized else None,
            "ranks": self.ranks, "alpha_s": self.alpha_s, "launch_s": self.launch_s,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return them in words."""
        model = self.model
        if not self.sized:
            return [
                f"backward pass {duration_of(model.backward_s)}, gradients made at an even pace; "
                f"their all-reduce in one piece takes {duration_of(model.all_reduce_s)}",
                "give --gradients to see sizes of buckets, and --latency for the best of them",
            ]
        launch = f", launch {duration_of(self.launch_s)}" if self.launch_s else ""
        return [
            f"backward pass {duration_of(model.backward_s)}; all gradients are "
            f"{bytes_of(self.gradient_bytes)}, made at an even pace",
            f"one ring all-reduce of them among {self.ranks} ranks takes "
            f"{duration_of(model.all_reduce_s)} at {bandwidth_of(self.bytes_per_s)} out of a rank",
            f"each all-reduce takes {duration_of(model.latency_s)} however small it is: "
            f"2 (K-1) messages of {duration_of(self.alpha_s)}{launch}",
        ]


def asked_overlap(
    backward: str | None, all_reduce: str | None, gradients: str | None, bandwidth: str | None,
    latency: str | None, launch: str, ranks: str | None,
) -> Asked:  # fmt: skip
    """Return the model that the arguments tell.

    Raises:
        ConfigError: they say one thing twice, or the all-reduce is shorter than its latency.
    """
    if None not in (all_reduce, gradients, bandwidth):
        raise ConfigError(
            "--all-reduce, --gradients and --bandwidth are given: two of them tell the third, "
            "leave one out"
        )
    count = units.group_of(units.parse_count(ranks or _RANKS, "--ranks", unit="ranks"))
    alpha_s = units.parse_duration_s(latency or _LATENCY, "--latency", zero=True)
    launch_s = units.parse_duration_s(launch, "--launch", zero=True)
    fixed_s = 2 * (count - 1) * alpha_s + launch_s
    size = None if gradients is None else units.parse_bytes(gradients, "--gradients")
    speed = None if bandwidth is None else units.parse_bandwidth(bandwidth, "--bandwidth")
    if size is not None and all_reduce is None:
        speed = speed or units.parse_bandwidth(_BANDWIDTH, "--bandwidth")
        transfer_s = _cost(count, speed) * size
    else:
        text = all_reduce or _ALL_REDUCE
        transfer_s = units.parse_duration_s(text, "--all-reduce") - fixed_s
        if transfer_s <= 0:
            raise ConfigError(
                f"--all-reduce is {text}, no longer than its latency, {duration_of(fixed_s)} with "
                f"{count} ranks: give what all gradients take, or a shorter --latency"
            )
        if size is None:
            speed = speed or units.parse_bandwidth(_BANDWIDTH, "--bandwidth")
            size = max(round(transfer_s / _cost(count, speed)), 1)
        else:
            speed = _cost(count, 1.0) * size / transfer_s
    model = Overlap(
        backward_s=units.parse_duration_s(backward or _BACKWARD, "--backward"),
        latency_s=fixed_s, transfer_s=transfer_s,
    )  # fmt: skip
    return Asked(
        model=model, ranks=count, alpha_s=alpha_s, launch_s=launch_s, bytes_per_s=speed,
        gradient_bytes=size,
    )  # fmt: skip


def _cost(ranks: int, bytes_per_s: float) -> float:
    """Return seconds per byte of an all-reduce without latency."""
    link = Link(alpha_s=0.0, bytes_per_s=bytes_per_s)
    return ring_all_reduce(Machine(ranks=ranks, link=link)).s_per_byte
