"""What a load consists of: a job, its fault, and how its sidecars send."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import InputError
from paceline.sidecar.follow import FLUSH_RECORDS, flush_period_s
from paceline.wire.frames import MAX_RECORDS_PER_FRAME

RANKS_PER_NODE = 8
PHASES = 4
MAX_LATER_PERCENT = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rank whose work takes longer than that of others, from a step on."""

    rank: int
    percent: float
    first_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """A job, and how its records are cut into frames.

    ``rate`` is steps per second; 0 sends as fast as the collector acknowledges, for a job whose
    steps take a second.
    """

    ranks: int
    collectives: int
    steps: int
    rate: float
    tensor_parallel: int = 1
    fault: Fault | None = None
    job: str = "load"
    seed: int = 1

    @property
    def step_s(self) -> float:
        """How long a step of the job takes."""
        return 1.0 / self.rate if self.rate else 1.0

    @property
    def flush_s(self) -> float:
        """How often a sidecar makes a frame of what a rank has written (docs/sidecar.md)."""
        return flush_period_s(self.ranks)

    @property
    def nodes(self) -> int:
        """How many sidecars send, each over a connection of its own."""
        return -(-self.ranks // RANKS_PER_NODE)

    @property
    def records_per_step(self) -> int:
        """Of one rank: collectives, phases and the step itself."""
        return self.collectives + PHASES + 1

    @property
    def steps_per_frame(self) -> int:
        """How many steps a frame carries, as a sidecar would cut them."""
        in_a_flush = int(self.flush_s / self.step_s + 1e-9)
        return max(min(in_a_flush, FLUSH_RECORDS // self.records_per_step), 1)

    @property
    def ranks_per_bundle(self) -> int:
        """How many ranks of a node share a bundle: all, unless they recorded too much."""
        rows = self.records_per_step * self.steps_per_frame
        fit = MAX_RECORDS_PER_FRAME // rows
        return next((size for size in (RANKS_PER_NODE, 4, 2) if size <= fit), 1)

    def lead(self, phase_s: float) -> int:
        """Return how many steps a sidecar's first frame holds that sends so long after others.

        Those begin with as many steps as fit a frame; so does who sends less than a step later.
        """
        return int(phase_s / self.step_s + 1e-9) % self.steps_per_frame

    def blocks(self, lead: int = 0) -> int:
        """Return how many frames each rank of a node sends."""
        return -(-(self.steps - lead) // self.steps_per_frame) + bool(lead)

    @property
    def records(self) -> int:
        """Records of all ranks in all steps."""
        return self.ranks * self.steps * self.records_per_step

    @property
    def collective_records(self) -> int:
        """The same without phases and steps."""
        return self.ranks * self.steps * self.collectives

    def steps_of(self, block: int, lead: int = 0) -> range:
        """Return the steps that the frames number ``block`` of a node carry."""
        first = block * self.steps_per_frame
        if lead:
            first += lead - self.steps_per_frame
        return range(max(first, 0), min(first + self.steps_per_frame, self.steps))

    def check(self) -> None:
        """Raise InputError where the job cannot be."""
        for name, value in (
            ("--ranks", self.ranks), ("--collectives", self.collectives), ("steps", self.steps),
        ):  # fmt: skip
            if value < 1:
                raise InputError(f"{name} is {value}; it must be 1 or more")
        if self.records_per_step > 16_384:
            raise InputError(f"--collectives {self.collectives}: a frame holds 16,384 records")
        if self.rate < 0:
            raise InputError(f"--rate {self.rate:g} is negative; 0 is as fast as possible")
        if self.tensor_parallel < 1 or self.ranks % self.tensor_parallel:
            raise InputError(
                f"--tensor-parallel {self.tensor_parallel} does not divide {self.ranks} ranks"
            )
        if self.fault is not None and not 0 <= self.fault.rank < self.ranks:
            raise InputError(
                f"--fault names rank {self.fault.rank} of {self.ranks}; name one below"
            )


def parse_fault(text: str, steps: int) -> Fault:
    """Return what ``--fault RANK:straggler:PERCENT[@STEP]`` means.

    Without a step it begins when a third of the steps are over.

    Raises:
        InputError: it means nothing.
    """
    rest, _, first = text.partition("@")
    words = rest.split(":")
    try:
        rank, kind, percent = int(words[0]), words[1], float(words[2])
        first_step = int(first) if first else steps // 3
    except (ValueError, IndexError):
        kind, rank, percent, first_step = "", 0, 0.0, 0
    if kind != "straggler" or len(words) != 3 or not 0 < percent <= MAX_LATER_PERCENT:
        raise InputError(
            f"--fault {text!r}: write RANK:straggler:PERCENT or RANK:straggler:PERCENT@STEP, with "
            f"a percentage up to {MAX_LATER_PERCENT:g}"
        )
    return Fault(rank=rank, percent=percent, first_step=first_step)
