"""The plots of ``paceline simulate bsp``."""

from __future__ import annotations

import numpy as np

from paceline_service.commands.simulate_bsp_words import stands_out
from paceline_service.commands.simulate_source import Source
from paceline_service.export.plots import Bar, Drawing, Lane, Line, Span, bars, lanes, plot
from paceline_service.simulate.bsp import Bsp

_MOST_RANKS = 16
_MOST_STEPS = 12
_MS = 1e3
_KINDS = {"work": "computes", "wait": "waits for the last one", "comm": "communicates"}


def step_plots(run: Bsp, source: Source) -> list[Drawing]:
    """Return who does what in the first steps, and how long each step is."""
    drawings = [_sawtooth(run, source)]
    if len(run.compute_s) > _MOST_STEPS:
        drawings.append(_steps(run))
    return drawings


def rank_bars(run: Bsp, source: Source, order: list[int]) -> Drawing:
    """Return what a mean step of some ranks is made of."""
    own, wait = run.compute_s.mean(axis=0) * _MS, run.wait_s.mean(axis=0) * _MS
    rows = [
        Bar(
            source.labels[place],
            {
                "computes": float(own[place]), "waits": float(wait[place]),
                "communicates": run.communication_s * _MS,
            },
        )
        for place in order
    ]  # fmt: skip
    kinds = {"computes": "work", "waits": "wait", "communicates": "comm"}
    return bars("What a mean step is made of", "ms", rows, kinds)


def _sawtooth(run: Bsp, source: Source) -> Drawing:
    steps = min(len(run.compute_s), _MOST_STEPS)
    order = np.argsort(-run.expected_s, kind="stable")[:_MOST_RANKS]
    chosen = sorted(int(place) for place in order)
    ends_ms = np.cumsum(run.superstep_s[:steps]) * _MS
    rows = []
    for place in chosen:
        spans: list[Span] = []
        for step in range(steps):
            own = float(run.compute_s[step, place]) * _MS
            begin = float(ends_ms[step - 1]) if step else 0.0
            barrier = float(ends_ms[step]) - run.communication_s * _MS
            told = f"step {step}: {own:.2f} ms of work, waits {barrier - begin - own:.2f} ms"
            spans.append(Span(begin, begin + own, "work", told))
            spans.append(Span(begin + own, barrier, "wait", told))
            spans.append(Span(barrier, float(ends_ms[step]), "comm"))
        rows.append(Lane(source.labels[place], spans, named=stands_out(run, place)))
    which = f"The {len(chosen)} slowest ranks" if len(chosen) < len(source.names) else "All ranks"
    title = f"{which} in the first {steps} steps" if steps > 1 else f"{which} in a step"
    return lanes(title, "ms", rows, _KINDS, [float(end) for end in ends_ms])


def _steps(run: Bsp) -> Drawing:
    """Return step times; of many steps the mean of each run of them, and the least and most."""
    parts = np.array_split(run.superstep_s * _MS, min(len(run.compute_s), 400))
    firsts = np.cumsum([0, *(len(part) for part in parts[:-1])]).tolist()
    balanced = run.balanced_s / len(run.compute_s) * _MS
    line = Line(
        "step", firsts, [float(part.mean()) for part in parts],
        low=[float(part.min()) for part in parts], high=[float(part.max()) for part in parts],
    )  # fmt: skip
    even = Line("in perfect balance", [firsts[0], firsts[-1]], [balanced, balanced])
    return plot("How long each step takes", "step", "ms", [line, even])
