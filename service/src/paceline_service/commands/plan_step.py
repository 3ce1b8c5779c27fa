"""``paceline plan step``: what a step of a layout takes, and what would change it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.alpha_beta import Link, Machine
from paceline_service.analysis.costs.layouts import layout_words
from paceline_service.analysis.costs.memory import memory_of
from paceline_service.analysis.costs.overlap import BUCKET_BYTES
from paceline_service.analysis.costs.pipeline import Pipeline, Schedule
from paceline_service.analysis.costs.step import Job, Step, micro_batches_of, step_of
from paceline_service.analysis.costs.strategies import (
    SHARDED_PARAMETERS,
    Layout,
    Recompute,
    Strategy,
)
from paceline_service.analysis.costs.words import bandwidth_of, bytes_of, duration_of, flops_of
from paceline_service.commands.answer import PLAN, Answer, FormatOption, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.layout_options import (
    Batch,
    DeviceMemory,
    Heads,
    Hidden,
    Layers,
    MicroBatch,
    Parameters,
    PrecisionName,
    RanksPerNode,
    Sequence,
    Vocabulary,
    asked_model,
    asked_precision,
    model_input,
    model_line,
    precision_line,
)
from paceline_service.commands.output import Format
from paceline_service.commands.plan_step_search import best_layouts, search_table
from paceline_service.commands.plan_step_tables import parts_table, sent_table, whatif_table
from paceline_service.commands.plan_step_words import meaning

_TITLE = "The time of a step, by the arithmetic"
_SAMPLES_PER_RANK = 4


def plan_step(
    parameters: Parameters = None,
    layers: Layers = None,
    hidden: Hidden = None,
    heads: Heads = None,
    sequence: Sequence = "2048",
    vocabulary: Vocabulary = "32000",
    ranks: Annotated[str, typer.Option(metavar="N", help="Of the job.")] = "64",
    tensor: Annotated[str, typer.Option(metavar="T", help="Ranks that share a layer.")] = "1",
    pipeline: Annotated[str, typer.Option(metavar="P", help="Stages of layers.")] = "1",
    context: Annotated[str, typer.Option(metavar="C", help="Ranks that share a sample.")] = "1",
    strategy: Annotated[
        Strategy, typer.Option(help="Of the data-parallel ranks; the rest of N is theirs.")
    ] = Strategy.FSDP,
    shard: Annotated[
        str | None, typer.Option(metavar="F", help="With hsdp: ranks that hold one copy; a node.")
    ] = None,
    schedule: Annotated[Schedule | None, typer.Option(help="Of the pipeline; 1f1b.")] = None,
    virtual_stages: Annotated[
        str, typer.Option(metavar="V", help="Pieces of layers on a rank, interleaved.")
    ] = "1",
    slowest_stage: Annotated[
        float,
        typer.Option(metavar="X", help="Its work over that of the mean stage: 1.1, if so."),
    ] = 1.0,
    batch: Batch = None,
    micro_batch: MicroBatch = "1",
    recompute: Annotated[
        Recompute,
        typer.Option(help="Activations computed again: selective is what flash attention does."),
    ] = Recompute.SELECTIVE,
    precision: PrecisionName = "zero",
    flops: Annotated[str, typer.Option(metavar="R", help="FLOP/s of a rank: 312T.")] = "312T",
    utilization: Annotated[
        float, typer.Option(metavar="U", help="What of it matrix products reach, 0 to 1.")
    ] = 0.5,
    bandwidth: Annotated[
        str, typer.Option(metavar="B", help="Out of a rank to other nodes: 25GB/s, 200Gb/s.")
    ] = "25GB/s",
    latency: Annotated[str, typer.Option(metavar="TIME", help="Of a message there.")] = "5us",
    ranks_per_node: RanksPerNode = "8",
    node_bandwidth: Annotated[
        str, typer.Option(metavar="B", help="Out of a rank within a node.")
    ] = "300GB/s",
    node_latency: Annotated[str, typer.Option(metavar="TIME", help="Of a message there.")] = "2us",
    no_overlap: Annotated[
        bool, typer.Option("--no-overlap", help="Gradients and weights are sent after, not beside.")
    ] = False,
    bucket: Annotated[
        str, typer.Option(metavar="BYTES", help="Of gradients sent together.")
    ] = f"{BUCKET_BYTES >> 20}MiB",
    memory: DeviceMemory = "80GB",
    memory_bandwidth: Annotated[
        str | None,
        typer.Option(metavar="B", help="Of a device's memory, to count the optimizer: 2TB/s."),
    ] = None,
    observed: Annotated[
        str | None, typer.Option(metavar="TIME", help="A step that was measured, to compare.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try every layout of the ranks; show the fastest.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Say what a step of a layout should take: compute, exposed communication, the bubble.

    Ranks are tensor x context x data x pipeline, tensor innermost. The formulas and their sources
    are in docs/math/strategies.md. Without options: 7 billion parameters on 64 ranks, FSDP.
    """
    model = asked_model(parameters, layers, hidden, heads, sequence, vocabulary)
    if not 0 < utilization <= 1:
        raise ConfigError(f"--utilization is {utilization}: give a share above 0, at most 1")
    micro = units.parse_count(micro_batch, "--micro-batch", unit="samples")
    if strategy is Strategy.HYBRID and shard is None:
        shard = ranks_per_node
    layout = _layout(
        ranks, tensor, pipeline, context, strategy, shard, schedule, virtual_stages, batch, micro,
        slowest_stage,
    )  # fmt: skip
    machine = _machine(
        layout.ranks, ranks_per_node, bandwidth, latency, node_bandwidth, node_latency
    )
    job = Job(
        model=model, layout=layout, machine=machine, micro_batch=micro, recompute=recompute,
        flops_per_s=units.parse_flops(flops, "--flops") * utilization,
        precision=asked_precision(precision), overlap=not no_overlap,
        bucket_bytes=units.parse_bytes(bucket, "--bucket"),
        memory_bytes_per_s=None if memory_bandwidth is None
        else units.parse_bandwidth(memory_bandwidth, "--memory-bandwidth"),
    )  # fmt: skip
    limit = units.parse_bytes(memory, "--memory")
    observed_s = None if observed is None else units.parse_duration_s(observed, "--observed")
    step = step_of(job)
    held = memory_of(model, layout, job.precision, micro_batch=micro, recompute=recompute)
    tables = [parts_table(step), sent_table(step), whatif_table(step)]
    values = _values(step)
    values["memory"] = {
        **asdict(held), "total_bytes": held.total_bytes, "fits": held.total_bytes <= limit
    }  # fmt: skip
    found = best_layouts(job, limit) if search else []
    if search:
        tables.append(search_table(step, found))
        values["layouts"] = [
            {"layout": layout_words(one.job.layout), "step_s": one.step_s} for one in found
        ]
    answer = Answer(
        schema=PLAN, model="step", title=_TITLE, input=_input(job, limit, observed_s),
        given=_given(job), values=values, tables=tables,
        meaning=meaning(step, held, limit, observed_s, found),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _layout(
    ranks: str, tensor: str, pipeline: str, context: str, strategy: Strategy, shard: str | None,
    schedule: Schedule | None, virtual_stages: str, batch: str | None, micro: int,
    slowest_stage: float,
) -> Layout:  # fmt: skip
    """Return the layout of the ranks: what tensor, context and pipeline leave is data-parallel."""
    count = units.parse_count(ranks, "--ranks", unit="ranks")
    sizes = {
        name: units.parse_count(text, name, unit="ranks")
        for name, text in (
            ("--tensor", tensor), ("--context", context), ("--pipeline", pipeline)
        )
    }  # fmt: skip
    inner = sizes["--tensor"] * sizes["--context"] * sizes["--pipeline"]
    if count % inner:
        told = " x ".join(f"{name} {size}" for name, size in sizes.items())
        raise ConfigError(f"--ranks is {count}: give a multiple of {inner}, which is {told}")
    data = count // inner
    samples = (
        max(_SAMPLES_PER_RANK * count // (data * micro), 1) * data * micro
        if batch is None
        else units.parse_count(batch, "--batch", unit="samples")
    )
    virtual = units.parse_count(virtual_stages, "--virtual-stages", unit="pieces")
    usual = Schedule.INTERLEAVED if virtual > 1 else Schedule.ONE_F_ONE_B
    return Layout(
        data=data, tensor=sizes["--tensor"], context=sizes["--context"], strategy=strategy,
        pipeline=Pipeline(
            stages=sizes["--pipeline"], micro_batches=micro_batches_of(samples, data, micro),
            virtual_stages=virtual, schedule=schedule or usual, slowest_stage_ratio=slowest_stage,
        ),
        shard=None if shard is None else units.parse_count(shard, "--shard", unit="ranks"),
    )  # fmt: skip


def _machine(
    ranks: int, per_node: str, bandwidth: str, latency: str, node_bandwidth: str,
    node_latency: str,
) -> Machine:  # fmt: skip
    node = min(units.parse_count(per_node, "--ranks-per-node", unit="ranks"), ranks)
    if ranks % node:
        raise ConfigError(f"--ranks is {ranks}: give whole nodes of --ranks-per-node {node}")
    inside = Link(
        alpha_s=units.parse_duration_s(node_latency, "--node-latency", zero=True),
        bytes_per_s=units.parse_bandwidth(node_bandwidth, "--node-bandwidth"),
    )
    link = Link(
        alpha_s=units.parse_duration_s(latency, "--latency", zero=True),
        bytes_per_s=units.parse_bandwidth(bandwidth, "--bandwidth"),
    )
    return Machine(ranks=ranks, link=link, ranks_per_node=node, inside=inside)


def _given(job: Job) -> list[str]:
    machine, pipeline = job.machine, job.layout.pipeline
    near, far = machine.local_link, machine.link
    schedule = ""
    if pipeline.stages > 1:
        pieces = f", {pipeline.virtual_stages} pieces a rank" if pipeline.virtual_stages > 1 else ""
        schedule = f", {pipeline.schedule.value}{pieces}"
    return [
        model_line(job.model),
        f"{counted(machine.ranks, 'rank')}: {layout_words(job.layout)}{schedule}; a step has "
        f"{counted(job.batch, 'sample')} ({counted(job.tokens, 'token')}), "
        f"{counted(pipeline.micro_batches, 'micro-batch', 'micro-batches')} of "
        f"{job.micro_batch} a rank; recomputed: {job.recompute.value}",
        f"a rank computes {flops_of(job.flops_per_s)} (give what your kernels reach, not the data "
        "sheet)",
        f"out of a rank: {bandwidth_of(far.bytes_per_s)}, {duration_of(far.alpha_s)} a message; "
        f"within a node of {machine.local}: {bandwidth_of(near.bytes_per_s)}, "
        f"{duration_of(near.alpha_s)}",
        f"{precision_line(job.precision)}; {_hiding(job)}",
    ]  # fmt: skip


def _hiding(job: Job) -> str:
    if not job.overlap:
        return "nothing overlaps"
    if job.layout.strategy in SHARDED_PARAMETERS:
        return "gathered layer by layer"
    return f"buckets of {bytes_of(job.bucket_bytes)}"


def _input(job: Job, limit: int, observed_s: float | None) -> dict[str, object]:
    layout, machine = job.layout, job.machine
    return {
        **model_input(job.model), "ranks": layout.ranks, "tensor": layout.tensor,
        "context": layout.context, "data": layout.data, "pipeline": layout.pipeline.stages,
        "micro_batches": layout.pipeline.micro_batches,
        "virtual_stages": layout.pipeline.virtual_stages,
        "schedule": layout.pipeline.schedule.value,
        "slowest_stage_ratio": layout.pipeline.slowest_stage_ratio,
        "strategy": layout.strategy.value, "shard": layout.shard, "batch": job.batch,
        "micro_batch": job.micro_batch,
        "recompute": job.recompute.value, "precision": job.precision.name,
        "flops_per_s": job.flops_per_s, "bytes_per_s": machine.link.bytes_per_s,
        "alpha_s": machine.link.alpha_s, "ranks_per_node": machine.local,
        "node_bytes_per_s": machine.local_link.bytes_per_s,
        "node_alpha_s": machine.local_link.alpha_s, "overlap": job.overlap,
        "bucket_bytes": job.bucket_bytes, "memory_bytes": limit,
        "memory_bytes_per_s": job.memory_bytes_per_s, "observed_s": observed_s,
    }  # fmt: skip


def _values(step: Step) -> dict[str, object]:
    return {
        "step_s": step.step_s, "parts": [asdict(term) for term in step.terms],
        "largest": step.largest.name, "gamma": step.gamma,
        "exposed_communication_s": step.exposed_s, "communication_s": step.communication_s,
        "tokens_per_s": step.tokens_per_s,
        "model_flops_utilization": step.model_flops_utilization,
        "sent": [
            {"group": one.group.dimension.value, "ranks": one.group.members, "what": one.what,
             "operation": one.operation.value, "count": one.count,
             "payload_bytes": one.payload_bytes, "sent_bytes": one.sent_bytes}
            for one in step.traffic
        ],
    }  # fmt: skip
