"""The bubble of a pipeline, and how many micro-batches a stage holds (docs/math/strategies.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from paceline.errors import ConfigError
from paceline_service.analysis.costs.units import whole


class Schedule(str, Enum):
    """The order in which a stage works on micro-batches."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How a model is cut into stages, and what flows through them.

    Attributes:
        stages: p; 1 is no pipeline.
        micro_batches: m of a step and a replica.
        virtual_stages: v pieces of the model on each rank; more than 1 is interleaved.
        schedule: gpipe, 1f1b or interleaved.
        slowest_stage_ratio: work of the slowest stage over that of the mean one, at least 1.
    """

    stages: int = 1
    micro_batches: int = 1
    virtual_stages: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    slowest_stage_ratio: float = 1.0

    def __post_init__(self) -> None:
        """Check that such a schedule exists.

        Raises:
            ConfigError: it does not.
        """
        whole(self.stages, "--pipeline", "stages")
        whole(self.micro_batches, "the number of micro-batches", "micro-batches")
        whole(self.virtual_stages, "--virtual-stages", "pieces per rank")
        if not 1 <= self.slowest_stage_ratio <= self.stages:
            raise ConfigError(
                f"--slowest-stage is {self.slowest_stage_ratio:g}: give how many times the mean "
                f"stage's work it has, from 1 to --pipeline, {self.stages}"
            )
        if self.virtual_stages == 1:
            if self.schedule is Schedule.INTERLEAVED:
                raise ConfigError(
                    "--schedule interleaved needs --virtual-stages of at least 2: with 1 it is 1f1b"
                )
            return
        if self.schedule is not Schedule.INTERLEAVED:
            raise ConfigError(
                f"--virtual-stages is {self.virtual_stages}, and only --schedule interleaved has "
                "more than 1"
            )
        if self.stages < 2:
            raise ConfigError(
                f"--virtual-stages is {self.virtual_stages} without a pipeline: give --pipeline of "
                "at least 2"
            )
        if self.micro_batches % self.stages:
            raise ConfigError(
                f"an interleaved schedule needs micro-batches in multiples of --pipeline: "
                f"{self.micro_batches} is none of {self.stages}"
            )

    @property
    def bubble_of_ideal(self) -> float:
        """Idle time over the time without a bubble: (p - 1) / (v m) (eq. 8)."""
        return (self.stages - 1) / (self.virtual_stages * self.micro_batches)

    @property
    def bubble_of_total(self) -> float:
        """Idle time over the time with it: (p - 1) / (v m + p - 1) (eq. 9)."""
        whole_time = self.virtual_stages * self.micro_batches + self.stages - 1
        return (self.stages - 1) / whole_time

    @property
    def imbalance_of_ideal(self) -> float:
        """Time added by the slowest stage, over the ideal: (lambda - 1) (m - 1) / m (eq. 28)."""
        return (self.slowest_stage_ratio - 1) * (self.micro_batches - 1) / self.micro_batches

    @property
    def held_micro_batches(self) -> float:
        """Micro-batches whose activations the first stage holds at once (eq. 10).

        All under GPipe; as many as there are stages under 1F1B; interleaved (p - 1) / v more.
        """
        if self.schedule is Schedule.GPIPE:
            return float(self.micro_batches)
        more = (self.stages - 1) / self.virtual_stages
        held = self.stages + (more if self.schedule is Schedule.INTERLEAVED else 0.0)
        return min(held, float(self.micro_batches))

    @property
    def hops(self) -> int:
        """Sends of one micro-batch forward out of a rank in the middle (eq. 11)."""
        return self.virtual_stages if self.stages > 1 else 0

    @property
    def exposed_hops(self) -> int:
        """Sends one after the other for which the step waits, while they are short (eq. 20).

        Filling and draining wait for one through all pieces. Under 1F1B a stage has no more
        micro-batches under way than it needs without sends, so it waits in between as well.
        """
        p, m = self.stages, self.micro_batches
        if p == 1:
            return 0
        between = m - 1 - -(-(m - 1) // p) if self.schedule is Schedule.ONE_F_ONE_B else 0
        return 2 * (p * self.virtual_stages - 1) + 2 * between
