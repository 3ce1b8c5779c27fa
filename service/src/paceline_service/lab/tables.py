"""The tables of the lab: the synchronizations of a typical step, and a line for each stretch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.counted import counted
from paceline_service.analysis.costs.collectives import least_sent_ratio
from paceline_service.analysis.costs.precision import PRECISIONS
from paceline_service.analysis.costs.strategies import Layout, Strategy
from paceline_service.analysis.costs.traffic import data_traffic
from paceline_service.analysis.costs.words import bytes_of, count_of
from paceline_service.commands.answer import Table
from paceline_service.export.units import format_ratio
from paceline_service.lab.drawings import bucket_drawing, sharding_drawing, step_drawing
from paceline_service.lab.figures import StretchFigures, TypicalSync
from paceline_service.lab.plans import Manifest
from paceline_service.lab.words import KINDS, carried, label, ms

MOST_ROWS = 40
_LABEL_CELLS = 34


def step_table(figures: StretchFigures, swept: str) -> Table:
    """Return every synchronization of a typical step."""
    name = label(figures, swept)
    rows = [_sync_row(sync) for sync in figures.syncs[:MOST_ROWS]]
    left_out = len(figures.syncs) - len(rows)
    more = f"; {left_out} more are in the log" if left_out > 0 else ""
    return Table(
        title=f"{name}: the synchronizations of a step, medians of "
        f"{counted(figures.steps, 'step')}, ms{more}",
        heads=(
            "synchronization", "params", "size", "arrives", "waits", "last", "transfer",
            "alone", "exposed",
        ),
        rows=rows,
        marked=frozenset(n for n, sync in enumerate(figures.syncs[:MOST_ROWS]) if _pinned(sync)),
        plots=lambda: step_drawing(figures, name, figures.passes_s),
    )  # fmt: skip


def bucket_table(all_figures: Sequence[StretchFigures]) -> Table:
    """Return the sweep over bucket sizes; the one that hides most is marked."""
    rows = [
        (
            label(figures, "bucket"),
            str(len(figures.syncs)),
            ms(figures.step_s),
            ms(figures.phases_s.get("backward")),
            ms(figures.transfer_s),
            ms(figures.modelled_transfer_s),
            ms(figures.exposed_s),
            ms(figures.modelled_exposed_s),
            ms(figures.waited_s),
        )
        for figures in all_figures
    ]
    return Table(
        title="The size of DDP's buckets: measured, and by the model of transfers alone, ms",
        heads=(
            "bucket", "buckets", "step", "backward", "transfers", "model", "exposed", "model",
            "waited",
        ),
        rows=rows,
        marked=_least([figures.exposed_s for figures in all_figures]),
        plots=lambda: bucket_drawing(all_figures),
    )  # fmt: skip


def sharding_table(all_figures: Sequence[StretchFigures], manifest: Manifest) -> Table:
    """Return the sweep over strategies: what each sends, how long that takes, what is held."""
    rows = [
        (
            label(figures, "sharding"),
            str(len(figures.syncs)),
            bytes_of(sent_bytes(figures, manifest.ranks)),
            bytes_of(modelled_sent_bytes(figures, manifest)),
            ms(figures.transfer_s),
            ms(figures.modelled_transfer_s),
            ms(figures.exposed_s),
            ms(figures.step_s),
            bytes_of(sum(figures.stretch.held_bytes.values())),
            bytes_of(modelled_held_bytes(figures, manifest)),
            bytes_of(figures.full_bytes),
        )
        for figures in all_figures
    ]
    return Table(
        title="How the work is divided: measured, and by the models; times in ms",
        heads=(
            "strategy", "syncs", "sent", "model", "transfers", "model", "exposed", "step", "held",
            "model", "whole",
        ),
        rows=rows,
        marked=_least([figures.step_s for figures in all_figures]),
        plots=lambda: sharding_drawing(all_figures),
    )  # fmt: skip


def sent_bytes(figures: StretchFigures, ranks: int) -> float:
    """Return what leaves a rank in a step, as measured by the payloads."""
    return sum(sync.payload_bytes * least_sent_ratio(sync.call.op, ranks) for sync in figures.syncs)


def modelled_sent_bytes(figures: StretchFigures, manifest: Manifest) -> float:
    """Return what leaves a rank by docs/math/strategies.md, "What is sent"."""
    strategy = Strategy(figures.stretch.strategy)
    layout = Layout(data=manifest.ranks, strategy=strategy)
    sent = data_traffic(layout, PRECISIONS["fp32"], manifest.parameters)
    return sum(traffic.sent_bytes for traffic in sent)


def modelled_held_bytes(figures: StretchFigures, manifest: Manifest) -> float:
    """Return 16 bytes a parameter, divided by the ranks where all is sharded.

    FSDP shards parameters whichever way it is asked to gather them, so that between steps ZeRO-2
    here holds what ZeRO-3 does.
    """
    whole = PRECISIONS["fp32"].state_bytes * manifest.parameters
    return whole if figures.stretch.strategy == "ddp" else whole / manifest.ranks


def _sync_row(sync: TypicalSync) -> tuple[str, ...]:
    told = f"{KINDS[sync.call.op]} {sync.bucket.bucket} {carried(sync)}"
    last = f"{sync.last_rank}: {format_ratio(sync.last_share)}" if sync.last_rank >= 0 else "-"
    return (
        told[:_LABEL_CELLS],
        count_of(sync.bucket.parameters),
        bytes_of(sync.payload_bytes),
        ms(sync.first_s),
        ms(sync.wait_s),
        last,
        ("<= " if sync.bound else "") + ms(sync.transfer_s),
        ms(sync.modelled_s),
        ms(sync.exposed_s),
    )


def _pinned(sync: TypicalSync) -> bool:
    """Return whether one rank was last in nearly every step."""
    return sync.last_rank >= 0 and sync.last_share >= 0.9


def _least(values: Sequence[float]) -> frozenset[int]:
    return frozenset({min(range(len(values)), key=lambda place: values[place])})
