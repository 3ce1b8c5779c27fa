from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from paceline_service.export.step_blob import pack_ranks, unpack_ranks
from paceline_service.jobs.steps import RecentSteps, Step, columns


def step(number: int, per_rank: np.ndarray | None = None) -> Step:
    arrays = np.arange(24).reshape(8, 3) if per_rank is None else per_rank
    return Step(step=number, start_wall_ns=number, duration_ns=5, slowest_rank=1, per_rank=arrays)


@pytest.mark.parametrize("bits", [0, 7, 8, 15, 16, 31, 32, 50, 63])
def test_packed_ranks_come_back_as_they_were(bits: int) -> None:
    rng = np.random.default_rng(1)
    arrays = rng.integers(-1, (1 << bits) - 1, size=(10, 37), endpoint=True)
    arrays[3, 5] = (1 << bits) - 1
    packed = pack_ranks(arrays)
    assert (unpack_ranks(packed) == arrays).all()
    assert (unpack_ranks(packed, phases=False) == arrays[:3]).all()


def test_ranks_without_any_data_and_no_ranks_at_all_can_be_packed() -> None:
    for arrays in (np.full((10, 4), -1), np.zeros((10, 4)), np.zeros((10, 0))):
        assert (unpack_ranks(pack_ranks(arrays.astype(np.int64))) == arrays).all()


def of_a_step(ranks: int) -> np.ndarray:
    """Return a step in which all wait for the last, in times as sidecars send them."""
    rng = np.random.default_rng(ranks)
    phases = np.zeros((7, ranks), dtype=np.int64)
    phases[1:5] = rng.normal(5e7, 4e5, size=(4, ranks)).astype(np.int64) // 256 * 256
    self_ns = phases.sum(axis=0)
    comm_ns = rng.integers(100, 3_000, size=ranks) * 256
    return np.concatenate([[self_ns, self_ns.max() - self_ns, comm_ns], phases])


def no_data(arrays: np.ndarray) -> np.ndarray:
    arrays[:, ::3] = -1
    return arrays


def not_in_some_rows(arrays: np.ndarray) -> np.ndarray:
    arrays[1, 2], arrays[5, 7], arrays[:3, 9] = -1, -1, -1
    return arrays


def with_overlapping_phases(arrays: np.ndarray) -> np.ndarray:
    arrays[3:] += np.arange(arrays[3:].size).reshape(7, -1) * 1_001
    return arrays


def of_replayed_logs(arrays: np.ndarray) -> np.ndarray:
    return arrays + np.arange(arrays.shape[1])


def at_the_limits(arrays: np.ndarray) -> np.ndarray:
    arrays[:, ::2] = np.iinfo(np.int64).max
    arrays[:, 1::4] = np.iinfo(np.int64).min
    return arrays


def negative(arrays: np.ndarray) -> np.ndarray:
    return -arrays - 2


@pytest.mark.parametrize("ranks", [1, 10, 63, 64, 200])
@pytest.mark.parametrize(
    "changed",
    [np.copy, no_data, not_in_some_rows, with_overlapping_phases, of_replayed_logs, at_the_limits,
     negative],
)  # fmt: skip
def test_a_step_comes_back_to_the_nanosecond_whatever_is_in_it(
    ranks: int, changed: Callable[[np.ndarray], np.ndarray]
) -> None:
    arrays = changed(of_a_step(max(ranks, 10)))[:, -ranks:]
    packed = pack_ranks(arrays)
    assert (unpack_ranks(packed) == arrays).all()
    assert (unpack_ranks(packed, phases=False) == arrays[:3]).all()


def test_waits_and_a_phase_that_follow_from_the_rest_take_no_room() -> None:
    told = of_a_step(4_096)
    rng = np.random.default_rng(3)
    unrelated = told.copy()
    unrelated[1] = rng.permutation(told[1])
    unrelated[3] = rng.permutation(told[2])
    assert len(pack_ranks(unrelated)) - len(pack_ranks(told)) > 3 * 4_096


def test_a_step_of_version_3_is_read() -> None:
    stored = bytes.fromhex(
        "030300000006290000007801d3f9cfc0f09ffdff7f06c6ff9f18fe3300190cff59610c2d188311c600ca02d53002"
        "00be131940780163f8cff0e23fe385ff4c3bfe332ff8cfd2f19fb5e03f1bc37f06e6ff0cecff19b8ff33f0ff6710"
        "fecf20fe9f0128487504005d632e42"
    )
    told = [[300, -1, 5_000_000_000], [0, -1, 7], [-1, -1, 1 << 40]]
    told += [[phase * 1_000, -1, phase] for phase in range(7)]
    assert unpack_ranks(stored).tolist() == told
    assert unpack_ranks(stored, phases=False).tolist() == told[:3]


def test_what_an_older_version_stored_has_nothing_in_the_phases_it_did_not_know() -> None:
    known = np.array([[-1, 5]] + [[-1, 7]] * 7)
    plain = np.ascontiguousarray(known.astype("<i8"))
    shuffled = np.ascontiguousarray(plain.view(np.uint8).reshape(-1, 8).T).tobytes()
    older = struct.pack("<BI", 1, 2) + zlib.compress(shuffled)
    assert unpack_ranks(older)[:8].tolist() == known.tolist()
    assert unpack_ranks(older)[8:].tolist() == [[-1, 0], [-1, 0]]


def test_a_rank_without_data_is_null_and_unknown_facts_too() -> None:
    arrays = np.arange(24).reshape(8, 3)
    arrays[:, 1] = -1
    unknown = Step(step=4, start_wall_ns=-1, duration_ns=9, slowest_rank=-1, per_rank=arrays)
    told = columns("j", 1, [unknown], [0, 1], phases=True)
    assert told["self_ns"] == [[0, None]]
    assert told["comm_ns"] == [[6, None]]
    assert told["phase_self_ns"] == [[[9, 12, 15, 18, 21], [None] * 5]]
    assert told["start_wall_ns"] == [None]
    assert told["slowest_rank"] == [None]


def test_recent_steps_forget_the_oldest() -> None:
    recent = RecentSteps(3)
    recent.extend(step(number) for number in range(5))
    assert recent.bounds == (2, 4)
    assert [s.step for s in recent.between(0, 3)] == [2, 3]


def test_waits_are_summed_over_the_ranks_that_have_data() -> None:
    arrays = np.zeros((8, 3), dtype=np.int64)
    arrays[1] = [5, -1, 7]
    assert step(1, arrays).wait_total_ns == 12
