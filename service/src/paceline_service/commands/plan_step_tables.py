"""The tables and plots of ``paceline plan step``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline_service.analysis.costs.step import Step
from paceline_service.analysis.costs.whatif_step import changed_steps
from paceline_service.analysis.costs.words import bytes_of, digits, duration_of, times_column
from paceline_service.commands.answer import Table
from paceline_service.export.units import format_ratio, format_times

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

PART_WORDS = {
    "compute": "compute", "tensor": "tensor: activations", "context": "context: keys and values",
    "data": "data: gradients, weights", "pipeline": "pipeline: sends", "bubble": "pipeline: bubble",
    "imbalance": "pipeline: uneven stages",
    "optimizer": "optimizer",
}  # fmt: skip


def parts_table(step: Step) -> Table:
    """Return the parts of a step, and the step."""
    rows = [
        [PART_WORDS[term.name], duration_of(term.busy_s) if term.busy_s else "\u2013",
         duration_of(term.exposed_s), format_ratio(term.exposed_s / step.step_s),
         bytes_of(term.sent_bytes) if term.sent_bytes else "\u2013"]
        for term in step.terms
    ]  # fmt: skip
    sent = sum(term.sent_bytes for term in step.terms)
    rows.append(["step", "", duration_of(step.step_s), "100 %", bytes_of(sent)])

    def plots() -> list[Drawing]:
        from paceline_service.export.plots import Bar, bars

        cases = [("this step", step), *changed_steps(step.job)]
        shown = [
            Bar(name, {PART_WORDS[term.name]: _per_sample_ms(one, step, term.exposed_s)
                       for term in one.terms})
            for name, one in cases
        ]  # fmt: skip
        return [bars("What a step is made of, and what would change it", "ms", shown)]

    largest = max(range(len(step.terms)), key=lambda place: step.terms[place].exposed_s)
    heads = ["part", "of a rank", "adds to\nthe step", "share", "a rank\nsends"]
    return Table(
        title="A step", heads=heads, rows=rows, marked=frozenset({largest}), plots=plots
    )  # fmt: skip


def sent_table(step: Step) -> Table:
    """Return what is sent in which group."""
    node = step.job.machine.ranks_per_node
    rows = [
        [
            f"{one.group.dimension.value}: {one.what}", one.operation.value,
            f"{one.group.members:,}", "node" if near == one.group.members else "nodes",
            digits(one.count, 6), bytes_of(one.payload_bytes), bytes_of(one.sent_bytes),
        ]
        for one in step.traffic
        for near in [one.group.near(node)]
    ]  # fmt: skip
    heads = ["what is sent", "by", "ranks", "within", "times", "of", "a rank\nsends"]
    if not rows:
        return Table(title="", heads=["nothing is sent: one rank"], rows=[])
    return Table(title="What is sent in a step", heads=heads, rows=rows)


def whatif_table(step: Step) -> Table:
    """Return what a step would take if one thing were different."""
    cases = changed_steps(step.job)
    took = [one.step_s * step.job.batch / one.job.batch for _, one in cases]
    unit, shown = times_column([*took, step.step_s])
    rows = [
        [name, shown[place], format_times(step.step_s / took[place])]
        for place, (name, _) in enumerate(cases)
    ]
    rows.sort(key=lambda row: float(row[2].rstrip("x")), reverse=True)
    heads = ["if", f"a step takes\n{unit}", "against\nnow"]
    return Table(title="What would change it, for as many samples", heads=heads, rows=rows)


def _per_sample_ms(one: Step, now: Step, seconds: float) -> float:
    """Return a time of another batch as that of as many samples as now."""
    return seconds * now.job.batch / one.job.batch * 1e3
