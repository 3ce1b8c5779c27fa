"""What /metrics has shown of each job, so that the next scrape goes on from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from paceline import metrics
from paceline.dataclass import dataclass
from paceline_service.export.floors import FindingCosts, Floors
from paceline_service.export.job_series import JobSample, finding_costs, job_rows, named_ranks
from paceline_service.export.rank_choice import RankChoice
from paceline_service.export.rows import Rows
from paceline_service.export.telemetry_series import OF_HARDWARE

TOTAL_RANKS = 4096
"""Ranks with series of all jobs together: 170,000 series, half a second of CPU a scrape."""
LEAST_RANKS = 16
"""A job that begins when so many are shown has series for its costliest ranks still."""
MAX_JOBS = 10_000
"""Jobs that are remembered after they left memory; the longest unseen are forgotten first."""


@dataclass(slots=True)
class _Page:
    """Of one attempt of one job."""

    ordinal: int
    choice: RankChoice
    floors: Floors = field(default_factory=lambda: Floors(OF_HARDWARE))
    costs: FindingCosts = field(default_factory=FindingCosts)
    sample: JobSample | None = None
    """What ``rows`` were made of: of the same one they are not made again."""
    rows: Rows = field(default_factory=Rows)


class JobBook:
    """Rows of all jobs; one scrape at a time.

    Args:
        rank_limit: most ranks of a job with series of their own.
    """

    def __init__(self, rank_limit: int) -> None:
        self._rank_limit = rank_limit
        self._pages: dict[str, _Page] = {}
        self._used: dict[str, int] = {}
        """Most ranks of each job that is shown at present."""

    def rows(self, jobs: Iterable[tuple[int, JobSample]]) -> Rows:
        """Return the rows of jobs, each with the number of its attempt.

        An attempt before the newest one that was shown is left out: somebody is reading an old
        one, and its counts would look like a new beginning.
        """
        out = Rows()
        used: dict[str, int] = {}
        for ordinal, job in jobs:
            page = self._page(ordinal, job)
            if page is None:
                continue
            used[job.job] = min(job.world_size, page.choice.limit)
            if page.sample is not job:
                self._fill(page, job)
            out.add(page.rows)
        self._used = used
        while len(self._pages) > MAX_JOBS:
            del self._pages[next(iter(self._pages))]
        return out

    def _page(self, ordinal: int, job: JobSample) -> _Page | None:
        page = self._pages.pop(job.job, None)  # the newest are at the end
        if page is None or page.ordinal < ordinal:
            page = _Page(ordinal, RankChoice(job.world_size, self._limit(job)))
            self._used[job.job] = min(job.world_size, page.choice.limit)
        self._pages[job.job] = page
        return page if page.ordinal == ordinal else None

    def _limit(self, job: JobSample) -> int:
        """Return how many ranks of a job that begins now may have series."""
        others = sum(count for name, count in self._used.items() if name != job.job)
        least = min(LEAST_RANKS, self._rank_limit)
        return max(min(self._rank_limit, TOTAL_RANKS - others), least)

    def _fill(self, page: _Page, job: JobSample) -> None:
        costs_ns = {row["rank"]: row.get("blamed_wait_ns", 0) for row in job.ranks}
        chosen = page.choice.choose(costs_ns, named_ranks(job))
        rows = job_rows(job, chosen, page.choice.limit)
        rows.values[metrics.JOB_FINDING_SECONDS] = {
            (job.job, *what): cost_s
            for what, cost_s in page.costs.update(finding_costs(job)).items()
        }
        page.floors.hold(rows)
        page.rows, page.sample = rows, job
