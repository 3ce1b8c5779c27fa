"""The time of one step of a layout: compute, what communication is not hidden, the bubble.

Sources and assumptions: docs/math/strategies.md, "The time of a step".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline_service.analysis.costs.alpha_beta import Cost, Machine
from paceline_service.analysis.costs.collectives import ring, ring_all_reduce
from paceline_service.analysis.costs.overlap import BUCKET_BYTES, Overlap
from paceline_service.analysis.costs.precision import PRECISIONS, Precision
from paceline_service.analysis.costs.strategies import SHARDED_PARAMETERS, Layout, Recompute
from paceline_service.analysis.costs.traffic import (
    Dimension,
    Operation,
    Traffic,
    data_traffic,
    model_traffic,
)
from paceline_service.analysis.costs.transformer import Transformer
from paceline_service.analysis.costs.units import positive, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model, how it is spread, and on what.

    Attributes:
        model: the transformer.
        layout: its ranks; the micro-batches are in its pipeline.
        machine: links and ranks per node; as many ranks as the layout has.
        flops_per_s: R, what a rank reaches in matrix products.
        micro_batch: samples of a micro-batch.
        precision: bytes per parameter.
        recompute: what the backward pass computes again.
        overlap: whether data-parallel communication goes on beside computation.
        bucket_bytes: of gradients that are reduced together.
        memory_bytes_per_s: of a device's memory, for the optimizer; None to leave it out.
    """

    model: Transformer
    layout: Layout
    machine: Machine
    flops_per_s: float
    micro_batch: int = 1
    precision: Precision = PRECISIONS["zero"]
    recompute: Recompute = Recompute.SELECTIVE
    overlap: bool = True
    bucket_bytes: int = BUCKET_BYTES
    memory_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        """Check that the parts go together.

        Raises:
            ConfigError: they do not.
        """
        positive(self.flops_per_s, "--flops", "FLOP/s")
        whole(self.micro_batch, "--micro-batch", "samples")
        whole(self.bucket_bytes, "--bucket", "bytes")
        if self.memory_bytes_per_s is not None:
            positive(self.memory_bytes_per_s, "--memory-bandwidth", "bytes per second")
        self.layout.split(self.model.layers, self.model.heads)
        if self.machine.ranks != self.layout.ranks:
            raise ConfigError(
                f"the layout has {self.layout.ranks} ranks and the machine {self.machine.ranks}"
            )

    @property
    def batch(self) -> int:
        """Samples of a step, all ranks together."""
        return self.micro_batch * self.layout.pipeline.micro_batches * self.layout.data

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.model.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A part of a step.

    Attributes:
        name: compute, tensor, context, data, pipeline, bubble, imbalance or optimizer.
        busy_s: of a rank, whatever goes on beside it.
        exposed_s: what it adds to the step.
        sent_bytes: that leave a rank for it.
    """

    name: str
    busy_s: float
    exposed_s: float
    sent_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step and what it is made of.

    Attributes:
        job: of which it is.
        terms: what adds up to the step, in the order in which they are told.
        traffic: what is sent, kind by kind.
    """

    job: Job
    terms: tuple[Term, ...]
    traffic: tuple[Traffic, ...]

    def term(self, name: str) -> Term:
        """Return one part; of a name that is not there, nothing."""
        nothing = Term(name=name, busy_s=0.0, exposed_s=0.0)
        return next((term for term in self.terms if term.name == name), nothing)

    @property
    def step_s(self) -> float:
        """The whole step."""
        return sum(term.exposed_s for term in self.terms)

    @property
    def communication_s(self) -> float:
        """All communication of a rank, hidden or not."""
        return sum(term.busy_s for term in self.terms if term.sent_bytes)

    @property
    def exposed_s(self) -> float:
        """Communication that the step waits for."""
        return sum(term.exposed_s for term in self.terms if term.sent_bytes)

    @property
    def hidden_s(self) -> float:
        """Communication of a rank that the step does not wait for.

        Of a pipeline a step may wait longer than its rank sends: for the sends of other stages.
        """
        sent = (term for term in self.terms if term.sent_bytes)
        return sum(max(term.busy_s - term.exposed_s, 0.0) for term in sent)

    @property
    def gamma(self) -> float:
        """Communication over compute, hidden or not (costs.md)."""
        return self.communication_s / self.term("compute").busy_s

    @property
    def tokens_per_s(self) -> float:
        """Of all ranks together."""
        return self.job.tokens / self.step_s

    @property
    def model_flops_utilization(self) -> float:
        """Operations that the model needs, over those that ``flops_per_s`` allows in a step."""
        needed = self.job.model.flops_per_token * self.job.tokens
        return needed / (self.step_s * self.job.flops_per_s * self.job.layout.ranks)

    @property
    def largest(self) -> Term:
        """The part that makes most of the step."""
        return max(self.terms, key=lambda term: term.exposed_s)


def step_of(job: Job) -> Step:
    """Return what a step takes and of what it is made (eq. 21 to 27)."""
    return _Reckoning(job).step()


def micro_batches_of(batch: int, data: int, micro_batch: int) -> int:
    """Return the micro-batches of a replica.

    Raises:
        ConfigError: the batch cannot be divided so.
    """
    whole(batch, "--batch", "samples")
    whole(micro_batch, "--micro-batch", "samples")
    if batch % (data * micro_batch):
        raise ConfigError(
            f"--batch is {batch}: give a multiple of {data * micro_batch}, which is {data} "
            f"replicas with micro-batches of {micro_batch}"
        )
    return batch // (data * micro_batch)


class _Reckoning:
    """A step, part by part."""

    def __init__(self, job: Job) -> None:
        self.job = job
        layout, model = job.layout, job.model
        self.pipeline = layout.pipeline
        self.passes = layout.pipeline.micro_batches
        self.parameters = layout.stage_parameters(model)
        tokens = job.micro_batch * model.sequence
        split = layout.tensor * layout.context * layout.pipeline.stages
        per_s = tokens / (split * job.flops_per_s)
        self.attention_s = model.attention_flops_per_token / 3 * per_s
        """Of one forward pass of a micro-batch through a stage."""
        self.forward_s = model.flops_per_token / 3 * per_s
        again = {Recompute.NONE: 0.0, Recompute.SELECTIVE: self.attention_s}
        self.again_s = again.get(job.recompute, self.forward_s)
        self.backward_s = 2 * self.forward_s + self.again_s

    def step(self) -> Step:
        job = self.job
        inner = model_traffic(job.layout, job.model, job.micro_batch, job.recompute)
        outer = data_traffic(job.layout, job.precision, self.parameters)
        by_name = {one.group.dimension: one for one in inner}
        tensor = self._busy(by_name.get(Dimension.TENSOR))
        context = self._busy(by_name.get(Dimension.CONTEXT))
        compute_s = self.passes * (self.forward_s + self.backward_s)
        attention_s = 3 * self.attention_s
        if job.recompute is not Recompute.NONE:
            attention_s += self.attention_s
        context_shown_s = max(context - self.passes * attention_s, 0.0)
        each_s, once_s = self._data(outer, (tensor + context_shown_s) / self.passes)
        per_micro_batch_s = (compute_s + tensor + context_shown_s) / self.passes + each_s
        bubble_s = self.pipeline.bubble_of_ideal * self.passes * per_micro_batch_s
        uneven_s = self.pipeline.imbalance_of_ideal * self.passes * per_micro_batch_s
        hops = by_name.get(Dimension.PIPELINE)
        hop_s = self._busy(hops) / hops.count if hops else 0.0
        terms = [
            Term(name="compute", busy_s=compute_s, exposed_s=compute_s),
            _term("tensor", tensor, tensor, by_name.get(Dimension.TENSOR)),
            _term("context", context, context_shown_s, by_name.get(Dimension.CONTEXT)),
            Term(name="data", busy_s=sum(self._busy(one, self._pieces(one)) for one in outer),
                 exposed_s=self.passes * each_s + once_s,
                 sent_bytes=sum(one.sent_bytes for one in outer)),
            _term("pipeline", self._busy(hops), self.pipeline.exposed_hops * hop_s, hops),
            Term(name="bubble", busy_s=0.0, exposed_s=bubble_s),
            Term(name="imbalance", busy_s=0.0, exposed_s=uneven_s),
            self._optimizer(),
        ]  # fmt: skip
        kept = [term for term in terms if term.busy_s > 0 or term.exposed_s > 0]
        return Step(job=job, terms=tuple(kept), traffic=(*inner, *outer))

    def _cost(self, one: Traffic) -> Cost:
        """Return what one operation costs, as a line over its payload."""
        group = one.group.on(self.job.machine)
        if one.operation is Operation.SEND:
            link = group.link if group.nodes > 1 else group.local_link
            return Cost(link.alpha_s, link.s_per_byte)
        return ring_all_reduce(group) if one.operation is Operation.ALL_REDUCE else ring(group)

    def _busy(self, one: Traffic | None, pieces: int = 1) -> float:
        """Return the time that a rank spends on it in a step, each operation in ``pieces``."""
        if one is None:
            return 0.0
        cost = self._cost(one)
        return one.count * (pieces * cost.latency_s + cost.s_per_byte * one.payload_bytes)

    def _pieces(self, one: Traffic) -> int:
        """Return in how many pieces data-parallel traffic goes: each pays its latency."""
        if self.job.layout.strategy in SHARDED_PARAMETERS:
            return max(round(self.job.layout.stage_layers(self.job.model)), 1)
        return math.ceil(one.payload_bytes / self.job.bucket_bytes) if self.job.overlap else 1

    def _data(self, traffic: list[Traffic], shown_s: float) -> tuple[float, float]:
        """Return what data-parallel traffic adds to every micro-batch, and once to the step."""
        if not self.job.overlap:
            each = [one for one in traffic if one.count >= self.passes > 1]
            each_s = sum(self._busy(one, self._pieces(one)) for one in each) / self.passes
            once = [one for one in traffic if one not in each]
            return each_s, sum(self._busy(one, self._pieces(one)) for one in once)
        forward_s = self.forward_s + shown_s / 3
        backward_s = self.backward_s + shown_s * 2 / 3
        if self.job.layout.strategy in SHARDED_PARAMETERS:
            return self._sharded(traffic, forward_s, backward_s), 0.0
        each_s = once_s = 0.0
        for one in traffic:
            beside_s = forward_s if one.operation is Operation.ALL_GATHER else backward_s
            exposed_s = self._exposed([one], beside_s, self._pieces(one))
            if one.count > 1:
                each_s += exposed_s
            else:
                once_s += exposed_s
        return each_s, once_s

    def _sharded(self, traffic: list[Traffic], forward_s: float, backward_s: float) -> float:
        """Return what is not hidden of layers gathered before, and gradients sent after, each."""
        if not traffic:
            return 0.0
        layers = self._pieces(traffic[0])
        gathers = [one for one in traffic if one.operation is Operation.ALL_GATHER]
        exposed_s = self._exposed(gathers, forward_s, layers) if gathers else 0.0
        return exposed_s + self._exposed(traffic, backward_s, layers)

    def _exposed(self, traffic: list[Traffic], beside_s: float, pieces: int) -> float:
        """Return what ``pieces`` of these operations, one after the other, do not hide."""
        costs = [(self._cost(one), one.payload_bytes) for one in traffic]
        latency_s = sum(cost.latency_s for cost, _ in costs)
        transfer_s = sum(cost.s_per_byte * size for cost, size in costs)
        beside = Overlap(backward_s=beside_s, latency_s=latency_s, transfer_s=transfer_s)
        return beside.exposed_s(pieces)

    def _optimizer(self) -> Term:
        """Return the time of the optimizer: its states are read and written once (eq. 27)."""
        job = self.job
        if job.memory_bytes_per_s is None:
            return Term(name="optimizer", busy_s=0.0, exposed_s=0.0)
        kept = job.precision
        moved = kept.gradient_bytes + 2 * kept.optimizer_bytes + 2 * kept.weight_bytes
        shared = job.layout.shards if job.layout.strategy.value != "ddp" else 1
        took_s = moved * self.parameters / shared / job.memory_bytes_per_s
        return Term(name="optimizer", busy_s=took_s, exposed_s=took_s)


def _term(name: str, busy_s: float, exposed_s: float, one: Traffic | None) -> Term:
    sent = one.sent_bytes if one else 0.0
    return Term(name=name, busy_s=busy_s, exposed_s=exposed_s, sent_bytes=sent)
