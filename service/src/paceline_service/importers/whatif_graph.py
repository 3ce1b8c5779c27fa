"""What each operation of a pipeline's step waits for, as Lin et al. (OSDI'25) model it.

One data-parallel row of one step gives the graph, which all rows and steps share. Computations of
a stage follow each other; a receive goes before the computation that needs it and after the one
before that, a send after the one that made its data; transfers of one kind and stage follow each
other; what closes the step follows the last computation in a fixed order.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.importers.whatif_columns import TraceColumns

SAME_S = 5e-5
"""Times of one rank closer than this are the same."""
ACROSS_ROWS = frozenset({
    "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
})  # fmt: skip
"""Operations of all data-parallel rows together."""
P2P = ("forward-send", "forward-recv", "backward-send", "backward-recv")
OPTIMIZER = "optimizer"
_COMPUTES = ("forward-compute", "backward-compute")
_NORM, _EMBEDDING, _CLIP = (
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad",
)  # fmt: skip
_GATHER, _SCATTER, _SEPARATE = (
    "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce",
)  # fmt: skip

Name = tuple[str, int, int]
"""Type, number and stage of an operation."""


@dataclass(slots=True)
class Graph:
    """What each operation waits for, and which transfers end together."""

    before: dict[Name, list[Name]] = field(default_factory=dict)
    groups: list[list[Name]] = field(default_factory=list)
    group_of: dict[Name, int] = field(default_factory=dict)

    def after(self, name: Name, *others: Name) -> None:
        """Let an operation wait for others."""
        self.before.setdefault(name, []).extend(others)

    def chain(self, names: list[Name], first_after: tuple[Name, ...] = ()) -> None:
        """Let each wait for the one before it, the first one for ``first_after``."""
        for name in names:
            self.after(name, *first_after)
            first_after = (name,)

    def together(self, names: list[Name]) -> None:
        """Let transfers end a fixed time after the last of them has begun."""
        self.group_of.update(dict.fromkeys(names, len(self.groups)))
        self.groups.append(names)

    def in_order(self) -> list[Name] | None:
        """Return the operations so that each comes after what it waits for; None for a circle.

        The end of a transfer needs the start of its whole group: those after it wait for all.
        """
        missing = {name: len(others) for name, others in self.before.items()}
        following: dict[Name, list[Name]] = {name: [] for name in self.before}
        for name, others in self.before.items():
            for other in others:
                following[other].append(name)
        begun = [0] * len(self.groups)
        ready = [name for name, count in missing.items() if not count]
        order: list[Name] = []
        while ready:
            name = ready.pop()
            order.append(name)
            group = self.group_of.get(name)
            ended = [name]
            if group is not None:
                begun[group] += 1
                ended = self.groups[group] if begun[group] == len(self.groups[group]) else []
            for one in ended:
                for later in following[one]:
                    missing[later] -= 1
                    if not missing[later]:
                        ready.append(later)
        return order if len(order) == len(self.before) else None


class Template:
    """The operations of the first data-parallel row in the first step."""

    def __init__(self, trace: TraceColumns) -> None:
        mine = np.flatnonzero((trace.dp_rank == 0) & (trace.step == trace.step.min()))
        self.start_s: dict[Name, float] = {}
        self.end_s: dict[Name, float] = {}
        self.chunk: dict[Name, int] = {}
        columns = (trace.optype, trace.seq_id, trace.stage, trace.start_ns, trace.end_ns,
                   trace.chunk)  # fmt: skip
        for kind, seq, stage, start, end, chunk in zip(
            *(column[mine].tolist() for column in columns), strict=True
        ):
            name = (trace.names[kind], seq, stage)
            self.start_s[name], self.end_s[name] = start / 1e9, end / 1e9
            self.chunk[name] = chunk
        self.stages = int(trace.stage.max()) + 1
        self.rows = int(trace.dp_rank.max()) + 1
        self.chunks = int(trace.chunk.max()) + 1
        self.kinds = set(trace.names)

    def of(self, stage: int, *kinds: str) -> list[Name]:
        """Return the operations of some types of a stage, by their starts."""
        found = [name for name in self.start_s if name[2] == stage and name[0] in kinds]
        return sorted(found, key=lambda name: (self.start_s[name], name[1], name[0]))


def graph_of(template: Template) -> Graph | None:
    """Return the graph; None where the operations are not those of a pipeline's step."""
    graph = Graph()
    try:
        for stage in range(template.stages):
            _computations(graph, template, stage)
            _close_of_step(graph, template, stage)
        _transfers(graph, template)
    except (KeyError, ValueError, IndexError, StopIteration):
        return None
    last = template.stages - 1
    ends = sorted({(_EMBEDDING, 0, 0), (_EMBEDDING, 0, last)})
    graph.together(ends)
    graph.together([(_CLIP, 0, stage) for stage in range(template.stages)])
    if template.rows > 1:
        for name in template.start_s:
            if name[0] in (_GATHER, _SCATTER, _SEPARATE):
                graph.together([name])
    for name in template.start_s:
        graph.before.setdefault(name, [])
    return graph if set(graph.before) == set(template.start_s) else None


def _computations(graph: Graph, template: Template, stage: int) -> None:
    computes = template.of(stage, *_COMPUTES)
    graph.chain(computes)
    for kind in P2P:
        graph.chain(template.of(stage, kind))
    backward = next(i for i, name in enumerate(computes) if name[0] == "backward-compute")
    if backward >= 2:
        # The first of the backward pass is posted after the last but one forward before it.
        for kind in ("backward-recv", "backward-send"):
            if (kind, 0, stage) in template.start_s:
                graph.after((kind, 0, stage), computes[backward - 2])
    if template.rows > 1:
        graph.chain(template.of(stage, _GATHER, _SCATTER))
        seen: set[int] = set()
        for gather in sorted(template.of(stage, _GATHER), key=lambda name: -name[1]):
            chunk = template.chunk[gather]
            mine = [n for n in computes if n[0] == "forward-compute" and template.chunk[n] == chunk]
            if chunk not in seen:
                graph.after(mine[0] if mine else computes[0], gather)
                seen.add(chunk)


def _close_of_step(graph: Graph, template: Template, stage: int) -> None:
    computes = template.of(stage, *_COMPUTES)
    last = max(computes, key=lambda name: template.end_s[name])
    collector: Name = ("gc", 0, stage)
    graph.after(collector, last)
    scatters = sorted(template.of(stage, _SCATTER), key=lambda name: name[1])
    closing: list[Name] = [(_NORM, 0, stage)]
    if stage in (0, template.stages - 1):
        closing.append((_EMBEDDING, 0, stage))
    overlapped = _SEPARATE in template.kinds
    first: tuple[Name, ...] = (collector,)
    if template.rows > 1 and overlapped:
        closing.append((_SEPARATE, 0, stage))
        first = (scatters[-1], collector)
        seen: set[int] = set()
        for scatter in scatters:
            chunk = template.chunk[scatter]
            mine = [
                n for n in computes if n[0] == "backward-compute" and template.chunk[n] == chunk
            ]
            if chunk not in seen:
                graph.after(scatter, max(mine, key=lambda name: template.end_s[name]))
                seen.add(chunk)
    elif template.rows > 1:
        closing += scatters
    graph.chain([*closing, (_CLIP, 0, stage), (OPTIMIZER, 0, stage)], first)


def _transfers(graph: Graph, template: Template) -> None:
    """Let transfers wait for what made their data, and pair both sides of each."""
    numbers: dict[Name, Name] = {}
    ends: dict[tuple[str, int, int, int], list[Name]] = {}
    for stage in range(template.stages):
        for kind in P2P:
            direction, side = kind.split("-")
            moved = 0
            for name, compute in _with_computes(template, stage, kind):
                if side == "send":
                    graph.after(name, compute)
                else:
                    graph.after(compute, name)
                    if compute[1] > 0:
                        graph.after(name, (compute[0], compute[1] - 1, stage))
                step = 1 if direction == "forward" else -1
                peer = template.chunk[compute] + (step if side == "send" else -step)
                if 0 <= peer < template.chunks:
                    numbers[name] = name
                    away = step if side == "send" else -step
                    other = (stage + away) % template.stages
                    source = stage if side == "send" else other
                    destination = other if side == "send" else stage
                    key = (direction, source, destination, moved)
                    ends.setdefault(key, []).append(name)
                    moved += 1
    for both in ends.values():
        if len(both) != 2:
            raise ValueError("a transfer has one side only")
        graph.together(both)
    for stage in range(template.stages):
        for name in template.of(stage, *P2P):
            if name not in numbers:
                graph.together([name])


def _with_computes(template: Template, stage: int, kind: str) -> list[tuple[Name, Name]]:
    """Return the transfers of a kind that were really launched, with their computations."""
    direction, side = kind.split("-")
    computes = template.of(stage, f"{direction}-compute")
    last_start = max(template.start_s[name] for name in computes)
    first_end = min(template.end_s[name] for name in computes)
    found: list[tuple[Name, Name]] = []
    for name in template.of(stage, kind):
        if side == "recv" and template.start_s[name] > last_start + SAME_S:
            continue
        if side == "send" and template.end_s[name] < first_end - SAME_S:
            continue
        compute = (f"{direction}-compute", len(found), stage)
        if compute not in template.start_s:
            raise KeyError(compute)
        found.append((name, compute))
    return found
