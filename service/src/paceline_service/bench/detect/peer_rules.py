"""The decision rules of other tools, run by themselves where they are installed."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paceline_service.bench.detect.simulate.spec import FloatArray

MISSING = "nvidia-resiliency-ext is not installed: pip install nvidia-resiliency-ext"


def bench_peers() -> Path:
    """Return where ``paceline bench peers`` keeps the tools that it installs."""
    cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_dir / "paceline" / "bench-peers"


@cache
def nvrx_report() -> Any:
    """Return the class whose method decides, or None where the package cannot be imported."""
    place = str(bench_peers())
    name = "nvidia_resiliency_ext.straggler.reporting"
    try:
        return importlib.import_module(name).Report
    except Exception:
        pass
    sys.path.append(place)
    try:
        return importlib.import_module(name).Report
    except Exception:
        return None
    finally:
        sys.path.remove(place)


def nvrx_stragglers(sections_SRP: FloatArray) -> list[int] | None:
    """Return the ranks that it flags for the durations (steps, ranks, sections); None: not there.

    Its score of a section is the least median of all ranks over a rank's own median; its own code
    compares that with its own threshold.
    """
    report = nvrx_report()
    if report is None:
        return None
    medians = np.maximum(np.median(sections_SRP, axis=0), 1.0)
    scores = medians.min(axis=0) / medians
    ranks = range(len(medians))
    answer = report(
        gpu_relative_perf_scores={},
        section_relative_perf_scores={
            str(section): {rank: float(scores[rank, section]) for rank in ranks}
            for section in range(scores.shape[1])
        },
        gpu_individual_perf_scores={},
        section_individual_perf_scores={},
        rank_to_node=dict.fromkeys(ranks, ""),
        local_section_summaries={},
        local_kernel_summaries={},
        generate_report_elapsed_time=0.0,
        gather_on_rank0=True,
        rank=None,
    ).identify_stragglers()
    flagged = answer["straggler_sections_relative"].values()
    return sorted({one.rank for those in flagged for one in those})
