"""Culprits of a standstill as findings: who, in which collective, for how long, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline.vocabulary import Op, op_name
from paceline_service.analysis.records import Group
from paceline_service.analysis.report import Finding
from paceline_service.analysis.standstill.diagnose import (
    ALONE,
    DIFFERENT,
    MUTUAL,
    NEVER_FINISHED,
    STUCK,
    Culprits,
)
from paceline_service.analysis.standstill.waiting import Waiting

_TOLD_RANKS = 4
"""Ranks whose own state gets a sentence."""
_STACK_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known of the ranks beside their counters; all by rank."""

    groups: list[Group]
    nodes: Mapping[int, str]
    ended: Mapping[int, str] = field(default_factory=dict)
    """``killed`` or ``closed``."""
    silent_s: Mapping[int, float] = field(default_factory=dict)
    """For how long nothing was heard of it, though others were."""
    stacks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Innermost lines of its main thread, innermost first."""
    places: Mapping[int, str] = field(default_factory=dict)
    """Where it issued its newest operation."""
    without_dump: frozenset[int] = frozenset()


def finding_of_culprits(culprits: Culprits, waiting: Waiting, scene: Scene) -> Finding:
    """Return the finding about ``culprits``."""
    at = culprits.row
    group = scene.groups[int(waiting.group[at])]
    op = op_name(Op(int(waiting.op[at])))
    age_s = round(float(waiting.age_ns[at]) / 1e9, 1) if waiting.age_ns[at] >= 0 else None
    seq, step = int(waiting.seq[at]), int(waiting.step[at])
    where = f"{op} number {seq} of group {group.name}"
    kind = "desync" if culprits.manner in (ALONE, MUTUAL, DIFFERENT) else "hang"
    ranks = culprits.ranks
    return Finding(
        kind=kind,
        ranks=ranks,
        nodes=sorted({scene.nodes[rank] for rank in ranks if scene.nodes.get(rank)}),
        cause=_cause(culprits, scene),
        phase=None,
        first_step=step if step >= 0 else None,
        last_step=None,
        slowdown=None,
        recoverable_ratio=None,
        wasted_gpu_s=culprits.waited_ns / 1e9 if age_s is not None else None,
        confidence=None,
        evidence=[
            _what(culprits, waiting, group, where, age_s),
            *_who_waits(culprits, group, age_s),
            *(sentence for rank in ranks[:_TOLD_RANKS] for sentence in _of_rank(rank, scene)),
        ],
        action=_action(culprits, scene) if ranks else _action_on_network(group, scene),
        collective={"group": group.name, "op": op, "seq": seq, "age_s": age_s},
    )


def _cause(culprits: Culprits, scene: Scene) -> str:
    if culprits.manner == STUCK:
        return "network"
    gone = [rank for rank in culprits.ranks if rank in scene.ended or rank in scene.silent_s]
    if gone or culprits.manner in (ALONE, MUTUAL, DIFFERENT):
        return "unknown"
    if culprits.manner == NEVER_FINISHED:
        return "gpu_fault"
    return "unknown" if set(culprits.ranks) <= scene.without_dump else "host"


def _what(
    culprits: Culprits, waiting: Waiting, group: Group, where: str, age_s: float | None
) -> str:
    if culprits.manner == STUCK:
        return (
            f"every member has entered {where} and none has left it{_for(age_s)}: nobody is "
            "missing, the transfer between them stands still"
        )
    who = _named(culprits.ranks)
    many = len(culprits.ranks) > 1
    if culprits.manner == NEVER_FINISHED:
        return (
            f"{who} issued {where} and never finished it, though peers have left it: "
            f"{'their devices' if many else 'its device'} did not complete "
            f"{'their' if many else 'its'} part (completion lag)"
        )
    if culprits.manner == DIFFERENT:
        return f"{who} issued {where}, and other members something else under the same number"
    if culprits.manner == ALONE:
        return (
            f"{who} issued {where}; the other {len(group.ranks) - len(culprits.ranks)} members "
            "never did"
        )
    if culprits.manner == MUTUAL:
        return f"{who} wait for each other in different collectives, one of them {where}"
    return (
        f"{who} never issued {where}, which peers wait in "
        f"({'their hosts' if many else 'its host'} did not get that far: enqueue lag)"
    )


def _who_waits(culprits: Culprits, group: Group, age_s: float | None) -> list[str]:
    if not culprits.waiters:
        return []
    waits = counted(culprits.waiters, "rank waits", "ranks wait")
    since = "" if age_s is None else f", the longest{_for(age_s)}"
    return [f"{waits} for it, directly or through others{since}"]


def _for(age_s: float | None) -> str:
    return "" if age_s is None else f" for {age_s:,.1f} s"


def _of_rank(rank: int, scene: Scene) -> list[str]:
    out = []
    how = scene.ended.get(rank)
    if how == "killed":
        out.append(f"rank {rank} is dead: its process ended without a clean end")
    elif how:
        out.append(f"rank {rank} ended by itself while its peers went on waiting for it")
    elif rank in scene.silent_s:
        out.append(
            f"nothing was heard of rank {rank} for {scene.silent_s[rank]:,.0f} s, not even from "
            "its node's sidecar: the node or its network may be down"
        )
    if rank in scene.without_dump:
        out.append(f"rank {rank} left no dump")
    if rank in scene.stacks:
        lines = " < ".join(scene.stacks[rank][:_STACK_LINES])
        out.append(f"rank {rank} stands in {lines}")
    if rank in scene.places:
        out.append(f"rank {rank} issued its newest operation at {scene.places[rank]}")
    return out


def _action(culprits: Culprits, scene: Scene) -> str:
    rank = culprits.ranks[0]
    node = scene.nodes.get(rank) or f"the node of rank {rank}"
    if culprits.manner in (ALONE, MUTUAL, DIFFERENT):
        return (
            f"py-spy dump --pid PID_OF_RANK_{rank}  # on {node}; compare with a rank that waits: "
            "they took different ways through the program"
        )
    if scene.ended.get(rank) == "killed" or rank in scene.silent_s:
        return f"dmesg -T | tail -50; nvidia-smi -q -d ECC,PERFORMANCE  # on {node}: why it died"
    if culprits.manner == NEVER_FINISHED:
        return f"nvidia-smi -q -d ECC,PERFORMANCE,ROW_REMAPPER; dmesg -T | grep -i xid  # on {node}"
    return f"py-spy dump --pid PID_OF_RANK_{rank}  # on {node}: where it stands"


def _action_on_network(group: Group, scene: Scene) -> str:
    nodes = sorted({scene.nodes[rank] for rank in group.ranks if scene.nodes.get(rank)})
    where = ", ".join(nodes[:_TOLD_RANKS]) or f"the nodes of ranks {format_ranks(group.ranks)}"
    more = f" and {len(nodes) - _TOLD_RANKS} more" if len(nodes) > _TOLD_RANKS else ""
    return f"ibstat; nvidia-smi nvlink -e; dmesg -T | grep -iE 'xid|mlx|link'  # on {where}{more}"


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"
