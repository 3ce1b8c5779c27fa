"""The channel of replica digests: compared as they come, told when a difference stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from paceline.telemetry import (
    LEFT_OUT_BETWEEN,
    REPLICA_CHECK,
    REPLICA_DIGEST,
    REPLICA_LEFT_OUT,
)
from paceline_service.analysis.causes.telemetry import SampleLike
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.replicas.course import Course
from paceline_service.analysis.replicas.digest import Place, digest_in
from paceline_service.analysis.replicas.votes import Votes
from paceline_service.analysis.report import Finding

if TYPE_CHECKING:
    from paceline_service.analysis.replicas.tell import Told

MAX_PLACES = 65_536
MAX_OPEN_BYTES = 64 << 20
MAX_REASONS = 16
MAX_REASON_CHARS = 256
_CHECK_BYTES = 600
"""What a check takes beside its bits."""


class _Key(NamedTuple):
    place: Place
    at: tuple[int, int]


class Replicas:
    """Takes digests in any order: of files those of a rank come before those of the next."""

    def __init__(self) -> None:
        self._open: dict[_Key, Votes] = {}
        self._open_bytes = 0
        self._contested: dict[_Key, Votes] = {}
        """Of the open ones those with more than one digest; in healthy jobs there is none."""
        self._courses: dict[Place, Course] = {}
        self._members: dict[str, int] = {}
        """By name of the set, the ranks that were heard, as bits."""
        self._began: dict[str, int] = {}
        """By name of the set, the first step of which anybody told."""
        self._checking: dict[str, int] = {}
        """By how often they check, the ranks that do, as bits."""
        self._left_out: dict[str, int] = {}
        """By what is compared with nobody, and why, the ranks that say so, as bits."""
        self._compared = 0
        self._incomplete = 0
        self._newest_step = -1
        self._job_step = -1

    def add_telemetry(self, rank: int, samples: Iterable[SampleLike]) -> None:
        """Take samples of ``rank``, most of which hold no digest."""
        for sample in samples:
            if REPLICA_DIGEST in sample.values:
                self.take(rank, sample.values)
            elif REPLICA_CHECK in sample.values or REPLICA_LEFT_OUT in sample.values:
                self._hear(rank, sample.values)

    def take(self, rank: int, values: Mapping[str, Any]) -> None:
        """Take a sample that holds a digest."""
        found = digest_in(values)
        if found is None:
            return
        if found.place not in self._courses:
            if len(self._courses) >= MAX_PLACES:
                return
            self._courses[found.place] = Course()
        key = _Key(found.place, (found.step, found.seq))
        votes = self._open.get(key)
        if votes is None:
            votes = self._open[key] = Votes(count=found.place.replicas)
            self._open_bytes += _bytes_of(votes)
        votes.take(rank, found.value)
        name = found.place.name
        self._members[name] = self._members.get(name, 0) | 1 << rank
        self._began[name] = min(self._began.get(name, found.step), found.step)
        if len(votes.holders) > 1:
            self._contested[key] = votes
        if votes.complete:
            self._settle(key)
            self._compared += 1
            self._newest_step = max(self._newest_step, found.step)
        elif self._open_bytes > MAX_OPEN_BYTES:
            self._settle(next(iter(self._open)))
            self._incomplete += 1

    def see(self, step: JudgedStep) -> None:
        """Take note of how far the job is; digests come with telemetry."""
        self._job_step = step.row.step

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return one finding for all ranks that differ in the same set of replicas."""
        if not self._courses:
            return []
        from paceline_service.analysis.replicas.tell import findings_of  # few jobs need it

        return findings_of(self._now(), facts)

    def notes(self, facts: JobFacts) -> list[str]:
        """Return how many checks found what, and what was left out, where anybody checks."""
        if not self._courses and not self._checking:
            return []
        from paceline_service.analysis.replicas.tell import notes_of

        return notes_of(self._now(), facts)

    def _hear(self, rank: int, values: Mapping[str, Any]) -> None:
        """Take what a rank says of its check."""
        how, why = values.get(REPLICA_CHECK), values.get(REPLICA_LEFT_OUT)
        if isinstance(how, str):
            _add(self._checking, how, rank)
        if isinstance(why, str):
            for reason in why.split(LEFT_OUT_BETWEEN):
                _add(self._left_out, reason, rank)

    def _settle(self, key: _Key) -> None:
        votes = self._open.pop(key)
        self._contested.pop(key, None)
        self._open_bytes -= _bytes_of(votes)
        outcome = votes.outcome()
        if outcome is not None:
            self._courses[key.place].add(key.at, outcome)

    def _now(self) -> Told:
        from paceline_service.analysis.replicas.tell import Told

        contested: dict[Place, list[Any]] = {}
        for key, votes in self._contested.items():
            if (outcome := votes.outcome()) is not None:
                contested.setdefault(key.place, []).append((key.at, outcome))
        courses = {
            place: course.with_open(contested[place]) if place in contested else course
            for place, course in self._courses.items()
        }
        return Told(
            courses=courses, compared=self._compared, newest_step=self._newest_step,
            job_step=self._job_step, members=self._members, began=self._began,
            incomplete=self._incomplete + len(self._open), checking=self._checking,
            left_out=self._left_out,
        )  # fmt: skip


def _add(ranks_of: dict[str, int], text: str, rank: int) -> None:
    text = text[:MAX_REASON_CHARS]
    if text in ranks_of or len(ranks_of) < MAX_REASONS:
        ranks_of[text] = ranks_of.get(text, 0) | 1 << rank


def _bytes_of(votes: Votes) -> int:
    return _CHECK_BYTES + votes.count // 4
