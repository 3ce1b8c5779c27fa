"""``--expect KIND[:RANK[:PHASE]]``: what a test or CI demands of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigError
from paceline.vocabulary import Phase, phase_name
from paceline_service.analysis.report import KINDS

PHASES = tuple(phase_name(phase) for phase in Phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A verdict, and optionally the one rank and the phase of its costliest finding."""

    kind: str
    rank: int | None = None
    phase: str | None = None

    def unmet(self, report: dict[str, Any]) -> str:
        """Say how ``report`` differs; nothing when it does not."""
        verdict = report["verdict"]
        if verdict != self.kind:
            return f"the verdict is {verdict}; {self.kind} was expected"
        findings = [f for f in report["findings"] if f["kind"] == self.kind]
        if self.rank is None:
            return ""
        if not findings or findings[0]["ranks"] != [self.rank]:
            named = findings[0]["ranks"] if findings else []
            return f"the ranks named are {named}; [{self.rank}] was expected"
        if self.phase is not None and findings[0]["phase"] != self.phase:
            return f"the phase named is {findings[0]['phase']}; {self.phase} was expected"
        return ""


def parse_expectation(text: str) -> Expectation:
    """Read ``straggler:2:backward``, ``straggler:2`` or ``healthy``.

    Raises:
        ConfigError: a kind, rank or phase that no report can have.
    """
    kind, _, rest = text.partition(":")
    rank, _, phase = rest.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"--expect {text}: {kind!r} is no verdict; it is of {', '.join(KINDS)}")
    if rank and not rank.isdigit():
        raise ConfigError(f"--expect {text}: {rank!r} is no rank; give KIND:RANK:PHASE")
    if phase and phase not in PHASES:
        raise ConfigError(f"--expect {text}: {phase!r} is no phase; it is of {', '.join(PHASES)}")
    return Expectation(kind=kind, rank=int(rank) if rank else None, phase=phase or None)
