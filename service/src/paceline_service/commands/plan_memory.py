"""``paceline plan memory``: what a rank holds and sends under each strategy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.layouts import usual_layouts
from paceline_service.analysis.costs.memory import Memory, memory_of
from paceline_service.analysis.costs.precision import Precision
from paceline_service.analysis.costs.strategies import Layout, Recompute
from paceline_service.analysis.costs.traffic import data_traffic, model_traffic
from paceline_service.analysis.costs.transformer import Transformer
from paceline_service.analysis.costs.words import bytes_of, digits
from paceline_service.commands.answer import PLAN, Answer, FormatOption, Table, give
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
    asked_batch,
    asked_model,
    asked_precision,
    model_input,
    model_line,
    precision_line,
)
from paceline_service.commands.output import Format

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_TITLE = "Memory and traffic of a rank, by strategy"
_GB = 1e9
_PARTS = {
    "weights": "parameters_bytes", "gradients": "gradients_bytes",
    "Adam's states": "optimizer_bytes", "gathered": "gathered_bytes",
    "activations": "activations_bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    layout: Layout
    memory: Memory
    sent_bytes: float
    between_nodes_bytes: float

    def fits(self, limit_bytes: int) -> bool:
        return self.memory.total_bytes <= limit_bytes


def plan_memory(
    parameters: Parameters = None,
    layers: Layers = None,
    hidden: Hidden = None,
    heads: Heads = None,
    sequence: Sequence = "2048",
    vocabulary: Vocabulary = "32000",
    ranks: Annotated[str, typer.Option(metavar="N", help="Of the job.")] = "64",
    ranks_per_node: RanksPerNode = "8",
    batch: Batch = None,
    micro_batch: MicroBatch = "1",
    precision: PrecisionName = "zero",
    recompute: Annotated[
        Recompute,
        typer.Option(help="Activations computed again: selective is what flash attention does."),
    ] = Recompute.SELECTIVE,
    memory: DeviceMemory = "80GB",
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Say what each strategy keeps on a rank and sends in a step, and whether it fits.

    Parameters, gradients, optimizer states and activations of the fullest rank; the formulas and
    their sources are in docs/math/strategies.md. Buffers of the libraries and fragments are not
    counted. Without options: 7 billion parameters on 64 ranks.
    """
    model = asked_model(parameters, layers, hidden, heads, sequence, vocabulary)
    recipe = asked_precision(precision)
    count = units.parse_count(ranks, "--ranks", unit="ranks")
    node = min(units.parse_count(ranks_per_node, "--ranks-per-node", unit="ranks"), count)
    micro = units.parse_count(micro_batch, "--micro-batch", unit="samples")
    samples = asked_batch(batch, count * micro)
    limit = units.parse_bytes(memory, "--memory")
    rows = [
        _row(name, layout, model, recipe, micro, recompute, node)
        for name, layout in usual_layouts(count, node, model, samples, micro)
    ]
    if not rows:
        raise ConfigError(
            f"--batch is {samples}: no layout divides it among {counted(count, 'rank')} in "
            f"micro-batches of {micro}; give a multiple of {count * micro}"
        )
    given = [
        model_line(model), precision_line(recipe),
        f"{counted(count, 'rank')}, {node} in a node; a step has {counted(samples, 'sample')}, "
        f"{micro} at a time; activations recomputed: {recompute.value}",
        f"a device has {bytes_of(limit)}; buffers of NCCL and CUDA and fragments, some GB, are not "
        "counted",
    ]  # fmt: skip
    if samples % (count * micro):
        given.append(
            f"left out: strategies whose replicas do not divide a batch of {samples:,} into "
            f"micro-batches of {micro}"
        )
    answer = Answer(
        schema=PLAN, model="memory", title=_TITLE,
        input={
            **model_input(model), "ranks": count, "ranks_per_node": node, "batch": samples,
            "micro_batch": micro, "precision": recipe.name, "recompute": recompute.value,
            "memory_bytes": limit,
        },
        given=given,
        values={"rows": [_told(row, limit) for row in rows]},
        tables=[_table(rows, limit)],
        meaning=_meaning(rows, limit, model, recipe, micro),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _row(
    name: str, layout: Layout, model: Transformer, recipe: Precision, micro_batch: int,
    recompute: Recompute, node: int,
) -> _Row:  # fmt: skip
    held = memory_of(model, layout, recipe, micro_batch=micro_batch, recompute=recompute)
    traffic = [
        *data_traffic(layout, recipe, layout.stage_parameters(model)),
        *model_traffic(layout, model, micro_batch, recompute),
    ]
    sent = sum(one.sent_bytes for one in traffic)
    far = sum(one.sent_bytes * one.group.between_nodes_ratio(node) for one in traffic)
    return _Row(
        name=name, layout=layout, memory=held, sent_bytes=sent, between_nodes_bytes=far
    )  # fmt: skip


def _table(rows: list[_Row], limit: int) -> Table:
    cells = []
    for row in rows:
        held = row.memory
        parts = [getattr(held, name) for name in _PARTS.values()]
        cells.append(
            [
                row.name, *(_gb(part) for part in parts), _gb(held.total_bytes),
                "yes" if row.fits(limit) else "no", _gb(row.sent_bytes),
                _gb(row.between_nodes_bytes),
            ]
        )  # fmt: skip

    def plots() -> list[Drawing]:
        from paceline_service.export.plots import Bar, bars

        shown = [
            Bar(row.name, {part: getattr(row.memory, name) / _GB for part, name in _PARTS.items()})
            for row in rows
        ]
        return [bars(f"What a rank holds; a device has {bytes_of(limit)}", "GB", shown)]

    heads = [
        "GB of a rank", "weights", "grad.", "Adam", "gathered", "activ.", "total",
        f"fits in\n{bytes_of(limit)}", "sent in\na step", "of it to\nnodes",
    ]  # fmt: skip
    over = frozenset(place for place, row in enumerate(rows) if not row.fits(limit))
    return Table(title="", heads=heads, rows=cells, marked=over, plots=plots)


def _gb(size: float) -> str:
    return digits(size / _GB) if size else "\u2013"


def _meaning(
    rows: list[_Row], limit: int, model: Transformer, recipe: Precision, micro_batch: int
) -> list[str]:
    fitting = [row for row in rows if row.fits(limit)]
    if not fitting:
        least = min(rows, key=lambda row: row.memory.total_bytes)
        name, size = _largest(least.memory)
        said = [
            f"Nothing fits: {least.name} comes closest with {bytes_of(least.memory.total_bytes)}, "
            f"most of it {name} ({bytes_of(size)}). {_help(name)}"
        ]
    else:
        best = min(fitting, key=lambda row: (row.between_nodes_bytes, row.sent_bytes))
        said = [
            f"{len(fitting)} of {len(rows)} fit. Of these {best.name} sends least between nodes, "
            f"{bytes_of(best.between_nodes_bytes)} a rank and step ({bytes_of(best.sent_bytes)} "
            "with what stays in its node). Least sent is not fastest: `paceline plan step` says "
            "how long a step takes, bubbles included."
        ]
    first = rows[0]
    if not first.fits(limit) and fitting:
        name, size = _largest(first.memory)
        said.append(
            f"{first.name} needs {bytes_of(first.memory.total_bytes)}, most of it {name} "
            f"({bytes_of(size)})."
        )
    kept = {
        mode: memory_of(model, first.layout, recipe, micro_batch=micro_batch, recompute=mode)
        for mode in Recompute
    }
    told = ", ".join(
        f"{bytes_of(one.activations_bytes)} with {mode.value}" for mode, one in kept.items()
    )
    said.append(
        f"Activations of {first.name} by what is recomputed: {told}. Full recomputation computes "
        "the forward pass twice, a third more; selective only the attention products."
    )
    return said


def _largest(held: Memory) -> tuple[str, float]:
    return max(
        ((part, getattr(held, name)) for part, name in _PARTS.items()), key=lambda pair: pair[1]
    )


def _help(part: str) -> str:
    if part == "activations":
        return "A smaller --micro-batch, --recompute full or more tensor ranks make them less."
    if part == "gathered":
        return "Layers are too large to be gathered whole: tensor ranks cut them."
    return "More ranks, or less precision, make them less."


def _told(row: _Row, limit: int) -> dict[str, object]:
    layout = row.layout
    return {
        "strategy": row.name, "data": layout.data, "tensor": layout.tensor,
        "pipeline": layout.pipeline.stages, "micro_batches": layout.pipeline.micro_batches,
        "sharding": layout.strategy.value, "shard": layout.shard, **asdict(row.memory),
        "total_bytes": row.memory.total_bytes, "fits": row.fits(limit),
        "sent_bytes": row.sent_bytes, "between_nodes_bytes": row.between_nodes_bytes,
    }  # fmt: skip
