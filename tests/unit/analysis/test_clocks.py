from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Op
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.matching.clocks import MAX_STEPS, ClockOffsets, ClockWatch
from paceline_service.analysis.matching.match import Matches
from tests.simulator.feed import feed
from tests.simulator.job import ROW_FIELDS, Simulated
from tests.simulator.network import Network, Traffic, simulate_network

MB = 1 << 20


def network(**changes: object) -> Network:
    """Two groups within nodes and two across: no group holds all ranks."""
    traffic = tuple(
        Traffic(group=f"g{number}", ranks=ranks, op=Op.ALL_REDUCE, sizes=(8 * MB,))
        for number, ranks in enumerate([(0, 1), (2, 3), (0, 2), (1, 3)])
    )
    defaults: dict[str, object] = {
        "ranks": 4, "ranks_per_node": 2, "traffic": traffic, "steps": 120, "compute_ms": 200.0,
    }  # fmt: skip
    return Network(**(defaults | changes))  # type: ignore[arg-type]


def truth(net: Network) -> tuple[np.ndarray, np.ndarray]:
    """Offset and drift of each clock, as ``simulate_network`` draws them."""
    rng = np.random.default_rng(net.seed)
    offset = rng.integers(10**12, 2 * 10**12, size=net.ranks).astype(np.float64)
    if net.shared_clock:
        offset[:] = offset[0]
    return offset, net.drift_us_per_s * 1e-6 * rng.uniform(-1, 1, net.ranks)


def offsets_of(net: Network) -> tuple[ClockOffsets, np.ndarray, np.ndarray]:
    """The estimate, the true offsets at its time against rank 0, and the true drifts."""
    found = feed(simulate_network(net))[0].clock_offsets()
    offset, drift = truth(net)
    true_time = (found.at_ns - offset) / (1 + drift)
    wanted = offset + drift * true_time - (offset[0] + drift[0] * true_time)
    return found, wanted, drift - drift[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise_ms", [0.0, 0.1, 0.9])
def test_offsets_lie_within_their_uncertainty(seed: int, noise_ms: float) -> None:
    net = network(seed=seed, release_noise_ms=noise_ms, drift_us_per_s=30.0)
    found, wanted, _ = offsets_of(net)
    assert found.known.all()
    assert (np.abs(found.offset_ns - wanted) <= found.uncertainty_ns + 1).all()
    assert found.uncertainty_ns.max() < 2_000_000
    assert found.reference_rank.tolist() == [0, 0, 0, 0]
    assert found.uncertainty_ns[0] == 0


def test_drift_is_measured() -> None:
    found, _, drift = offsets_of(network(release_noise_ms=0.1, drift_us_per_s=30.0, seed=2))
    assert np.abs(found.drift_ns_per_s - drift * 1e9).max() < 3_000


def test_a_release_that_came_a_second_late_now_and_then_moves_nothing() -> None:
    net = network(release_noise_ms=0.1, seed=4)
    job = simulate_network(net)
    end = ROW_FIELDS.index("end_ns")
    for index in range(3, len(job.rows[2]), 40):
        late = list(job.rows[2][index])
        late[end] += 1_000_000_000
        job.rows[2][index] = tuple(late)
    found = feed(job)[0].clock_offsets()
    offset, _ = truth(net)
    assert np.abs(found.offset_ns - (offset - offset[0])).max() < 300_000


def test_without_noise_the_bounds_are_tighter_than_the_systematic_doubt() -> None:
    traffic = (Traffic(group="all", ranks=(0, 1, 2, 3), op=Op.ALL_REDUCE, sizes=(1024,)),)
    found, wanted, _ = offsets_of(network(traffic=traffic, alpha_us=50.0, jitter=0.0001))
    assert found.uncertainty_ns.max() < 400_000
    assert (np.abs(found.offset_ns - wanted) <= found.uncertainty_ns + 1).all()


def test_ranks_of_one_clock_have_one_offset() -> None:
    net = network(shared_clock=True, release_noise_ms=0.5)
    found = feed(simulate_network(net))[0].clock_offsets()
    assert found.offset_ns.tolist() == [0, 0, 0, 0]
    assert found.uncertainty_ns.tolist() == [0, 0, 0, 0]


def test_ranks_that_never_meet_are_not_compared() -> None:
    traffic = tuple(
        Traffic(group=f"g{ranks[0]}", ranks=ranks, op=Op.ALL_REDUCE, sizes=(8 * MB,))
        for ranks in [(0, 1), (2, 3)]
    )
    found = feed(simulate_network(network(traffic=traffic)))[0].clock_offsets()
    assert found.reference_rank.tolist() == [0, 0, 2, 2]


def test_a_rank_nobody_heard_of_is_unknown_and_no_nan() -> None:
    empty = JobAnalysis(3).clock_offsets()
    assert not empty.known.any()
    job = simulate_network(network(steps=3))
    more = Simulated(rows=[*job.rows, []], groups=job.groups, clocks=[*job.clocks, "other"])
    found = feed(more)[0].clock_offsets()
    assert found.known.tolist() == [True] * 4 + [False]
    assert np.isfinite(found.drift_ns_per_s).all()


def test_what_is_kept_is_bounded_however_long_the_job_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []
    see = ClockWatch.see

    def see_and_count(watch: ClockWatch, matches: Matches) -> None:
        see(watch, matches)
        kept.append(watch.kept_steps)

    monkeypatch.setattr(ClockWatch, "see", see_and_count)
    analysis, _ = feed(simulate_network(network(steps=600)))
    assert len(kept) == 600
    assert 32 <= kept[-1] <= max(kept) <= MAX_STEPS
    assert analysis.clock_offsets().known.all()
