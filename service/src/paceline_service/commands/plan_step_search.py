"""``paceline plan step --search``: every layout of the ranks that fits, the fastest first."""

from __future__ import annotations

from dataclasses import replace

from paceline_service.analysis.costs.layouts import every_layout, layout_words
from paceline_service.analysis.costs.memory import memory_of
from paceline_service.analysis.costs.step import Job, Step, step_of
from paceline_service.analysis.costs.strategies import Layout
from paceline_service.analysis.costs.words import bytes_of, times_column
from paceline_service.commands.answer import Table
from paceline_service.commands.plan_step_tables import PART_WORDS
from paceline_service.export.units import format_ratio, format_times

_SHOWN = 10


def best_layouts(job: Job, limit_bytes: int) -> list[Step]:
    """Return the steps of the fastest layouts that fit into a device's memory."""
    machine = job.machine
    uneven = job.layout.pipeline.slowest_stage_ratio
    layouts = (
        _with_uneven_stages(layout, uneven)
        for layout in every_layout(
            machine.ranks, machine.local, job.model, job.batch, job.micro_batch
        )
    )
    fitting = [
        replace(job, layout=layout)
        for layout in layouts
        if memory_of(
            job.model, layout, job.precision, micro_batch=job.micro_batch, recompute=job.recompute
        ).total_bytes
        <= limit_bytes
    ]
    return sorted((step_of(one) for one in fitting), key=lambda step: step.step_s)[:_SHOWN]


def _with_uneven_stages(layout: Layout, ratio: float) -> Layout:
    stages = layout.pipeline.stages
    if stages == 1 or ratio == 1:
        return layout
    pipeline = replace(layout.pipeline, slowest_stage_ratio=min(ratio, float(stages)))
    return replace(layout, pipeline=pipeline)


def search_table(now: Step, found: list[Step]) -> Table:
    """Return the layouts that were found."""
    unit, shown = times_column([step.step_s for step in found])
    rows = []
    for step, text in zip(found, shown, strict=True):
        job = step.job
        held = memory_of(
            job.model, job.layout, job.precision, micro_batch=job.micro_batch,
            recompute=job.recompute,
        )  # fmt: skip
        others = [term for term in step.terms if term.name != "compute"]
        most = max(others, key=lambda term: term.exposed_s, default=None)
        rows.append(
            [
                layout_words(job.layout), text, format_times(now.step_s / step.step_s),
                bytes_of(held.total_bytes),
                f"{PART_WORDS[most.name]} {format_ratio(most.exposed_s / step.step_s)}"
                if most else "",
            ]
        )  # fmt: skip
    heads = ["layout", f"step\n{unit}", "against\nnow", "a rank\nholds", "most beside compute"]
    return Table(title="The fastest layouts that fit", heads=heads, rows=rows)
