"""What the synchronizations of a stretch come to: a typical step, and measured against modelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from paceline_service.analysis.costs.overlap import timeline
from paceline_service.lab.links import Wire, modelled_s
from paceline_service.lab.plans import Bucket, Call, Manifest, Stretch
from paceline_service.lab.syncs import Measured, Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalSync:
    """One synchronization of the plan: medians over the steps, seconds.

    Attributes:
        call: which one.
        bucket: what it carries.
        payload_bytes: as it went, with padding.
        first_s: when the first rank brings its part, from the begin of the step.
        last_s: when the last one does.
        wait_s: for how long the first one's part lies there until then.
        last_rank: who was last most often, -1 where nobody was.
        last_share: in which share of the steps it was.
        transfer_s: how long it took from there, with what it waited behind other transfers; None
            where that is not known.
        modelled_s: how long it would take alone, None likewise.
        exposed_s: how long also the last rank did nothing but wait for it.
        still_s: how long the first rank did.
        bound: the transfer took that long at most, since the ends of most were seen late.
    """

    call: Call
    bucket: Bucket
    payload_bytes: int
    first_s: float
    last_s: float
    wait_s: float
    last_rank: int
    last_share: float
    transfer_s: float | None
    modelled_s: float | None
    exposed_s: float
    still_s: float
    bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchFigures:
    """One stretch in figures; times are medians over its steps, in seconds.

    Attributes:
        stretch: which one.
        syncs: of a typical step, in the order of arrival.
        steps: how many count.
        step_s: a step.
        spread_s: between the quartiles of the steps.
        phases_s: by name of a phase, the mean of the ranks.
        passes_s: begin and end of forward, backward and optimizer, from the begin of the step.
        payload_bytes: of all synchronizations of a step.
        transfer_s: how long one of them or several were under way; None where that is not known.
        modelled_transfer_s: how long they would be one after the other, each as if alone.
        exposed_s: what of it no compute hid.
        modelled_exposed_s: the same by the model.
        waited_s: what the ranks stood still besides, for each other or until they were woken, the
            mean of the ranks.
        full_bytes: parameters that are whole on a rank at once, by the model.
    """

    stretch: Stretch
    syncs: list[TypicalSync]
    steps: int
    step_s: float
    spread_s: float
    phases_s: dict[str, float]
    passes_s: dict[str, tuple[float, float]]
    payload_bytes: int
    transfer_s: float | None
    modelled_transfer_s: float | None
    exposed_s: float
    modelled_exposed_s: float | None
    waited_s: float
    full_bytes: int

    @property
    def learned(self) -> bool:
        """Whether the loss fell by a tenth at least."""
        return self.last_loss < 0.9 * self.first_loss

    @property
    def first_loss(self) -> float:
        """Mean of the first steps."""
        return _mean(self.stretch.losses[:3])

    @property
    def last_loss(self) -> float:
        """Mean of the last steps."""
        return _mean(self.stretch.losses[-3:])


def figures_of(
    stretch: Stretch, measured: Measured, wires: dict[str, Wire], manifest: Manifest, skip: int
) -> StretchFigures:
    """Return the figures of one stretch without its first ``skip`` steps."""
    syncs = measured.of(stretch, skip)
    by_step: dict[int, list[Sync]] = {}
    for sync in syncs:
        by_step.setdefault(sync.step, []).append(sync)
    typical = _typical(syncs, wires)
    steps = range(stretch.first_step + skip, stretch.last_step + 1)
    phases = {name for step in steps for name in measured.phases_ns.get(step, {})}
    durations = [measured.step_ns[step] / 1e9 for step in steps if step in measured.step_ns]
    quarter, half, three = quantiles(durations or stretch.step_s[skip:], n=4)
    return StretchFigures(
        stretch=stretch,
        syncs=typical,
        steps=len(by_step),
        step_s=half,
        spread_s=three - quarter,
        phases_s={
            name: median(measured.phases_ns.get(step, {}).get(name, 0.0) for step in steps) / 1e9
            for name in sorted(phases)
        },
        passes_s=_passes([measured.passes_ns.get(step, {}) for step in steps]),
        payload_bytes=sum(sync.payload_bytes for sync in typical),
        transfer_s=_under_way_s(by_step),
        modelled_transfer_s=_sum(sync.modelled_s for sync in typical),
        exposed_s=_per_step(by_step, lambda sync: sync.exposed_ns),
        modelled_exposed_s=_modelled_exposed(typical, stretch, manifest),
        waited_s=_per_step(by_step, lambda sync: _mean(sync.still_ns) - sync.exposed_ns),
        full_bytes=_full_bytes(stretch),
    )


def _typical(syncs: Sequence[Sync], wires: dict[str, Wire]) -> list[TypicalSync]:
    by_call: dict[Call, list[Sync]] = {}
    for sync in syncs:
        assert sync.call is not None
        by_call.setdefault(sync.call, []).append(sync)
    bound = 2 * sum(sync.bound for sync in syncs) > len(syncs)
    made = [_one(call, found, wires, bound) for call, found in by_call.items()]
    return sorted(made, key=lambda one: one.last_s)


def _one(call: Call, syncs: list[Sync], wires: dict[str, Wire], bound: bool) -> TypicalSync:
    bucket = syncs[0].bucket
    assert bucket is not None
    size = syncs[-1].payload_bytes
    known = [sync.transfer_ns for sync in syncs if sync.transfer_ns >= 0]
    lasts = [sync.last_rank for sync in syncs if sync.last_rank >= 0]
    last_rank = max(sorted(set(lasts)), key=lasts.count) if lasts else -1
    return TypicalSync(
        call=call,
        bucket=bucket,
        payload_bytes=size,
        first_s=median(min(sync.arrival_ns) for sync in syncs) / 1e9,
        last_s=median(max(sync.arrival_ns) for sync in syncs) / 1e9,
        wait_s=median(max(sync.wait_ns) for sync in syncs) / 1e9,
        last_rank=last_rank,
        last_share=lasts.count(last_rank) / len(syncs),
        transfer_s=median(known) / 1e9 if known else None,
        modelled_s=modelled_s(wires, call.op, size),
        exposed_s=median(sync.exposed_ns for sync in syncs) / 1e9,
        still_s=median(max(sync.still_ns) for sync in syncs) / 1e9,
        bound=bound and any(sync.bound for sync in syncs),
    )


def _modelled_exposed(
    typical: list[TypicalSync], stretch: Stretch, manifest: Manifest
) -> float | None:
    """Return what the backward pass would leave in the open, if transfers took what they do alone.

    DDP sends a bucket when its last gradient is there, and the backward pass is over with the last
    bucket (docs/math/overlap.md). FSDP2 needs a stream beside the one that computes to hide a
    transfer: a CPU has none, so everything is in the open; on a GPU this model does not tell.
    """
    costs = [sync.modelled_s for sync in typical]
    known = [cost for cost in costs if cost is not None]
    if not typical or len(known) < len(costs):
        return None
    if stretch.strategy != "ddp":
        return sum(known) if manifest.device == "cpu" else None
    ready = [sync.last_s for sync in typical]
    return timeline(ready, known)[-1].end_s - ready[-1]


def _passes(by_step: list[dict[str, tuple[int, int]]]) -> dict[str, tuple[float, float]]:
    names = dict.fromkeys(name for of_step in by_step for name in of_step)
    found = {name: [of_step[name] for of_step in by_step if name in of_step] for name in names}
    return {
        name: (median(low for low, _ in spans) / 1e9, median(high for _, high in spans) / 1e9)
        for name, spans in found.items()
    }


def _full_bytes(stretch: Stretch) -> int:
    sizes = [bucket.payload_bytes for bucket in stretch.plan.buckets]
    if stretch.strategy != "zero3":
        return sum(sizes)
    # The unit around the blocks lets go too; of the blocks one is used while the next is gathered.
    return max((a + b for a, b in pairwise(sizes)), default=sum(sizes))


def _per_step(by_step: dict[int, list[Sync]], of: Callable[[Sync], float]) -> float:
    """Return the median over the steps of the sum over a step's synchronizations, seconds."""
    sums = [sum(of(sync) for sync in syncs) for syncs in by_step.values()]
    return median(sums) / 1e9 if sums else 0.0


def _under_way_s(by_step: dict[int, list[Sync]]) -> float | None:
    """Return the median over the steps of the time in which a transfer was under way.

    Transfers of one step overlap where one waits behind another, so their times do not add up.
    """
    found = []
    for syncs in by_step.values():
        if any(sync.transfer_ns < 0 for sync in syncs):
            return None
        busy_ns, until = 0, 0
        for begin, took in sorted((max(s.arrival_ns), s.transfer_ns) for s in syncs):
            busy_ns += max(0, begin + took - max(begin, until))
            until = max(until, begin + took)
        found.append(busy_ns)
    return median(found) / 1e9 if found else None


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
