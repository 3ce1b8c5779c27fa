"""What every further way of looking at a job is given, and what it answers.

A channel watches the steps as they are analysed and keeps bounded state of its own. It names
nobody by itself: its findings go through the verdict like all others.
"""

from __future__ import annotations

from typing import Protocol

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.ledger import StepBlame
from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.blame.waits import Waits
from paceline_service.analysis.evidence.episode import StepNote
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, Int64Array
from paceline_service.analysis.report import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """One analysed step.

    Attributes:
        row: self time, wait and communication of each rank.
        table: all its records, on one timeline a rank.
        matches: its collectives.
        waits: who waited how long at each of them.
        blame: who is charged with the waits.
        note: what the episodes keep of it, with the scores of each rank.
        peer_groups: which ranks do the same work, as far as it is known now.
    """

    row: StepRow
    table: Table
    matches: Matches
    waits: Waits
    blame: StepBlame
    note: StepNote
    peer_groups: list[Int64Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of the job beside its steps."""

    world_size: int
    groups: list[Group]
    """By the index that records name."""
    nodes: dict[int, str]
    """Node of each rank that told it."""
    options: Options
    step_s: float
    """Median duration of the recent steps, s; 0 until one was seen."""
    judged_steps: int
    """Steps after the settling ones."""
    slow_ranks: tuple[int, ...] = ()
    """Ranks that were found slow for good, now or earlier; the verdict fills them in."""


class Channel(Protocol):
    """One way of looking at the steps of a job."""

    def see(self, step: JudgedStep) -> None:
        """Take the next step, in order; state stays bounded however many there are."""

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return what is wrong so far; may be called at any time, again and again."""

    def notes(self, facts: JobFacts) -> list[str]:
        """Return what a reader should know that is no finding, in sentences."""
