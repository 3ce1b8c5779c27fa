from __future__ import annotations

import struct
import zlib

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
