"""Which of many jobs have a real finding: e-BH over their evidence (docs/math/evidence.md)."""

from __future__ import annotations

import numpy as np

from paceline.errors import AnalysisError
from paceline_service.analysis.records import BoolArray, FloatArray


def believed_jobs(e_values: FloatArray, false_share: float = 0.05) -> BoolArray:
    """Return which jobs to believe, so that at most ``false_share`` of them are false on average.

    The e-BH procedure (Wang and Ramdas 2022): with the values sorted downwards, the k largest are
    believed for the largest k with ``k e_(k) >= n / false_share``. It holds however the jobs
    depend on each other (one bad switch slows them all).

    Args:
        e_values: (n,) one of each job: evidence whose mean is at most 1 where nothing is wrong,
            for example the largest ``EDetector.values`` over tests times steps. NaN is a job
            that could not be judged and is not believed.
        false_share: between 0 and 1.

    Returns:
        (n,) whether each job's finding is believed.

    Raises:
        AnalysisError: ``false_share`` is out of range.
    """
    if not 0 < false_share <= 1:
        raise AnalysisError(f"false share {false_share} is out of range; give one in (0, 1]")
    values = np.nan_to_num(np.asarray(e_values, dtype=float), nan=0.0, posinf=np.inf)
    count = len(values)
    descending = np.sort(values)[::-1]
    enough = descending * np.arange(1, count + 1) >= count / false_share
    if not enough.any():
        return np.zeros(count, dtype=np.bool_)
    return np.asarray(values >= descending[np.flatnonzero(enough)[-1]])
