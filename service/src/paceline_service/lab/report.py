"""A run of the lab as one answer: ``paceline.lab/1`` (docs/lab.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline_service.analysis.costs.words import bytes_of, count_of
from paceline_service.commands.answer import Answer, Table
from paceline_service.export.text import headline
from paceline_service.lab.drawings import loss_drawing, wire_drawing
from paceline_service.lab.figures import StretchFigures, figures_of
from paceline_service.lab.links import Wire
from paceline_service.lab.options import LabOptions
from paceline_service.lab.run import Run
from paceline_service.lab.tables import (
    bucket_table,
    modelled_held_bytes,
    modelled_sent_bytes,
    sent_bytes,
    sharding_table,
    step_table,
)
from paceline_service.lab.words import (
    KINDS,
    against_model,
    best_bucket,
    bounds_note,
    hidden,
    learned,
    legend,
    ms,
    wire_words,
)

SCHEMA = "paceline.lab/1"


def lab_answer(options: LabOptions, run: Run, wires: dict[str, Wire]) -> Answer:
    """Return what the lab found."""
    manifest = run.manifest
    skip = options.warm_up_steps
    figures = [figures_of(one, run.measured, wires, manifest, skip) for one in manifest.stretches]
    return Answer(
        schema=SCHEMA,
        model=f"sweep {options.sweep}" if options.sweep else "train",
        title=_title(options, run),
        input={
            "size": options.size,
            "ranks": options.ranks,
            "steps": options.steps,
            "sweep": options.sweep or None,
            "fault": options.fault,
            "slow_rank": options.slow_rank if options.fault != "none" else None,
        },
        given=[wire_words(wire, manifest.ranks) for wire in wires.values()],
        values=_values(options, run, wires, figures),
        tables=[*_tables(options, run, figures), _wire_table(options, wires, figures)],
        meaning=_meaning(options, run, figures),
    )


def _title(options: LabOptions, run: Run) -> str:
    manifest = run.manifest
    parameters = count_of(manifest.parameters)
    return (
        f"{manifest.ranks} ranks over {manifest.backend} on {manifest.device} train a transformer "
        f"of {parameters} parameters ({bytes_of(4 * manifest.parameters)}) to tell sentences apart"
    )


def _tables(options: LabOptions, run: Run, figures: list[StretchFigures]) -> list[Table]:
    if options.sweep == "bucket":
        return [bucket_table(figures)]
    steps = [step_table(one, options.sweep) for one in figures]
    return [*steps, sharding_table(figures, run.manifest)] if options.sweep else steps


def _wire_table(
    options: LabOptions, wires: dict[str, Wire], figures: list[StretchFigures]
) -> Table:
    sizes = sorted({size for wire in wires.values() for size in wire.size_bytes})
    rows = []
    for op, wire in wires.items():
        took = dict(zip(wire.size_bytes, wire.took_s, strict=True))
        rows.append((KINDS[op], *(ms(took.get(size)) for size in sizes)))
    return Table(
        title="Transfers alone: the fastest quarter of each size, ms",
        heads=("", *(bytes_of(size) for size in sizes)),
        rows=rows,
        plots=lambda: [*wire_drawing(wires, figures), *loss_drawing(figures, options.sweep)],
    )


def _meaning(options: LabOptions, run: Run, figures: list[StretchFigures]) -> list[str]:
    told = [learned(figures)]
    if options.sweep == "bucket":
        told.append(best_bucket(figures))
    else:
        told += [hidden(one, run.manifest.device) for one in figures]
    told.append(against_model(figures, run.manifest.device))
    told.append(f"Paceline says of the whole job: {headline(run.report)}.")
    told += legend(options.sweep)
    return [sentence for sentence in (*told, bounds_note(figures)) if sentence]


def _values(
    options: LabOptions, run: Run, wires: dict[str, Wire], figures: list[StretchFigures]
) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "backend": manifest.backend,
        "device": manifest.device,
        "parameters": manifest.parameters,
        "alone": {
            op: {
                "bytes": list(wire.size_bytes),
                "took_s": list(wire.took_s),
                "latency_s": wire.cost.latency_s if wire.cost is not None else None,
                "s_per_byte": wire.cost.s_per_byte if wire.cost is not None else None,
            }
            for op, wire in wires.items()
        },
        "stretches": [
            {
                "name": one.stretch.name,
                "strategy": one.stretch.strategy,
                "bucket_bytes": one.stretch.bucket_bytes if one.stretch.strategy == "ddp" else None,
                "learned": one.learned,
                "losses": one.stretch.losses,
                "accuracy": one.stretch.accuracy,
                "step_s": one.step_s,
                "step_spread_s": one.spread_s,
                "phases_s": one.phases_s,
                "payload_bytes": one.payload_bytes,
                "sent_bytes": sent_bytes(one, manifest.ranks),
                "modelled_sent_bytes": modelled_sent_bytes(one, manifest),
                "transfer_s": one.transfer_s,
                "modelled_transfer_s": one.modelled_transfer_s,
                "exposed_s": one.exposed_s,
                "modelled_exposed_s": one.modelled_exposed_s,
                "waited_s": one.waited_s,
                "held_bytes": one.stretch.held_bytes,
                "modelled_held_bytes": modelled_held_bytes(one, manifest),
                "whole_bytes": one.full_bytes,
                "peak_bytes": one.stretch.peak_bytes or None,
                "syncs": [asdict(sync) for sync in one.syncs],
            }
            for one in figures
        ],
        "verdict": run.report["verdict"],
        "log": str(options.log),
    }
