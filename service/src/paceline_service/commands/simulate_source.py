"""Where simulated ranks come from: from the command line, or from a file of a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs.words import duration_of
from paceline_service.commands.simulate_noise import noise_input, noise_of, told_noise
from paceline_service.commands.simulate_options import (
    communication_of,
    profile_of,
)
from paceline_service.commands.simulate_recorded import measured
from paceline_service.simulate.profile import Mixed, Profile, Ranks, Recorded

_MOST_TOLD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Ranks, their communication, and how both were understood.

    Attributes:
        ranks: what steps are drawn from.
        names: the global rank of each column.
        communication_s: of a step.
        input: as it stands in JSON.
        given: in words.
        recorded_steps: in the file, 0 where there are none.
        measured_step_s: of the file, None where there is none.
    """

    ranks: Ranks
    names: tuple[int, ...]
    communication_s: float
    input: dict[str, object]
    given: list[str]
    recorded_steps: int = 0
    measured_step_s: float | None = None

    @property
    def labels(self) -> list[str]:
        """Return what the ranks are called."""
        return [f"rank {name}" for name in self.names]


def source_of(
    ranks: str | None,
    noise: str | None,
    communication: str | None,
    ranks_from: Path | None,
    *,
    in_order: bool = False,
) -> Source:
    """Return the ranks that the arguments describe.

    Args:
        ranks: of ``--ranks``.
        noise: of ``--noise``.
        communication: of ``--communication``.
        ranks_from: of ``--ranks-from``.
        in_order: steps of a file come in their order; else they are drawn.

    Raises:
        ConfigError: the arguments contradict each other or describe nothing.
        InputError: the file cannot be used.
    """
    if ranks is not None and ranks_from is not None:
        raise ConfigError("--ranks and --ranks-from are given: they exclude one another, give one")
    if ranks_from is not None:
        return _from_file(ranks_from, noise, communication, in_order=in_order)
    profile = profile_of(ranks, noise)
    sent_s = communication_of(communication)
    return Source(
        ranks=profile,
        names=tuple(range(len(profile.mean_s))),
        communication_s=sent_s,
        input={
            "mean_compute_s": profile.mean_s.tolist(),
            "noise": _noise_input(profile),
            "communication_s": sent_s,
        },
        given=[_told_ranks(profile), f"communication: {duration_of(sent_s)} a step"],
    )


def _from_file(
    path: Path, noise: str | None, communication: str | None, *, in_order: bool
) -> Source:
    found = measured(path)
    law = noise_of(noise) if noise is not None else None
    ranks = found.profile(law, in_order=in_order)
    sent_s = communication_of(communication, found.communication_s)
    if isinstance(ranks, Recorded):
        steps = len(ranks.compute_s)
        how = "in their order" if in_order else "drawn as whole steps"
        told = (
            f"{counted(len(found.ranks), 'rank')} of {path}: {counted(steps, 'recorded step')}, "
            f"{how}"
        )
        spread: dict[str, object] = {"law": "recorded", "steps": steps, "in_order": in_order}
    else:
        assert isinstance(ranks, Profile)
        ranks.noise.relative_spread(ranks.mean_s)
        steps, spread = 0, noise_input(ranks.noise)
        told = f"{len(found.ranks):,} ranks with the averages of {path}, {told_noise(ranks.noise)}"
    whence = "measured" if communication is None else "given"
    return Source(
        ranks=ranks, names=found.ranks, communication_s=sent_s,
        input={"ranks_from": str(path), "mean_compute_s": found.mean_s.tolist(), "noise": spread,
               "communication_s": sent_s},
        given=[told, f"communication: {duration_of(sent_s)} a step, {whence}"],
        recorded_steps=steps, measured_step_s=found.step_s,
    )  # fmt: skip


def _noise_input(profile: Profile | Mixed) -> dict[str, object]:
    if isinstance(profile, Profile):
        return noise_input(profile.noise)
    laws = [noise_input(law) for law in profile.laws]
    return {"law": "mixed", "laws": laws, "law_of_rank": profile.law_of.tolist()}


def _told_laws(profile: Profile | Mixed) -> str:
    if isinstance(profile, Profile):
        return told_noise(profile.noise)
    counts = [int((profile.law_of == place).sum()) for place in range(len(profile.laws))]
    return "; ".join(
        f"{count:,} of them {told_noise(law)}"
        for count, law in zip(counts, profile.laws, strict=True)
    )


def _told_ranks(profile: Profile | Mixed) -> str:
    mean_s = profile.mean_s
    if mean_s.min() == mean_s.max():
        times = duration_of(float(mean_s[0]))
    elif len(mean_s) <= _MOST_TOLD:
        times = ", ".join(duration_of(float(one)) for one in mean_s)
    else:
        times = f"{duration_of(float(mean_s.min()))} to {duration_of(float(mean_s.max()))}"
    return f"{len(mean_s):,} ranks that compute {times} a step, {_told_laws(profile)}"
