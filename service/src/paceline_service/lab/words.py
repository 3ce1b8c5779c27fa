"""What the figures of the lab mean, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.counted import counted
from paceline_service.analysis.costs.words import bandwidth_of, bytes_of, digits, duration_of
from paceline_service.export.units import format_ratio
from paceline_service.lab.figures import StretchFigures, TypicalSync
from paceline_service.lab.links import Wire

NAMES = {"ddp": "DDP", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
KINDS = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter"
}  # fmt: skip
OFF = 2.0
"""A line that is off by a greater factor somewhere is told to be."""
SLOWER = 1.3
"""From here on transfers in training are told to be slower than alone."""


def ms(seconds: float | None) -> str:
    """Return a time in milliseconds for a column of them, a dash where it is not known."""
    return "-" if seconds is None else f"{seconds * 1e3:,.2f}"


def label(figures: StretchFigures, swept: str) -> str:
    """Return how tables call a stretch."""
    stretch = figures.stretch
    if swept == "bucket":
        return stretch.name.removeprefix("ddp-")
    return NAMES[stretch.strategy]


def carried(sync: TypicalSync) -> str:
    """Return what a synchronization carries: the parts of the model, the first and the last."""
    parts = list(dict.fromkeys(_part(name) for name in sync.bucket.names))
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    if first.startswith("blocks"):
        last = last.removeprefix("blocks")
    return f"{first}, {last}" if len(parts) == 2 else f"{first} .. {last}"


def learned(all_figures: Sequence[StretchFigures]) -> str:
    """Say whether the loss fell; every stretch begins with the same model and sees the same."""
    best = all_figures[0]
    count = len(best.stretch.losses)
    fell = f"from {digits(best.first_loss)} to {digits(best.last_loss, 2)} in {count} steps"
    if not all(figures.learned for figures in all_figures):
        return f"The loss did not fall ({fell}): train longer with --steps."
    told = (
        f"It learns: the loss fell {fell}, and {format_ratio(best.stretch.accuracy)} of sentences "
    )
    told += "that it never saw are told right"
    if len(all_figures) == 1:
        return told + "."
    apart = max(
        abs(a - b)
        for figures in all_figures[1:]
        for a, b in zip(best.stretch.losses, figures.stretch.losses, strict=True)
    )
    if apart < 1e-3:
        return (
            told + ". Every stretch has the same losses: how the work is divided changes nothing."
        )
    return told + f". Losses of the stretches differ by {apart:.2g} at most: sums in another order."


def wire_words(wire: Wire, ranks: int) -> str:
    """Say what an operation costs alone."""
    kind = KINDS[wire.op]
    if wire.cost is None:
        return f"{kind} alone: start-up and bandwidth cannot be told apart, it was too noisy here"
    rounds = (2 if wire.op == "all_reduce" else 1) * (ranks - 1)
    bytes_per_s = rounds / ranks / wire.cost.s_per_byte
    told = (
        f"{kind} alone: {duration_of(wire.cost.latency_s)} + {wire.cost.s_per_byte * 1e9:.3g} ns a "
        f"byte, so alpha is {duration_of(wire.cost.latency_s / rounds)} a message and "
        f"{bandwidth_of(bytes_per_s)} leave a rank"
    )
    if wire.off_times > OFF:
        told += f"; off this line by a factor of {digits(wire.off_times, 2)} at "
        told += bytes_of(wire.off_bytes)
    return told


def hidden(figures: StretchFigures, device: str) -> str:
    """Say how much of the communication was hidden, and what the ranks waited for each other."""
    name = NAMES[figures.stretch.strategy]
    told = f"{name}: a step takes {duration_of(figures.step_s)}. "
    count, size = len(figures.syncs), bytes_of(figures.payload_bytes)
    told += f"{counted(count, 'synchronization carries', 'synchronizations carry')} {size}"
    if figures.transfer_s:
        share = max(0.0, 1 - figures.exposed_s / figures.transfer_s)
        told += f" in {duration_of(figures.transfer_s)}"
        if figures.stretch.strategy != "ddp" and device == "cpu":
            told += (
                ", next to nothing of it hidden: FSDP2 needs a stream beside the compute for that"
            )
        elif share < 0.01:
            told += ", nothing of it hidden by compute"
        else:
            told += f"; compute hides {format_ratio(share)} of that"
    told += f". Ranks stand still {duration_of(figures.exposed_s)} for transfers and "
    return told + f"{duration_of(figures.waited_s)} for each other."


def best_bucket(all_figures: Sequence[StretchFigures]) -> str:
    """Say which size of buckets hides most, and which has the shortest step, if that is clear."""
    hides = min(all_figures, key=lambda figures: figures.exposed_s)
    first, second = sorted(all_figures, key=lambda figures: figures.step_s)[:2]
    size, exposed = label(hides, "bucket"), duration_of(hides.exposed_s)
    told = (
        f"Buckets of {size} leave least in the open, {exposed} a step. "
        "Smaller ones pay the start-up of a transfer again and again; of a large one little is "
        "hidden, since it is sent when nearly all of the backward pass is over. "
    )
    if second.step_s - first.step_s < max(first.spread_s, second.spread_s) / 2:
        return told + (
            f"Which step is shortest cannot be told here: each takes longer or shorter by "
            f"{duration_of(first.spread_s)}."
        )
    return told + f"The shortest step has buckets of {label(first, 'bucket')}."


def against_model(all_figures: Sequence[StretchFigures], device: str) -> str:
    """Say how transfers in training compare with the same transfers alone."""
    pairs = [
        (figures.transfer_s, figures.modelled_transfer_s)
        for figures in all_figures
        if figures.transfer_s is not None and figures.modelled_transfer_s
    ]
    if not pairs:
        return "Transfers have no model here: alone they were too noisy for a line."
    taken, modelled = sum(a for a, _ in pairs if a), sum(b for _, b in pairs if b)
    ratio = taken / modelled
    told = f"Transfers take {digits(ratio)} times what they take alone"
    if ratio < SLOWER:
        return told + ": the line through them holds in training too."
    if device == "cpu":
        return (
            told + ": on a CPU the copying and adding of a transfer shares the cores with the "
            "compute, so what is hidden is not free."
        )
    return told + ": in training they share the memory and the links with the compute."


def legend(swept: str) -> list[str]:
    """Say what the columns are."""
    told = []
    if swept != "bucket":
        told += [
            "Columns: arrives, when the first rank brings its part, from the begin of the step; "
            "waits, how long that lies there until the last rank comes; last, who mostly comes "
            "last, and in which share of the steps; transfer, from then to the first release, with "
            "what it waited behind other transfers; alone, what the model says of that size when "
            "nothing else runs; exposed, how long even the last rank did nothing but wait.",
        ]
    if swept == "bucket":
        told += [
            "Columns: transfers, how long one was under way in a step; exposed, how long even the "
            "last rank did nothing but wait for one; waited, how long ranks stood still for each "
            "other. The model of each stands to its right.",
        ]
    if swept == "sharding":
        told += [
            "And: sent, bytes that leave a rank in a step; held, parameters, gradients and "
            "optimizer states of a rank between steps; whole, parameters that are gathered at "
            "once, at most.",
        ]
    return told


def bounds_note(all_figures: Sequence[StretchFigures]) -> str:
    """Say which ends were seen late, nothing where none was."""
    if not any(sync.bound for figures in all_figures for sync in figures.syncs):
        return ""
    return (
        "A transfer with <= took that long at most: the Python hooks see the end of what DDP's "
        "reducer waits for only after the backward pass. `paceline doctor --build` compiles the "
        "hook that sees it."
    )


def _part(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else parts[0]
