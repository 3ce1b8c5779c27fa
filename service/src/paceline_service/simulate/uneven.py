"""Whether ranks are slow by themselves, by their averages, or only by chance."""

from __future__ import annotations

import numpy as np

from paceline_service.simulate.noise import Floats

_STANDS_OUT = 1.1
"""Times the mean of the other ranks: such a rank is called a straggler."""
_AHEAD = 0.25
"""Of what the slowest takes over the mean: repairing it alone gains so much at least."""
_MOSTLY = 0.6
"""Of all waiting. Averages of three random steps explain less of it by chance."""


def stands_out(expected_s: Floats, place: int) -> bool:
    """Return whether a rank is slower than the others by itself.

    Args:
        expected_s: (R,), what each rank takes on average.
        place: of the rank.
    """
    return bool(expected_s[place] > _STANDS_OUT * np.delete(expected_s, place).mean())


def alone(expected_s: Floats, place: int) -> bool:
    """Return whether the slowest rank stands out and no other is nearly as slow.

    Args:
        expected_s: (R,), what each rank takes on average.
        place: of the slowest rank.
    """
    ahead_s = expected_s[place] - np.delete(expected_s, place).max()
    over_s = expected_s[place] - expected_s.mean()
    return stands_out(expected_s, place) and bool(ahead_s > _AHEAD * over_s)


def mostly_averages(expected_s: Floats, wait_s: float) -> bool:
    """Return whether most waiting is for ranks that are always slower, and not for chance.

    Args:
        expected_s: (R,), what each rank takes on average.
        wait_s: of a mean rank and step with a barrier.
    """
    return bool(expected_s.max() - expected_s.mean() > _MOSTLY * wait_s)
