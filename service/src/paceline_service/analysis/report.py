"""The answer: ``paceline.report/1`` as types (docs/report.md gives every formula)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from typing import Any, overload

from paceline.dataclass import dataclass

SCHEMA = "paceline.report/1"
KINDS = (
    "hang", "desync", "straggler", "communication", "communication_bound", "imbalance",
    "stage_imbalance", "uniform_slowdown", "healthy", "insufficient_evidence",
)  # fmt: skip
CAUSES = ("gpu_throttle", "gpu_fault", "compute", "input", "host", "gc", "network", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: who, why, since when, what it costs, what to do."""

    kind: str
    ranks: list[int]
    nodes: list[str]
    cause: str
    phase: str | None
    first_step: int | None
    last_step: int | None
    slowdown: float | None
    recoverable_ratio: float | None
    wasted_gpu_s: float | None
    confidence: float | None
    evidence: list[str]
    action: str | None
    links: list[list[int]] = field(default_factory=list)
    collective: dict[str, Any] | None = None
    period_steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """Totals of one rank over the analysed steps, ns; the sums are conserved (docs/report.md)."""

    rank: int
    self_ns: int
    wait_ns: int
    exposed_comm_ns: int
    caused_wait_ns: int
    blamed_wait_ns: int
    last_arriver: int
    cause: str | None = None
    """Of the costliest finding that names the rank; null for a rank that none names."""


_SUMS = tuple(field.name for field in fields(RankRow))[1:-1]


class RankRows(Sequence[RankRow]):
    """The rows of ranks 0 to R - 1, kept as columns: a job of thousands is told every second.

    Args:
        sums: by name of ``RankRow`` the value of each rank, ints.
        causes: of the ranks that a finding names.
    """

    def __init__(self, sums: Mapping[str, list[int]], causes: Mapping[int, str]) -> None:
        self._columns = [sums[name] for name in _SUMS]
        self._causes = causes

    @classmethod
    def none(cls) -> RankRows:
        """Return those of a report that tells nothing of single ranks."""
        return cls({name: [] for name in _SUMS}, {})

    def with_causes(self, causes: Mapping[int, str]) -> RankRows:
        """Return the rows with these causes where a finding names the rank and knows none."""
        told = {rank: why for rank, why in causes.items() if self._causes.get(rank) == "unknown"}
        sums = dict(zip(_SUMS, self._columns, strict=True))
        return RankRows(sums, {**self._causes, **told})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankRows):
            return NotImplemented
        return self._columns == other._columns and dict(self._causes) == dict(other._causes)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, rank: int) -> RankRow: ...

    @overload
    def __getitem__(self, rank: slice) -> list[RankRow]: ...

    def __getitem__(self, rank: int | slice) -> RankRow | list[RankRow]:
        if isinstance(rank, slice):
            return [self[one] for one in range(*rank.indices(len(self)))]
        number = range(len(self))[rank]
        sums = dict(zip(_SUMS, (column[number] for column in self._columns), strict=True))
        return RankRow(rank=number, cause=self._causes.get(number), **sums)

    def __iter__(self) -> Iterator[RankRow]:
        return (self[rank] for rank in range(len(self)))

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects."""
        own, wait, comm, caused, blamed, last = self._columns
        rows: list[dict[str, Any]] = [
            {
                "rank": rank, "self_ns": own_ns, "wait_ns": wait_ns, "exposed_comm_ns": comm_ns,
                "caused_wait_ns": caused_ns, "blamed_wait_ns": blamed_ns, "last_arriver": count,
                "cause": None,
            }
            for rank, (own_ns, wait_ns, comm_ns, caused_ns, blamed_ns, count) in enumerate(
                zip(own, wait, comm, caused, blamed, last, strict=True)
            )
        ]  # fmt: skip
        for rank, cause in self._causes.items():
            rows[rank]["cause"] = cause
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole answer about one job attempt."""

    world_size: int
    ranks_observed: int
    steps: int
    collectives: int
    verdict: str
    slowdown: float | None
    idle_ratio: float | None
    gamma: float | None
    wasted_gpu_s: float | None
    findings: list[Finding]
    complete: bool
    dropped: dict[str, int]
    ranks: Sequence[RankRow]
    what_if: dict[str, Any] | None = None
    """What the job would be without its slow ranks and stages (docs/math/whatif.md)."""
    expected: dict[str, Any] | None = None
    """The step of healthy ranks against the one that is seen (docs/math/calibration.md)."""
    calibration: dict[str, Any] | None = None
    """What compute and transfers of this job take, with intervals (docs/math/calibration.md)."""
    steps_left_out: int = 0
    """Steps whose collectives were not recorded, as was asked: no loss."""
    notes: list[str] = field(default_factory=list)
    """Why the answer is what it is, in sentences; for example what evidence is missing."""

    def wasted_by_cause(self) -> dict[str, float]:
        """Return the GPU-seconds of all findings by cause, the costliest first."""
        total: dict[str, float] = {}
        for finding in self.findings:
            if finding.wasted_gpu_s is not None:
                total[finding.cause] = total.get(finding.cause, 0.0) + finding.wasted_gpu_s
        return {cause: round(s, 9) for cause, s in sorted(total.items(), key=lambda item: -item[1])}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema ``paceline.report/1``."""
        sampled = {"steps_left_out": self.steps_left_out} if self.steps_left_out else {}
        return {
            "schema": SCHEMA,
            "job": {
                "world_size": self.world_size,
                "ranks_observed": self.ranks_observed,
                "steps": self.steps,
                "collectives": self.collectives,
            },
            "verdict": self.verdict,
            "slowdown": self.slowdown,
            "idle_ratio": self.idle_ratio,
            "gamma": self.gamma,
            "wasted_gpu_s": self.wasted_gpu_s,
            "wasted_gpu_s_by_cause": self.wasted_by_cause(),
            "findings": [asdict(finding) for finding in self.findings],
            "data": {
                "complete": self.complete,
                "dropped": self.dropped,
                **sampled,
                "notes": self.notes,
            },
            **({"what_if": self.what_if} if self.what_if else {}),
            **({"expected": self.expected} if self.expected else {}),
            **({"calibration": self.calibration} if self.calibration else {}),
            "ranks": _as_dicts(self.ranks),
        }


def _as_dicts(rows: Sequence[RankRow]) -> list[dict[str, Any]]:
    return rows.to_dicts() if isinstance(rows, RankRows) else [asdict(row) for row in rows]
