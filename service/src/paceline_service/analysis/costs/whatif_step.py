"""What would change a step: the same job with one number twice or half as large."""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import PacelineError
from paceline_service.analysis.costs.alpha_beta import Link
from paceline_service.analysis.costs.pipeline import Schedule
from paceline_service.analysis.costs.step import Job, Step, step_of
from paceline_service.analysis.costs.strategies import SHARDED_PARAMETERS, Layout


def changed_steps(job: Job) -> list[tuple[str, Step]]:
    """Return what each change makes of a step; what does not apply is left out."""
    machine, layout = job.machine, job.layout
    jobs: list[tuple[str, Job]] = [
        ("ranks twice as fast", replace(job, flops_per_s=2 * job.flops_per_s))
    ]
    if machine.nodes > 1:
        jobs += [
            ("2x bandwidth between nodes",
             replace(job, machine=replace(machine, link=_faster(machine.link)))),
            ("half latency between nodes",
             replace(job, machine=replace(machine, link=_sooner(machine.link)))),
        ]  # fmt: skip
    if machine.inside is not None and machine.local > 1:
        jobs.append(
            ("2x bandwidth within nodes",
             replace(job, machine=replace(machine, inside=_faster(machine.inside))))
        )  # fmt: skip
    if layout.replicas > 1:
        jobs.append(
            (_unoverlapped(job) if job.overlap else "gradients overlap",
             replace(job, overlap=not job.overlap))
        )  # fmt: skip
    found = [(name, step_of(one)) for name, one in jobs]
    return found + _other_layouts(job)


def _unoverlapped(job: Job) -> str:
    sharded = job.layout.strategy in SHARDED_PARAMETERS
    return "nothing overlaps" if sharded else "no buckets, no overlap"


def _other_layouts(job: Job) -> list[tuple[str, Step]]:
    """Return steps of twice the batch, and of an interleaved pipeline."""
    pipeline = job.layout.pipeline
    twice = replace(pipeline, micro_batches=2 * pipeline.micro_batches)
    found = [("2x batch (per sample)", step_of(_with(job, pipeline=twice)))]
    if pipeline.stages > 1 and pipeline.schedule is not Schedule.INTERLEAVED:
        try:
            finer = replace(pipeline, virtual_stages=2, schedule=Schedule.INTERLEAVED)
            found.append(("interleaved, 2 pieces a rank", step_of(_with(job, pipeline=finer))))
        except PacelineError:
            pass  # the model or the batch cannot be divided so
    return found


def _with(job: Job, **changes: object) -> Job:
    layout: Layout = replace(job.layout, **changes)  # type: ignore[arg-type]
    return replace(job, layout=layout)


def _faster(link: Link) -> Link:
    return replace(link, bytes_per_s=2 * link.bytes_per_s)


def _sooner(link: Link) -> Link:
    return replace(link, alpha_s=link.alpha_s / 2)
