"""Random numbers that are those of Python's ``random.Random(seed)``, drawn by the million."""

from __future__ import annotations

from typing import Any

import numpy as np


def generator(seed: int) -> np.random.Generator:
    """Return a generator whose ``random`` and ``uniform`` give what ``random.Random(seed)`` gives.

    Both are the Mersenne Twister, seeded by the 32-bit words of the seed (CPython, ``random_seed``
    in Modules/_randommodule.c), and take 53 bits for a number. So what somebody works out with a
    few lines of Python comes out here too, to the last digit.

    Args:
        seed: any whole number; its sign does not count, as in Python.
    """
    words: list[int] = []
    left = abs(seed)
    while left or not words:
        words.append(left & 0xFFFFFFFF)
        left >>= 32
    # The legacy generator seeds its twister as CPython does, if the words come as a list.
    legacy = np.random.RandomState(words)
    twister = np.random.MT19937()
    state: Any = legacy.get_state(legacy=False)
    twister.state = state
    return np.random.Generator(twister)
