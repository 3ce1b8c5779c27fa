"""The plots of the lab: a typical step, transfers against size, a sweep, the loss, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline_service.export.plots import Bar, Drawing, Lane, Line, Mark, Span, bars, lanes, plot
from paceline_service.lab.figures import StretchFigures
from paceline_service.lab.links import Wire
from paceline_service.lab.words import KINDS, carried, label

MOST_LANES = 30
_MEANING = {
    "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "wait": "waits for the last rank", "comm": "transfer",
}  # fmt: skip
_SHORT = {"all_reduce": "reduce", "all_gather": "gather", "reduce_scatter": "scatter"}


def step_drawing(
    figures: StretchFigures, name: str, passes: Mapping[str, tuple[float, float]]
) -> list[Drawing]:
    """Return a typical step: a lane for the passes, and one for each synchronization.

    Args:
        figures: of the stretch.
        name: of the stretch.
        passes: begin and end of forward, backward and optimizer, seconds from the step's begin.
    """
    if not 0 < len(figures.syncs) <= MOST_LANES:
        return []
    compute = [Span(begin * 1e3, end * 1e3, kind) for kind, (begin, end) in passes.items()]
    rows = [Lane("compute", compute)]
    for sync in figures.syncs:
        # The figures of the table: medians of three columns need not add up otherwise.
        first, last = sync.first_s * 1e3, (sync.first_s + sync.wait_s) * 1e3
        end = last + (sync.transfer_s or 0.0) * 1e3
        says = f"{KINDS[sync.call.op]} of {carried(sync)}"
        spans = [Span(first, last, "wait", says), Span(last, end, "comm", says)]
        first_part = carried(sync).split()[0].rstrip(",")
        rows.append(Lane(f"{_SHORT[sync.call.op]} {sync.bucket.bucket} {first_part}", spans))
    return [lanes(f"A typical step, {name}", "ms from its begin", rows, _MEANING)]


def wire_drawing(wires: Mapping[str, Wire], all_figures: Sequence[StretchFigures]) -> list[Drawing]:
    """Return what transfers take against their size: alone, by the model, and in training."""
    lines = []
    used = {sync.call.op for figures in all_figures for sync in figures.syncs}
    for wire in (wire for op, wire in wires.items() if op in used):
        kind = KINDS[wire.op]
        took_ms = [took * 1e3 for took in wire.took_s]
        lines.append(Line(f"{kind} alone", wire.size_bytes, took_ms, points_only=True))
        if wire.cost is not None:
            modelled = [wire.cost.seconds(size) * 1e3 for size in wire.size_bytes]
            lines.append(Line(f"{kind} model", wire.size_bytes, modelled))
    for op, kind in KINDS.items():
        seen = sorted(
            (sync.payload_bytes, sync.transfer_s * 1e3)
            for figures in all_figures
            for sync in figures.syncs
            if sync.call.op == op and sync.transfer_s
        )
        if seen:
            sizes, took = [size for size, _ in seen], [taken for _, taken in seen]
            lines.append(Line(f"{kind} in training", sizes, took, points_only=True))
    if not lines:
        return []
    title = "Transfers against their size"
    return [plot(title, "bytes", "ms", lines, log_x=True, log_y=True)]


def bucket_drawing(all_figures: Sequence[StretchFigures]) -> list[Drawing]:
    """Return the sweep over bucket sizes."""
    sizes = [figures.stretch.bucket_bytes / 1024 for figures in all_figures]
    told: list[tuple[str, list[float | None]]] = [
        ("a step", [figures.step_s for figures in all_figures]),
        ("transfers, measured", [figures.transfer_s for figures in all_figures]),
        ("transfers, model", [figures.modelled_transfer_s for figures in all_figures]),
        ("exposed, measured", [figures.exposed_s for figures in all_figures]),
        ("exposed, model", [figures.modelled_exposed_s for figures in all_figures]),
    ]
    lines = [
        Line(name, sizes, [float("nan") if s is None else s * 1e3 for s in seconds])
        for name, seconds in told
    ]
    best = min(all_figures, key=lambda figures: figures.exposed_s).stretch.bucket_bytes / 1024
    marks = [Mark(best, "hides most")]
    title = "A step against the size of buckets"
    return [plot(title, "bucket, KiB", "ms", lines, log_x=True, log_y=True, marks=marks)]


def sharding_drawing(all_figures: Sequence[StretchFigures]) -> list[Drawing]:
    """Return what each way to divide the work costs in time, and holds in memory."""
    times = [
        Bar(label(figures, "sharding"), {
            "transfers": (figures.transfer_s or 0.0) * 1e3,
            "the rest of the step": max(figures.step_s - (figures.transfer_s or 0.0), 0.0) * 1e3,
        })
        for figures in all_figures
    ]  # fmt: skip
    held = [
        Bar(label(figures, "sharding"),
            {name: size / 1e6 for name, size in figures.stretch.held_bytes.items()})
        for figures in all_figures
    ]  # fmt: skip
    return [
        bars("A step", "ms", times, {"transfers": "comm", "the rest of the step": "forward"}),
        bars("What a rank holds between steps", "MB", held),
    ]


def loss_drawing(all_figures: Sequence[StretchFigures], swept: str) -> list[Drawing]:
    """Return the loss of each stretch."""
    lines = [
        Line(
            label(figures, swept) if swept else "",
            list(range(1, len(figures.stretch.losses) + 1)),
            figures.stretch.losses,
        )
        for figures in all_figures
    ]
    return [plot("Loss", "step", "cross entropy", lines)]
