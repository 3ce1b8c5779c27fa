"""What the lines of Megatron's straggler detector say: who was slowest, how often, by how much.

Each line names the ranks with the least and the largest time of the forward pass, and those with
the least and the largest clock, power, temperature and time for data. It says nothing of the ranks
between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import comb, exp, log
from statistics import NormalDist, median

from paceline.dataclass import dataclass
from paceline_service.importers.timing_logs.places import Places
from paceline_service.importers.timing_logs.series import Report

CHANCE = 1e-6
"""That one rank is slowest so often where all are alike; it stands for one report in months."""
HEALTHY_SPREAD = 0.02
"""Standard deviation of healthy ranks for good and from step to step (DETECTION section 4)."""
RANGE_TAIL = 3.0
"""By how many of these the range of normal values exceeds its mean once in 1,000 (8 to 1,000)."""
LEAST_EXCESS = 0.05
"""Over the next slowest rank, where the log names it: 2.5 times that spread; at the 1.5 % of most
jobs the slowest of 8 healthy ranks is so far off once in 2,500."""
CLOCK_RATIO = 0.95
HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The rank that was slowest most often."""

    rank: int
    times: int
    reports: int
    slowest_ms: float
    fastest_ms: float
    excess: float | None
    """Over the next slowest rank, as a share; None where the log names one rank only."""
    chance: float
    clock_hz: tuple[float, float] | None
    """Its clock and the highest, where it mostly had the lowest."""
    data_ms: tuple[float, float] | None
    """Its time for data and the least, where it mostly took longest."""
    facts: list[str]
    """What else it was first or last in, in words."""
    first: int
    last: int

    @property
    def ratio(self) -> float:
        """Slowest over fastest."""
        return self.slowest_ms / self.fastest_ms

    def convicts(self, places: Places) -> bool:
        """Whether the lines suffice to name it (docs/formats/timing-logs.md)."""
        if self.chance > CHANCE or self.times < HALF * self.reports:
            return False
        if self.excess is not None:
            return self.excess >= LEAST_EXCESS
        return places.stages == 1 and self.ratio >= healthy_ratio(places.world_size)


def healthy_ratio(ranks: int) -> float:
    """Return how much the slowest of healthy ranks may be slower than the fastest of them."""
    most = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
    return exp((2 * most + RANGE_TAIL) * HEALTHY_SPREAD)


def named_by(reports: Sequence[Report], places: Places) -> Named | None:
    """Return the rank that was slowest most often; None without such lines."""
    lines = [r.detector.figures for r in reports if r.detector is not None]
    told = [figures for figures in lines if "MxRtt" in figures and "MnRtt" in figures]
    told = [f for f in told if f["MnRtt"][0] > 0]
    if not told:
        return None
    rank, times = Counter(f["MxRtt"][2] for f in told).most_common(1)[0]
    mine = [f for f in told if f["MxRtt"][2] == rank]
    with_lines = [r for r in reports if r.detector is not None]
    return Named(
        rank=rank,
        times=times,
        reports=len(told),
        slowest_ms=median(f["MxRtt"][0] for f in mine),
        fastest_ms=median(f["MnRtt"][0] for f in mine),
        excess=_excess(with_lines, rank),
        chance=_chance(times, len(told), places.world_size),
        clock_hz=_lowest_clock(mine, rank),
        data_ms=_longest_data(mine, rank),
        facts=_extremes(mine, rank),
        first=with_lines[0].iteration,
        last=with_lines[-1].iteration,
    )


def all_ranks_ms(report: Report, size: int) -> dict[int, float]:
    """Return the time of every rank, where the lists of a report name every one; else nothing.

    A throughput is the same work over the time of a rank, so the fastest rank, of which both are
    told, gives the time of all.
    """
    throughput = {**report.lowest, **report.highest}
    if report.detector is None or len(throughput) != size or min(throughput.values()) <= 0:
        return {}
    fastest = report.detector.figures.get("MnRtt")
    if fastest is None or fastest[2] not in throughput:
        return {}
    work = fastest[0] * throughput[fastest[2]]
    return {rank: work / value for rank, value in throughput.items()}


def _excess(reports: Sequence[Report], rank: int) -> float | None:
    found = []
    for report in reports:
        others = sorted(value for r, value in report.lowest.items() if r != rank)
        mine = report.lowest.get(rank)
        if others and mine:
            found.append(others[0] / mine - 1)
    return median(found) if len(found) >= HALF * len(reports) and found else None


def _chance(times: int, reports: int, ranks: int) -> float:
    """Return the chance that any rank is slowest so often where each is as likely."""
    if ranks < 2:
        return 1.0
    if times <= reports / ranks:
        return 1.0
    logs = [
        log(comb(reports, k)) - k * log(ranks) + (reports - k) * log(1 - 1 / ranks)
        for k in range(times, min(reports, times + 200) + 1)
    ]
    return min(ranks * sum(exp(one) for one in logs), 1.0)


def _lowest_clock(
    lines: Sequence[dict[str, tuple[float, str, int]]], rank: int
) -> tuple[float, float] | None:
    mine = [(f["MnClk"][0], f["MxClk"][0]) for f in lines
            if "MnClk" in f and "MxClk" in f and f["MnClk"][2] == rank]  # fmt: skip
    if len(mine) < HALF * len(lines) or not mine:
        return None
    low, high = median(a for a, _ in mine), median(b for _, b in mine)
    return (low * 1e6, high * 1e6) if low <= CLOCK_RATIO * high else None


def _longest_data(
    lines: Sequence[dict[str, tuple[float, str, int]]], rank: int
) -> tuple[float, float] | None:
    mine = [(f["MxDRtt"][0], f["MnDRtt"][0], f["MxRtt"][0] - f["MnRtt"][0]) for f in lines
            if "MxDRtt" in f and "MnDRtt" in f and f["MxDRtt"][2] == rank]  # fmt: skip
    if len(mine) < HALF * len(lines) or not mine:
        return None
    most, least, late = (median(one[i] for one in mine) for i in range(3))
    return (most, least) if most - least >= HALF * late else None


def _extremes(lines: Sequence[dict[str, tuple[float, str, int]]], rank: int) -> list[str]:
    """Return which other figures the rank mostly had the least or the largest of."""
    words = {"MnClk": "the lowest clock", "MxTmp": "the highest temperature",
             "MnPwr": "the lowest power draw", "MnUtl": "the lowest utilization",
             "MxDRtt": "the longest wait for data"}  # fmt: skip
    return [
        text
        for key, text in words.items()
        if sum(f[key][2] == rank for f in lines if key in f) > HALF * len(lines)
    ]
