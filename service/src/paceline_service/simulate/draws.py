"""Random numbers that are those of Python's ``random.Random(seed)``, drawn by the million."""

from __future__ import annotations

import numpy as np


def generator(seed: int) -> np.random.Generator:
    """Return a generator whose ``random`` and ``uniform`` give what ``random.Random(seed)`` gives.

    Both are the Mersenne Twister, seeded by the 32-bit words of the seed (CPython, ``random_seed``
    in Modules/_randommodule.c), and take 53 bits for a number. So what somebody works out with a
    few lines of Python comes out here too, to the last digit.

    Args:
        seed: any whole number; its sign does not count, as in Python.
    """
    words, left = [], abs(seed)
    while left or not words:
        words.append(left & 0xFFFFFFFF)
        left >>= 32
    twister = np.random.MT19937()
    # By the public way: the legacy generator seeds as CPython does, the new one does not.
    twister.state = np.random.RandomState(words).get_state(legacy=False)
    return np.random.Generator(twister)
