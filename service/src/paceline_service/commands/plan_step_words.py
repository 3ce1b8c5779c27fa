"""What ``paceline plan step`` means, in words."""

from __future__ import annotations

from paceline_service.analysis.costs.layouts import layout_words
from paceline_service.analysis.costs.memory import Memory
from paceline_service.analysis.costs.step import Step
from paceline_service.analysis.costs.whatif_step import changed_steps
from paceline_service.analysis.costs.words import bytes_of, count_of, digits, duration_of
from paceline_service.commands.plan_step_tables import PART_WORDS
from paceline_service.export.units import format_ratio, format_times

_CLOSE = 0.10
"""A measured step within so much of the arithmetic is as fast as can be said."""


def meaning(
    step: Step, held: Memory, limit_bytes: int, observed_s: float | None, found: list[Step]
) -> list[str]:
    """Return what a newcomer should take away, the verdict first.

    Args:
        step: that was asked for.
        held: by a rank.
        limit_bytes: of a device.
        observed_s: a step that was measured, if any.
        found: the fastest layouts, if they were searched.
    """
    said = [_verdict(step), _help(step), _memory(held, limit_bytes)]
    if observed_s is not None:
        said.insert(1, _observed(step, observed_s))
    if found:
        best = found[0]
        gain = step.step_s / best.step_s
        said.append(
            f"The fastest layout that fits is {layout_words(best.job.layout)}: "
            f"{format_times(gain)} as fast as this one."
            if gain > 1.001
            else "No other layout with these micro-batches is faster."
        )
    return said


def _verdict(step: Step) -> str:
    largest = step.largest
    share = format_ratio(largest.exposed_s / step.step_s)
    compute = step.term("compute")
    if largest.name == "compute":
        others = [term for term in step.terms if term.name != "compute"]
        next_one = max(others, key=lambda term: term.exposed_s, default=None)
        most = f"most of it, {share}, is compute"
        if next_one is not None and next_one.exposed_s > 0:
            share = format_ratio(next_one.exposed_s / step.step_s)
            most += f"; the largest of the rest is {PART_WORDS[next_one.name]}, {share}"
    else:
        most = (
            f"the largest part is not compute but {PART_WORDS[largest.name]}, {share}: more ranks "
            "of the same kind would not help"
        )
    hidden = (
        f" (gamma {digits(step.gamma)}; {format_ratio(step.hidden_s / step.communication_s)} of it "
        "hidden)"
        if step.communication_s > 0
        else ""
    )
    return (
        f"A step should take {duration_of(step.step_s)}, {count_of(round(step.tokens_per_s))} "
        f"tokens a second, {format_ratio(step.model_flops_utilization)} of what the ranks could "
        f"compute; {most}. A rank computes {duration_of(compute.busy_s)} and communicates "
        f"{duration_of(step.communication_s)}{hidden}."
    )


def _help(step: Step) -> str:
    cases = [
        (name, step.step_s * one.job.batch / step.job.batch / one.step_s)
        for name, one in changed_steps(step.job)
        if name != "ranks twice as fast"
    ]
    name, gain = max(cases, key=lambda case: case[1], default=("", 1.0))
    if gain < 1.01:
        return "Apart from faster ranks nothing that is tried here gains a hundredth."
    return f"Apart from faster ranks what helps most is: {name}, {format_times(gain)} as fast."


def _memory(held: Memory, limit_bytes: int) -> str:
    total = bytes_of(held.total_bytes)
    if held.total_bytes <= limit_bytes:
        return f"A rank holds {total} and fits in {bytes_of(limit_bytes)}."
    return (
        f"But a rank holds {total} and does not fit in {bytes_of(limit_bytes)}: see `paceline plan "
        "memory`, or --search for layouts that fit."
    )


def _observed(step: Step, observed_s: float) -> str:
    ratio = observed_s / step.step_s
    told = f"The measured step, {duration_of(observed_s)}, is {format_times(ratio)} of that: "
    if ratio > 1 + _CLOSE:
        return told + (
            "slower than the arithmetic. If --flops and --bandwidth are what kernels and links "
            "reach when nothing is wrong, the rest is a straggler, the network, imbalance or the "
            "host; `paceline analyze` says which."
        )
    if ratio < 1 - _CLOSE:
        return told + (
            "faster than the arithmetic, so a number is too low: --flops, --utilization or a "
            "bandwidth."
        )
    return told + "as fast as the arithmetic says. Nothing is wrong; what changes it is below."
